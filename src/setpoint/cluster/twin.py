"""A twin of a cluster: a simulated copy of it, served on this machine, and what its loops would change at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from setpoint.cluster.apiserver import RunningApiServer, apiserver
from setpoint.cluster.cluster_copy import ClusterCopy
from setpoint.cluster.components import Components
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.virtual.plan import events_of
from setpoint.cluster.virtual.simulation import FIRST_LOOK, SERVER, simulation
from setpoint.store.history import History
from setpoint.store.memory import MemoryStore
from setpoint.view.plan import PlannedEvent, Unfinished


@dataclass(frozen=True, slots=True)
class FirstLook:
    """The reaction of the loops to a copy before anything was changed in it."""

    settled: bool
    events: list[PlannedEvent]
    """The changes that loops made: the original was not at rest, or its loops are others than ours."""
    added: list[str]
    """The keys of objects that the server has created or completed for itself, because it is not the original's."""
    unfinished: list[Unfinished]
    """The objects that are not as their spec asks for."""


async def first_look(copy: ClusterCopy, interrupted: Callable[[], bool] = lambda: False) -> FirstLook:
    """Let the loops look at a copy, in virtual time, until they are quiet. Requires a virtual loop."""
    async with simulation(copy, interrupted=interrupted) as running:
        settled = await running.settle(FIRST_LOOK)
        own = dict.fromkeys(each.key for each in running.writes if each.cause.user == SERVER)
        return FirstLook(settled, events_of(running.loop_writes(), 0.0), list(own), running.unfinished())


@asynccontextmanager
async def twin_cluster(copy: ClusterCopy, directory: Path, port: int, address: str) -> AsyncIterator[RunningApiServer]:
    """Serve a copy of a cluster, with all components and simulated nodes, while the block runs. Its objects are in
    memory; `directory` holds its certificates and kubeconfig. Raises ConfigError."""
    copy = copy.isolated()
    options = copy.embedded_options()
    config = ApiServerConfig(
        directory,
        bind_address=address,
        port=port,
        store="memory",
        authorization_mode=["Node", "RBAC"],
        service_cluster_ip_range=options.config.service_cluster_ip_range,
    )
    store = MemoryStore(History(copy.objects.values(), copy.revision))
    async with apiserver(config, store) as server:
        resources = server.api.resources
        async with Components(server.api, resources.clock, resources.ids, options.components):
            yield server
