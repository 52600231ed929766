"""The components above an API server in its own process: controllers, scheduler, nodes.

Each has a name and rights of its own, as if it came over the wire: the same authentication chain, authorization,
admission and validation.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from setpoint.apiserver.filters.in_process import InProcessAuthenticator
from setpoint.apiserver.http.message import Handler
from setpoint.apiserver.server import ApiServer
from setpoint.client import Client
from setpoint.cluster.component import Component
from setpoint.cluster.component_logs import ComponentLogs
from setpoint.cluster.default_storage import DEFAULT_STORAGE_RULES, ensure_default_storage
from setpoint.cluster.elected import Elected
from setpoint.cluster.identities import ADDONS, EVENT_READER, STAGES, Identities
from setpoint.cluster.inprocess import InProcess
from setpoint.cluster.parts import Election, Parts, node_to_adopt, nodes_ready
from setpoint.cluster.supervisor import Restarts, Supervisor
from setpoint.controllers.options import ControllerOptions
from setpoint.kinds.bootstrap.policy_rules import READ, rule
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.exposition import Family
from setpoint.reconcile import Manager
from setpoint.system import hostname

if TYPE_CHECKING:
    from setpoint.cluster.usage_sampling import FleetUsage
    from setpoint.node.options import FleetOptions


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
    logs: ComponentLogs | None = None
    """What the components say: where it is kept, the first node shows them as Pods that have said it."""
    supervisor: Supervisor | None = None
    """Restarts a component that has failed. Without one its error ends everything, as is right for a test."""
    fleet: FleetOptions | None = None
    """What the nodes are; `nodes` is then how many it says."""


class Components:
    """While the block runs, so do they; inside it, everything has synced and the nodes are ready. At the end the nodes
    stop first, then the scheduler, then the controllers: nobody acts on what the others left half done."""

    def __init__(
        self, api: ApiServer, clock: Clock, ids: Ids, options: ComponentOptions, handle: Handler | None = None
    ) -> None:
        """`handle` is what requests go to, where somebody listens; otherwise to `api` directly."""
        self._clock = clock
        self._ids = ids
        self._options = options
        api.authenticator.add(InProcessAuthenticator())
        self._api = api
        self._entrance = InProcess(handle or api.handle)
        self.who = Identities(self._entrance, clock)
        self._identity = options.identity or f"{hostname()}_{ids.uid()}"
        self._usage: FleetUsage
        self._tasks = asyncio.TaskGroup()
        self._begun = asyncio.Event()
        self._adopting: asyncio.Task[None] | None = None
        api.metrics.sources.append(self._families)
        self.controllers = Component("controllers", self._controllers, self._restarts("kube-controller-manager"))
        self.scheduler = Component("scheduler", self._scheduler, self._restarts("kube-scheduler"))
        self.fleet = Component("fleet", self._fleet, self._restarts("nodes"))

    def _restarts(self, name: str) -> Restarts | None:
        """With a supervisor, a component that fails is restarted, and `/readyz` says so under its name."""
        supervisor = self._options.supervisor
        if supervisor is None:
            return None
        restarts = supervisor.restarts(name)
        self._api.health.add("readyz", name, lambda: restarts.trouble)
        return restarts

    async def start(self, component: Component[Any]) -> None:
        await component.start(self._tasks)

    def event_reader(self) -> Client:
        """For whoever tells people what happens."""
        self._api.own_identities.grant(EVENT_READER, [rule(READ, "core", "events")])
        return self.who.client(EVENT_READER, agent="setpoint")

    async def __aenter__(self) -> Components:
        await self._entrance.__aenter__()
        await self._tasks.__aenter__()
        try:
            await self._start_all()
        except BaseException:
            # This may be no more than the echo of a part that failed: it is that one's error that is to be told.
            await self.__aexit__(*sys.exc_info())
            raise
        return self

    async def _start_all(self) -> None:
        fleet = self._options.fleet
        simulates = bool(self._options.nodes or (fleet is not None and fleet.stages))
        if simulates:
            await self._serve_metrics()
        if self._options.default_storage_class:
            self._api.own_identities.grant(ADDONS, DEFAULT_STORAGE_RULES)
            await ensure_default_storage(self.who.addons())
        await self.start(self.controllers)
        if self._options.scheduler:
            await self.start(self.scheduler)
        if simulates:
            await self.start(self.fleet)
        else:
            supervisor = self._options.supervisor
            adopting = self._adopt() if supervisor is None else supervisor.run("node adoption", self._adopt)
            self._adopting = self._tasks.create_task(adopting)
        self._begun.set()

    async def _adopt(self) -> None:
        """Without nodes of its own a cluster needs no fleet, until somebody makes a Node that is to be simulated."""
        await node_to_adopt(self.who.fleet(), self._clock)
        self._adopting = None
        await self._serve_metrics()
        await self.fleet.start(self._tasks, patient=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._adopting is not None:
            self._adopting.cancel()
        try:
            if kind is None:
                for component in (self.fleet, self.scheduler, self.controllers):
                    await component.stop()
        finally:
            try:
                await self._tasks.__aexit__(kind, error, trace)
            finally:
                await self._entrance.__aexit__(None, None, None)

    async def _serve_metrics(self) -> None:
        # Here, because a cluster without nodes need not load it.
        from setpoint.apiserver.metrics_api.serving import serve_metrics
        from setpoint.cluster.usage_sampling import FleetUsage

        self._usage = FleetUsage(self._clock)
        await serve_metrics(self._api, self._usage)

    def _families(self) -> Iterable[Family]:
        for component in (self.controllers, self.scheduler):
            elected = component.current
            if elected is not None:
                yield from elected.families()

    def _parts(self, component: str) -> Parts:
        wrap, options = self._options.wrap, self._options
        clients = Identities(self._entrance, self._clock, None if wrap is None else partial(wrap, component))
        election = Election(self._identity) if options.leader_elect else None
        return Parts(clients, self._clock, self._ids, election, begun=self._begun)

    def _controllers(self) -> AbstractAsyncContextManager[Elected]:
        return self._parts("controllers").controllers(self._options.controller_options, self._options.controllers)

    def _scheduler(self) -> AbstractAsyncContextManager[Elected]:
        return self._parts("scheduler").scheduler()

    @asynccontextmanager
    async def _fleet(self) -> AsyncIterator[Manager]:
        # Here, because a cluster without nodes need not load them.
        from setpoint.cluster.control_plane_pods import control_plane_pods
        from setpoint.cluster.node_access import near_nodes
        from setpoint.node.fleet import node_names

        nodes, fleet = self._options.nodes, self._options.fleet
        if fleet is not None and fleet.stages:
            from setpoint.cluster.stage_rules import stage_rules

            self._api.own_identities.grant(STAGES, stage_rules(fleet.stages))
        serving = near_nodes(self._api.nodes, self._usage, self._clock, self._api.handle)
        statics = control_plane_pods(self._options.logs) if self._options.logs is not None else ()
        async with self._parts("fleet").fleet(fleet or nodes, serving, statics) as manager:
            if self._options.scheduler and self._options.controllers is None:
                await nodes_ready(self.who.fleet(), node_names(nodes))
            yield manager


def components(api: ApiServer, clock: Clock, ids: Ids, nodes: int) -> Components:
    return Components(api, clock, ids, ComponentOptions(nodes=nodes))
