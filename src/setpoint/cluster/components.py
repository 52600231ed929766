"""The components above an API server in its own process: controllers, scheduler, nodes.

Each has a name and rights of its own, as if it came over the wire: the same authentication chain, authorization,
admission and validation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any

from setpoint.apiserver.filters.in_process import InProcessAuthenticator
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.version import VERSION
from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.cluster.component import Component, running
from setpoint.cluster.default_storage import ensure_default_storage
from setpoint.cluster.elected import Elected
from setpoint.cluster.identities import MASTERS, Identities
from setpoint.cluster.inprocess import InProcess
from setpoint.cluster.system import hostname
from setpoint.controllers.builtin import GARBAGE_COLLECTOR, add_controllers
from setpoint.controllers.garbagecollector.collector import GarbageCollector
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Clock, Ids
from setpoint.reconcile import LeaderElection, Manager

_NODES = builtin("nodes")
_NOT_READY = "node.kubernetes.io/not-ready"


@dataclass(frozen=True, slots=True)
class ComponentOptions:
    nodes: int = 3
    controllers: Collection[str] | None = None
    """Which; all when it is None."""
    scheduler: bool = True
    controller_options: ControllerOptions = field(default_factory=ControllerOptions)
    leader_elect: bool = True
    identity: str = ""
    """Under which controllers and scheduler hold their Leases; a new one when it is empty. Who comes back under the
    same need not wait until the old Lease has run out."""
    wrap: Callable[[str, Client], Client] | None = None
    """What a component's client is to be seen through, by the component's name."""
    default_storage_class: bool = True
    """A new cluster has one."""


class Components:
    """While the block runs, so do they; inside it, everything has synced and the nodes are ready. At the end the nodes
    stop first, then the scheduler, then the controllers: nobody acts on what the others left half done."""

    def __init__(self, api: ApiServer, clock: Clock, ids: Ids, options: ComponentOptions) -> None:
        self._clock = clock
        self._ids = ids
        self._options = options
        api.authenticator.add(InProcessAuthenticator())
        self._entrance = InProcess(api.handle)
        self.who = Identities(self._entrance, clock)
        self._identity = options.identity or f"{hostname()}_{ids.uid()}"
        self._tasks = asyncio.TaskGroup()
        self.controllers = Component("controllers", self._controllers)
        self.scheduler = Component("scheduler", self._scheduler)
        self.fleet = Component("fleet", self._fleet)

    async def start(self, component: Component[Any]) -> None:
        await component.start(self._tasks)

    async def __aenter__(self) -> Components:
        await self._entrance.__aenter__()
        await self._tasks.__aenter__()
        if self._options.default_storage_class:
            await ensure_default_storage(self.who.client("system:addons", (MASTERS,), agent="setpoint"))
        await self.start(self.controllers)
        if self._options.scheduler:
            await self.start(self.scheduler)
        if self._options.nodes:
            await self.start(self.fleet)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                for component in (self.fleet, self.scheduler, self.controllers):
                    await component.stop()
        finally:
            try:
                await self._tasks.__aexit__(kind, error, trace)
            finally:
                await self._entrance.__aexit__(None, None, None)

    def _identities(self, component: str) -> Identities:
        wrap = self._options.wrap
        return Identities(self._entrance, self._clock, None if wrap is None else partial(wrap, component))

    @asynccontextmanager
    async def _elected(
        self, name: str, client: Client, term: Callable[[], AbstractAsyncContextManager[Manager]]
    ) -> AsyncIterator[Elected]:
        election = None
        if self._options.leader_elect:
            election = LeaderElection(client, self._clock, self._ids, name=name, identity=self._identity)
        elected = Elected(election, term)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(elected.run())
            await elected.settled()
            try:
                yield elected
            finally:
                task.cancel()

    @asynccontextmanager
    async def _controllers(self) -> AsyncIterator[Elected]:
        who = self._identities("controllers")
        client = who.client("system:kube-controller-manager", agent="kube-controller-manager")
        names = self._options.controllers

        @asynccontextmanager
        async def term() -> AsyncIterator[Manager]:
            manager = Manager(client, self._clock, self._ids, client_for=who.controller)
            add_controllers(manager, self._options.controller_options, names)
            async with running(manager.run, manager.ready):
                if names is not None and GARBAGE_COLLECTOR not in names:
                    yield manager
                    return
                # Now only: its many watches are nothing that the others need to be ready.
                collector = GarbageCollector(manager)
                async with running(collector.run, collector.started):
                    yield manager

        async with self._elected("kube-controller-manager", client, term) as elected:
            yield elected

    @asynccontextmanager
    async def _scheduler(self) -> AsyncIterator[Elected]:
        # Here, because what it needs is large and a cluster without it need not load it.
        from setpoint.scheduler.scheduler import add_scheduler

        client = self._identities("scheduler").client("system:kube-scheduler", agent="kube-scheduler")

        @asynccontextmanager
        async def term() -> AsyncIterator[Manager]:
            manager = Manager(client, self._clock, self._ids)
            add_scheduler(manager)
            async with running(manager.run, manager.ready):
                yield manager

        async with self._elected("kube-scheduler", client, term) as elected:
            yield elected

    @asynccontextmanager
    async def _fleet(self) -> AsyncIterator[Manager]:
        # Here, for the same reason.
        from setpoint.node.fleet import add_fleet, node_names
        from setpoint.node.runtime.simulated import SimulatedRuntime

        nodes = self._options.nodes
        who = self._identities("fleet")
        manager = Manager(who.client("system:node-fleet", (MASTERS,), agent="kubelet"), self._clock, self._ids)
        heartbeat = add_fleet(
            manager, nodes, SimulatedRuntime(self._clock, self._ids), client_for=who.node,
            version=VERSION["gitVersion"], runtime_version=SimulatedRuntime.version,
        )  # fmt: skip
        async with running(manager.run, manager.ready):
            await heartbeat.registered.wait()
            if self._options.scheduler and self._options.controllers is None:
                await self._found_ready(node_names(nodes))
            yield manager

    async def _found_ready(self, names: list[str]) -> None:
        """A node is registered as not ready, and only then found to be: returns when that has happened for all."""
        waiting = set(names)
        if not waiting:
            return
        client = self.who.client("system:node-fleet", (MASTERS,), agent="kubelet")
        async with client.watch(_NODES, resource_version="0") as watch:
            async for _, node in watch:
                if not any(taint["key"] == _NOT_READY for taint in (node.get("spec") or {}).get("taints") or ()):
                    waiting.discard(node["metadata"].get("name"))
                    if not waiting:
                        return


def components(api: ApiServer, clock: Clock, ids: Ids, nodes: int) -> Components:
    return Components(api, clock, ids, ComponentOptions(nodes=nodes))
