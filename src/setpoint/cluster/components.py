"""The components above an API server in its own process: controllers, scheduler, nodes.

Each has a name and rights of its own, as if it came over the wire: the same authentication chain, authorization,
admission and validation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from setpoint.apiserver.filters.in_process import InProcessAuthenticator
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.version import VERSION
from setpoint.client.resources import builtin
from setpoint.cluster.component import Component, running
from setpoint.cluster.identities import MASTERS, Identities
from setpoint.cluster.inprocess import InProcess
from setpoint.controllers.builtin import GARBAGE_COLLECTOR, add_controllers
from setpoint.controllers.garbagecollector.collector import GarbageCollector
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Clock, Ids
from setpoint.node.fleet import add_fleet, node_names
from setpoint.node.runtime.simulated import SimulatedRuntime
from setpoint.reconcile import Informer, Manager

_NODES = builtin("nodes")
_NOT_READY = "node.kubernetes.io/not-ready"


@dataclass(frozen=True, slots=True)
class ComponentOptions:
    nodes: int = 3
    controllers: Collection[str] | None = None
    """Which; all when it is None."""
    scheduler: bool = True
    controller_options: ControllerOptions = field(default_factory=ControllerOptions)


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
        self._tasks = asyncio.TaskGroup()
        self.controllers = Component("controllers", self._controllers)
        self.scheduler = Component("scheduler", self._scheduler)
        self.fleet = Component("fleet", self._fleet)

    async def start(self, component: Component[Any]) -> None:
        await component.start(self._tasks)

    async def __aenter__(self) -> Components:
        await self._entrance.__aenter__()
        await self._tasks.__aenter__()
        await self.start(self.controllers)
        if self._options.scheduler:
            await self.start(self.scheduler)
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

    @asynccontextmanager
    async def _controllers(self) -> AsyncIterator[Manager]:
        names = self._options.controllers
        manager = Manager(
            self.who.client("system:kube-controller-manager", agent="kube-controller-manager"), self._clock, self._ids,
            client_for=self.who.controller,
        )  # fmt: skip
        add_controllers(manager, self._options.controller_options, names)
        async with running(manager.run, manager.ready):
            if names is not None and GARBAGE_COLLECTOR not in names:
                yield manager
                return
            # Now only: its many watches are nothing that the others need to be ready.
            collector = GarbageCollector(manager)
            async with running(collector.run, collector.started):
                yield manager

    @asynccontextmanager
    async def _scheduler(self) -> AsyncIterator[Manager]:
        from setpoint.scheduler.scheduler import add_scheduler

        manager = Manager(self.who.client("system:kube-scheduler", agent="kube-scheduler"), self._clock, self._ids)
        add_scheduler(manager)
        async with running(manager.run, manager.ready):
            yield manager

    @asynccontextmanager
    async def _fleet(self) -> AsyncIterator[Manager]:
        nodes = self._options.nodes
        manager = Manager(self.who.client("system:node-fleet", (MASTERS,), agent="kubelet"), self._clock, self._ids)
        heartbeat = add_fleet(
            manager, nodes, SimulatedRuntime(self._clock, self._ids), client_for=self.who.node,
            version=VERSION["gitVersion"], runtime_version=SimulatedRuntime.version,
        )  # fmt: skip
        async with running(manager.run, manager.ready):
            await heartbeat.registered.wait()
            if self._options.scheduler and self._options.controllers is None:
                await _found_ready(self.scheduler.running.informer(_NODES), node_names(nodes))
            yield manager


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


def components(api: ApiServer, clock: Clock, ids: Ids, nodes: int) -> Components:
    return Components(api, clock, ids, ComponentOptions(nodes=nodes))
