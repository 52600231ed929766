"""Builds and runs controllers, scheduler and nodes, wherever the API server is.

Each component gets clients that reach the server, in the same process or over the network. It is imported when it
starts, so that a process loads only the components that it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from setpoint.apiserver.version import VERSION
from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.cluster.component import ElectedComponent, running
from setpoint.cluster.supervisor import Supervisor
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import ApiError
from setpoint.meta.node_labels import TAINT_NOT_READY
from setpoint.meta.objects import Obj
from setpoint.reconcile import ElectionTimes, LeaderElection, Manager
from setpoint.reconcile.gate import Gates

if TYPE_CHECKING:
    from setpoint.node.fleet import Fleet
    from setpoint.node.image_faults import ImageFaults
    from setpoint.node.options import FleetOptions
    from setpoint.node.static_pods import StaticPod
    from setpoint.scheduler.config import Configuration


_NODES = builtin("nodes")
_RETRY_INTERVAL = 1.0


class ComponentClients(Protocol):
    """The clients of components, each with the rights of its component."""

    def controller_manager(self) -> Client: ...

    def controller(self, name: str) -> Client:
        """Return the client of one controller."""
        ...

    def scheduler(self) -> Client: ...

    def fleet(self) -> Client:
        """Return the client that reads for all nodes."""
        ...

    def stages(self) -> Client: ...

    def node(self, name: str) -> Client:
        """Return the client that writes as the node."""
        ...


@dataclass(frozen=True, slots=True)
class ElectionOptions:
    """Options of the leader election."""

    identity: str
    """The lease holder identity, which no other process may use. After a restart with the same identity, a process need
    not wait until the old Lease expires."""
    times: ElectionTimes = field(default_factory=ElectionTimes)
    namespace: str = "kube-system"


class ComponentFactory:
    """Runs each component as a context manager."""

    def __init__(
        self,
        clients: ComponentClients,
        clock: Clock,
        ids: Ids,
        election: ElectionOptions | None,
        host: str = "",
        *,
        started: asyncio.Event | None = None,
        supervisor: Supervisor | None = None,
        gates: Gates | None = None,
        starting: dict[str, Manager] | None = None,
    ) -> None:
        """Controllers and scheduler are restarted after a failure if there is a `supervisor`, and start at once if
        there is no `election`. The garbage collector, which watches everything and starts slowly, waits until `started`
        is set. `gates` hold back control loops; by default nothing does. `starting` will hold the managers of
        controllers and scheduler, by the names of their Leases, while their informers sync."""
        if started is None:
            started = asyncio.Event()
            started.set()
        self._started = started
        self._clients = clients
        self._clock = clock
        self._ids = ids
        self._election = election
        self._host = host
        self._supervisor = supervisor
        self._gates = gates
        self._starting = {} if starting is None else starting

    @asynccontextmanager
    async def controllers(
        self, options: ControllerOptions, names: Collection[str] | None = None
    ) -> AsyncIterator[ElectedComponent]:
        """Run the controllers with these names, or all."""
        from setpoint.controllers.builtin import GARBAGE_COLLECTOR, add_controllers
        from setpoint.controllers.garbagecollector.collector import GarbageCollector

        client = self._clients.controller_manager()
        election = self._new_election("kube-controller-manager", client)

        @asynccontextmanager
        async def term() -> AsyncIterator[Manager]:
            manager = self._manager(client, self._clients.controller, fence=election)
            add_controllers(manager, options, names)
            async with self._ready("kube-controller-manager", manager):
                if names is not None and GARBAGE_COLLECTOR not in names:
                    yield manager
                    return
                collector = GarbageCollector(manager)

                async def collect() -> None:
                    await self._started.wait()
                    await collector.run()

                async with asyncio.TaskGroup() as tasks:
                    collecting = tasks.create_task(collect())
                    try:
                        yield manager
                    finally:
                        collecting.cancel()

        async with self._run_elected("kube-controller-manager", election, term) as elected:
            yield elected

    @asynccontextmanager
    async def scheduler(self, configuration: Configuration | None = None) -> AsyncIterator[ElectedComponent]:
        from setpoint.scheduler.scheduler import add_scheduler

        client = self._clients.scheduler()
        election = self._new_election("kube-scheduler", client)

        @asynccontextmanager
        async def term() -> AsyncIterator[Manager]:
            manager = self._manager(client, fence=election)
            add_scheduler(manager, configuration)
            async with self._ready("kube-scheduler", manager):
                yield manager

        async with self._run_elected("kube-scheduler", election, term) as elected:
            yield elected

    @asynccontextmanager
    async def fleet(
        self,
        nodes: int | FleetOptions,
        serving: Callable[[Fleet], AbstractAsyncContextManager[None]] | None = None,
        static_pods: Sequence[StaticPod] | None = (),
        image_faults: ImageFaults | None = None,
    ) -> AsyncIterator[Manager]:
        """Run simulated nodes; the block begins when all have registered. `serving` connects the API server to them.
        `image_faults` break the images that they pull."""
        from setpoint.node.fleet import add_fleet
        from setpoint.node.options import FleetOptions
        from setpoint.node.runtime.simulated import SimulatedRuntime

        manager = self._manager(self._clients.fleet())
        options = FleetOptions(nodes) if isinstance(nodes, int) else nodes
        images = options.image_service()
        if image_faults is not None:
            images.faults = image_faults
        runtime = SimulatedRuntime(self._clock, self._ids, images, options.pace)
        fleet = add_fleet(
            manager,
            options,
            runtime,
            client_for=self._clients.node,
            stage_client=self._clients.stages(),
            version=VERSION["gitVersion"],
            runtime_version=SimulatedRuntime.version,
            static_pods=static_pods,
        )
        async with serving(fleet) if serving is not None else nullcontext(), running(manager.run, manager.ready):
            await fleet.heartbeat.registered.wait()
            yield manager

    def _manager(
        self, client: Client, client_for: Callable[[str], Client] | None = None, fence: LeaderElection | None = None
    ) -> Manager:
        """Return a manager. With a fence, the server rejects its writes once another process leads."""
        fenced = None if client_for is None else lambda name: client_for(name).fenced(fence)
        return Manager(
            client.fenced(fence), self._clock, self._ids, client_for=fenced, host=self._host, gates=self._gates
        )

    @asynccontextmanager
    async def _ready(self, name: str, manager: Manager) -> AsyncIterator[None]:
        """Run a manager while the block runs, which begins when it is ready."""
        self._starting[name] = manager
        try:
            async with running(manager.run, manager.ready):
                del self._starting[name]
                yield
        finally:
            self._starting.pop(name, None)

    def _new_election(self, name: str, client: Client) -> LeaderElection | None:
        options = self._election
        if options is None:
            return None
        return LeaderElection(
            client,
            self._clock,
            self._ids,
            name=name,
            identity=options.identity,
            namespace=options.namespace,
            times=options.times,
        )

    @asynccontextmanager
    async def _run_elected(
        self, name: str, election: LeaderElection | None, term: Callable[[], AbstractAsyncContextManager[Manager]]
    ) -> AsyncIterator[ElectedComponent]:
        supervisor = self._supervisor
        elected = ElectedComponent(election, term, None if supervisor is None else supervisor.restarts(name))
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(elected.run())
            await elected.settled()
            try:
                yield elected
            finally:
                task.cancel()


async def wait_for_node(client: Client, clock: Clock, matches: Callable[[Obj], bool]) -> None:
    """Return when there is a Node that satisfies the predicate."""
    while True:
        try:
            async with client.watch(_NODES, resource_version="0") as watch:
                async for kind, node in watch:
                    if kind != "DELETED" and matches(node):
                        return
        except (ApiError, Unreachable):
            await clock.sleep(_RETRY_INTERVAL)


async def wait_for_ready_nodes(client: Client, names: Collection[str]) -> None:
    """Return when no node has the taint for unready nodes, with which each is registered."""
    unready = set(names)
    if not unready:
        return
    async with client.watch(_NODES, resource_version="0") as watch:
        async for _, node in watch:
            if not any(taint["key"] == TAINT_NOT_READY for taint in (node.get("spec") or {}).get("taints") or ()):
                unready.discard(node["metadata"].get("name"))
                if not unready:
                    return
