"""A whole cluster in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from setpoint.cluster.apiserver import RunningApiServer, apiserver
from setpoint.cluster.components import Components, components
from setpoint.cluster.config import ApiServerConfig
from setpoint.store.interface import Store


@dataclass(slots=True)
class RunningCluster:
    apiserver: RunningApiServer
    components: Components


@asynccontextmanager
async def cluster(config: ApiServerConfig, *, nodes: int, store: Store | None = None) -> AsyncIterator[RunningCluster]:
    """From nothing to nodes that are ready, and back: first the components end, then the server, then the store.
    Raises ConfigError."""
    async with apiserver(config, store) as server:
        api = server.api
        async with components(api, api.clock, api.ids, nodes) as running:
            yield RunningCluster(server, running)
