"""What runs above an API server, wherever that server is: controllers, scheduler, nodes.

Each part is opened with clients that know how to reach the server; whether they do so within the process or over the
wire is no concern of the part.
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
from setpoint.cluster.component import running
from setpoint.cluster.elected import Elected
from setpoint.cluster.supervisor import Supervisor
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import ApiError
from setpoint.node.annotations import is_adopted
from setpoint.reconcile import ElectionTimes, LeaderElection, Manager

if TYPE_CHECKING:
    from setpoint.node.fleet import Fleet
    from setpoint.node.options import FleetOptions
    from setpoint.node.static_pods import StaticPod
    from setpoint.scheduler.config import Configuration

_NODES = builtin("nodes")
_LOOK_AGAIN = 1.0
_NOT_READY = "node.kubernetes.io/not-ready"


class Clients(Protocol):
    """In whose name a part speaks to the server."""

    def controller_manager(self) -> Client: ...

    def controller(self, name: str) -> Client:
        """Each controller has rights of its own."""
        ...

    def scheduler(self) -> Client: ...

    def fleet(self) -> Client:
        """Sees for all nodes at once."""
        ...

    def stages(self) -> Client: ...

    def node(self, name: str) -> Client:
        """Writes as the node does."""
        ...


@dataclass(frozen=True, slots=True)
class Election:
    identity: str
    """Nobody else's. Who comes back under the same need not wait until the old Lease has run out."""
    times: ElectionTimes = field(default_factory=ElectionTimes)
    namespace: str = "kube-system"


class Parts:
    def __init__(
        self,
        clients: Clients,
        clock: Clock,
        ids: Ids,
        election: Election | None,
        host: str = "",
        *,
        begun: asyncio.Event | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        """With a supervisor, controllers and scheduler begin anew after a failure.

        Without an election, controllers and scheduler work at once. What follows everything, and so takes long to
        begin, waits until `begun` is set: a cluster need not wait for it."""
        if begun is None:
            begun = asyncio.Event()
            begun.set()
        self._begun = begun
        self._clients = clients
        self._clock = clock
        self._ids = ids
        self._election = election
        self._host = host
        self._supervisor = supervisor

    @asynccontextmanager
    async def controllers(
        self, options: ControllerOptions, names: Collection[str] | None = None
    ) -> AsyncIterator[Elected]:
        """Those with these names, or all."""
        # Here, because a process that runs one part need not load the others.
        from setpoint.controllers.builtin import GARBAGE_COLLECTOR, add_controllers
        from setpoint.controllers.garbagecollector.collector import GarbageCollector

        client = self._clients.controller_manager()
        election = self._new_election("kube-controller-manager", client)

        @asynccontextmanager
        async def term() -> AsyncIterator[Manager]:
            manager = self._manager(client, self._clients.controller, fence=election)
            add_controllers(manager, options, names)
            async with running(manager.run, manager.ready):
                if names is not None and GARBAGE_COLLECTOR not in names:
                    yield manager
                    return
                collector = GarbageCollector(manager)

                async def collect() -> None:
                    await self._begun.wait()
                    await collector.run()

                async with asyncio.TaskGroup() as tasks:
                    collecting = tasks.create_task(collect())
                    try:
                        yield manager
                    finally:
                        collecting.cancel()

        async with self._elected("kube-controller-manager", election, term) as elected:
            yield elected

    @asynccontextmanager
    async def scheduler(self, configuration: Configuration | None = None) -> AsyncIterator[Elected]:
        from setpoint.scheduler.scheduler import add_scheduler

        client = self._clients.scheduler()
        election = self._new_election("kube-scheduler", client)

        @asynccontextmanager
        async def term() -> AsyncIterator[Manager]:
            manager = self._manager(client, fence=election)
            add_scheduler(manager, configuration)
            async with running(manager.run, manager.ready):
                yield manager

        async with self._elected("kube-scheduler", election, term) as elected:
            yield elected

    @asynccontextmanager
    async def fleet(
        self,
        nodes: int | FleetOptions,
        serving: Callable[[Fleet], AbstractAsyncContextManager[None]] | None = None,
        static_pods: Sequence[StaticPod] | None = (),
    ) -> AsyncIterator[Manager]:
        """Entered when all nodes have registered. `serving` lets others ask them, for as long as they are there."""
        from setpoint.node.fleet import add_fleet
        from setpoint.node.options import FleetOptions
        from setpoint.node.runtime.simulated import SimulatedRuntime

        manager = self._manager(self._clients.fleet())
        options = FleetOptions(nodes) if isinstance(nodes, int) else nodes
        runtime = SimulatedRuntime(self._clock, self._ids, options.image_catalogue(), options.pace)
        fleet = add_fleet(
            manager, options, runtime, client_for=self._clients.node, stage_client=self._clients.stages(),
            version=VERSION["gitVersion"], runtime_version=SimulatedRuntime.version, static_pods=static_pods,
        )  # fmt: skip
        async with serving(fleet) if serving is not None else nullcontext(), running(manager.run, manager.ready):
            await fleet.heartbeat.registered.wait()
            yield manager

    def _manager(
        self, client: Client, client_for: Callable[[str], Client] | None = None, fence: LeaderElection | None = None
    ) -> Manager:
        """With a fence, nothing of it writes when it does not lead."""
        of = None if client_for is None else lambda name: client_for(name).fenced(fence)
        return Manager(client.fenced(fence), self._clock, self._ids, client_for=of, host=self._host)

    def _new_election(self, name: str, client: Client) -> LeaderElection | None:
        asked = self._election
        if asked is None:
            return None
        return LeaderElection(
            client, self._clock, self._ids,
            name=name, identity=asked.identity, namespace=asked.namespace, times=asked.times,
        )  # fmt: skip

    @asynccontextmanager
    async def _elected(
        self, name: str, election: LeaderElection | None, term: Callable[[], AbstractAsyncContextManager[Manager]]
    ) -> AsyncIterator[Elected]:
        supervisor = self._supervisor
        elected = Elected(election, term, None if supervisor is None else supervisor.restarts(name))
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(elected.run())
            await elected.settled()
            try:
                yield elected
            finally:
                task.cancel()


async def node_to_adopt(client: Client, clock: Clock) -> None:
    """Returns when there is a Node that somebody made to be simulated."""
    while True:
        try:
            async with client.watch(_NODES, resource_version="0") as watch:
                async for kind, node in watch:
                    if kind != "DELETED" and is_adopted(node):
                        return
        except (ApiError, Unreachable):
            await clock.sleep(_LOOK_AGAIN)


async def nodes_ready(client: Client, names: Collection[str]) -> None:
    """A node is registered as not ready, and only then found to be: returns when that has happened for all."""
    waiting = set(names)
    if not waiting:
        return
    async with client.watch(_NODES, resource_version="0") as watch:
        async for _, node in watch:
            if not any(taint["key"] == _NOT_READY for taint in (node.get("spec") or {}).get("taints") or ()):
                waiting.discard(node["metadata"].get("name"))
                if not waiting:
                    return
