"""A whole cluster in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from setpoint.apiserver.http.certificates import CertificateFiles
from setpoint.cluster.apiserver import RunningApiServer, apiserver
from setpoint.cluster.components import ComponentOptions, Components
from setpoint.cluster.config import ApiServerConfig
from setpoint.controllers.options import ControllerOptions
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
        options = ComponentOptions(nodes=nodes, controller_options=controller_options(server.certificates))
        async with Components(api, api.clock, api.ids, options) as running:
            yield RunningCluster(server, running)


def controller_options(files: CertificateFiles | None) -> ControllerOptions:
    """The cluster's own authority signs what is approved, and is what Pods trust."""
    if files is None:
        return ControllerOptions()
    authority = files.ca.read_text()
    return ControllerOptions(
        root_ca=authority, cluster_signing_cert=authority, cluster_signing_key=files.ca_key.read_text()
    )
