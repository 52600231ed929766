"""The components above an API server in its own process: controllers, scheduler, nodes.

Each has a name and rights of its own, as if it came over the wire: the same authentication chain, authorization,
admission and validation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from setpoint import __version__
from setpoint.apiserver.filters.in_process import InProcessAuthenticator, peer_of
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.version import VERSION
from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport
from setpoint.cluster.inprocess import InProcess
from setpoint.controllers.builtin import add_all
from setpoint.controllers.garbagecollector.collector import GarbageCollector
from setpoint.meta.clock import Clock, Ids
from setpoint.node.fleet import add_fleet, node_names
from setpoint.node.runtime.simulated import SimulatedRuntime
from setpoint.reconcile import Informer, Manager
from setpoint.scheduler.scheduler import NODES, add_scheduler

_MASTERS = "system:masters"
_NOT_READY = "node.kubernetes.io/not-ready"


@dataclass(slots=True)
class Components:
    controllers: Manager
    scheduler: Manager
    fleet: Manager
    collector: GarbageCollector


class Identities:
    """Clients in the names of the components of one process."""

    def __init__(self, entrance: InProcess, clock: Clock) -> None:
        self._entrance = entrance
        self._clock = clock
        self._clients: dict[str, Client] = {}

    def client(self, user: str, groups: tuple[str, ...] = (), *, agent: str) -> Client:
        found = self._clients.get(user)
        if found is None:
            transport = InProcessTransport(self._entrance.for_peer(peer_of(user, groups)))
            found = self._clients[user] = Client(transport, self._clock, user_agent=f"{agent}/v{__version__}")
        return found

    def controller(self, name: str) -> Client:
        """Each controller writes with the rights of its own service account."""
        namespace = "kube-system"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        return self.client(f"system:serviceaccount:{namespace}:{name}", groups, agent="kube-controller-manager")

    def node(self, name: str) -> Client:
        # Masters, because the rights of nodes come from an authorizer that knows which Pods are on which node.
        return self.client(f"system:node:{name}", ("system:nodes", _MASTERS), agent="kubelet")


@asynccontextmanager
async def components(api: ApiServer, clock: Clock, ids: Ids, nodes: int) -> AsyncIterator[Components]:
    """Runs while the block does; inside it, everything has synced and the nodes are ready. At the end the nodes stop
    first, then the scheduler, then the controllers: nobody acts on what the others left half done. The collector
    comes last and goes first."""
    api.authenticator.add(InProcessAuthenticator())
    async with InProcess(api.handle) as entrance:
        who = Identities(entrance, clock)
        controllers = Manager(
            who.client("system:kube-controller-manager", agent="kube-controller-manager"), clock, ids,
            client_for=who.controller,
        )  # fmt: skip
        add_all(controllers)
        collector = GarbageCollector(controllers)
        scheduler = Manager(who.client("system:kube-scheduler", agent="kube-scheduler"), clock, ids)
        add_scheduler(scheduler)
        fleet = Manager(who.client("system:node-fleet", (_MASTERS,), agent="kubelet"), clock, ids)
        heartbeat = add_fleet(
            fleet, nodes, SimulatedRuntime(clock, ids), client_for=who.node,
            version=VERSION["gitVersion"], runtime_version=SimulatedRuntime.version,
        )  # fmt: skip
        async with (
            running(controllers.run, controllers.ready),
            running(scheduler.run, scheduler.ready),
            running(fleet.run, fleet.ready),
        ):
            await heartbeat.registered.wait()
            await _found_ready(scheduler.informer(NODES), node_names(nodes))
            # Now only: its many watches are nothing that a cluster needs to be ready.
            async with running(collector.run, collector.started):
                yield Components(controllers, scheduler, fleet, collector)


async def _found_ready(nodes: Informer, names: list[str]) -> None:
    """A node is registered as not ready, and only then found to be: returns when that has happened for all."""
    waiting, done = set(names), asyncio.Event()

    def changed(old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        if new is not None and not any(taint["key"] == _NOT_READY for taint in new["spec"].get("taints") or ()):
            waiting.discard(new["metadata"]["name"])
            if not waiting:
                done.set()

    if waiting:
        nodes.add_handler(changed)
        await done.wait()


@asynccontextmanager
async def running(run: Callable[[], Awaitable[None]], ready: asyncio.Event) -> AsyncIterator[None]:
    """The block runs when it is ready; a failure of either ends both."""

    async def supervised() -> None:
        await run()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(supervised())
        await ready.wait()
        try:
            yield
        finally:
            task.cancel()
