"""The components above an API server in its own process: controllers, scheduler, nodes.

Each has its own user and rights. Its requests pass the same authentication, authorization, admission and validation as
requests from the network.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from setpoint import __version__
from setpoint.apiserver.api_resources import CacheReader
from setpoint.apiserver.diagnostics import CAUSES_PATH
from setpoint.apiserver.filters.authenticate import authenticated_peer, in_process_peer
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.server import ApiServer
from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport, SharingTransport
from setpoint.client.resources import builtin
from setpoint.cluster.component import Component, ElectedComponent
from setpoint.cluster.component_factory import (
    ComponentFactory,
    ElectionOptions,
    wait_for_node,
    wait_for_ready_nodes,
)
from setpoint.cluster.component_logs import ComponentLogs, control_plane_pods
from setpoint.cluster.inprocess import InProcess
from setpoint.cluster.loop_endpoints import LoopEndpoints
from setpoint.cluster.supervisor import Restarts, Supervisor
from setpoint.controllers.local_provisioner import PROVISIONER
from setpoint.controllers.options import ControllerOptions
from setpoint.kinds.bootstrap.cluster_roles import FLEET, WHY
from setpoint.kinds.bootstrap.policy_rules import READ, rule, urls
from setpoint.kinds.bootstrap.rbac import AGGREGATE_TO_VIEW
from setpoint.kinds.catalog import RESOURCES
from setpoint.kinds.storage.binding import WAIT_FOR_FIRST_CONSUMER, annotations_of
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import AlreadyExists, NotFound
from setpoint.meta.exposition import Family
from setpoint.meta.objects import Obj
from setpoint.node.image_faults import ImageFaults
from setpoint.node.simulation_annotations import is_adopted
from setpoint.reconcile import Controller, Manager
from setpoint.reconcile.cpu_limit import CpuLimit
from setpoint.reconcile.gate import Gates, Mode
from setpoint.reconcile.loop_board import ComponentState, LoopBoard, Times
from setpoint.reconcile.loop_state import LoopStates
from setpoint.reconcile.run import RecentRuns
from setpoint.system import hostname
from setpoint.view.loops import LOOPS_PATH, LoopRow
from setpoint.view.why.facts import SchedulingAttempt
from setpoint.wire.message import Answer, Handler

if TYPE_CHECKING:
    from setpoint.cluster.fault_endpoints import FaultEndpoints
    from setpoint.cluster.in_process_nodes import FleetUsage
    from setpoint.node.options import FleetOptions
    from setpoint.node.stages import Stage
    from setpoint.scheduler.scheduler import Scheduler

_STORAGE_CLASS = "standard"
DEFAULT_STORAGE_RULES = (
    rule("get patch", "core", "namespaces", "kube-system"),
    rule("create", "storage.k8s.io", "storageclasses"),
)
"""The rights to create the default storage class."""
VIEWER_RULES = (rule("escalate get patch", "rbac.authorization.k8s.io", "clusterroles", WHY),)
"""The rights to aggregate the right to ask why into other roles."""
_NAMESPACES = builtin("namespaces")
_CLUSTER_ROLES = builtin("clusterroles", "rbac.authorization.k8s.io")
_KUBE_SYSTEM = "kube-system"
_CREATED_ANNOTATION = "setpoint.dev/default-storage-class"
"""Annotation of the namespace kube-system after the class was created: if users delete the class, it stays deleted."""
MASTERS = "system:masters"
FAULTS_PATH = "/setpoint/v1/faults"
ADDONS = "system:addons"
EVENT_READER = "system:event-reader"
STAGES = "system:stages"
"""The user that executes the stages of a fleet, with the rights for that alone."""
_MAX_CLIENTS = 65_536
"""Bound of the client cache, since nodes come and go under new names; a full cache is cleared."""
Wrap = Callable[[Client], Client]
"""Function that wraps the client of a component; tests inject faults with it."""


def _default_storage_class() -> Obj:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": _STORAGE_CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER,
        "allowVolumeExpansion": True,
    }


async def ensure_default_storage(client: Client) -> None:
    """Create the storage class of a new cluster, once; afterwards users may change or delete it."""
    if _CREATED_ANNOTATION in annotations_of(await client.get(_NAMESPACES, _KUBE_SYSTEM)):
        return
    with suppress(AlreadyExists):
        await client.create(_default_storage_class())
    await client.patch(_NAMESPACES, _KUBE_SYSTEM, {"metadata": {"annotations": {_CREATED_ANNOTATION: _STORAGE_CLASS}}})


async def ensure_viewers_may_ask(client: Client) -> None:
    """Aggregate the right to ask why into the roles view, edit and admin, unless a user has set the label already."""
    try:
        role = await client.get(_CLUSTER_ROLES, WHY)
    except NotFound:  # a cluster without roles
        return
    if AGGREGATE_TO_VIEW not in (role["metadata"].get("labels") or {}):
        await client.patch(_CLUSTER_ROLES, WHY, {"metadata": {"labels": {AGGREGATE_TO_VIEW: "true"}}})


def stage_rules(stages: Iterable[Stage]) -> list[Obj]:
    """Return the rights to read the objects of the stages and to change them as the stages say."""
    rules = []
    for api_version, kind in dict.fromkeys((stage.api_version, stage.kind) for stage in stages):
        group = api_version.rpartition("/")[0]
        # The plural name of a custom kind is unknown before it is defined.
        names = {resource.plural for resource in RESOURCES if (resource.group, resource.kind) == (group, kind)}
        written = " ".join(f"{name} {name}/status" for name in sorted(names)) or "*"
        rules.append(rule(f"{READ} delete patch", group or "core", written))
    return rules


class InProcessClients:
    """Clients of the components of one process, each with its own user."""

    def __init__(self, server: InProcess, clock: Clock, wrap: Wrap | None = None) -> None:
        self._server = server
        self._clock = clock
        self._wrap = wrap
        self._clients: dict[str, Client] = {}

    def client(self, user: str, groups: tuple[str, ...] = (), *, agent: str) -> Client:
        """Return the client of a component. It may share objects with the server, so they must not be changed."""
        found = self._clients.get(user)
        if found is None:
            found = self._client(SharingTransport, user, groups, agent)
            if self._wrap is not None:
                found = self._wrap(found)
            if len(self._clients) >= _MAX_CLIENTS:
                self._clients.clear()
            self._clients[user] = found
        return found

    def acting_for(self, user: UserInfo, *, agent: str) -> Client:
        """Return a client for a user who was authenticated already; it receives copies of objects."""
        transport = InProcessTransport(self._server.for_peer(authenticated_peer(user)))
        return Client(transport, self._clock, user_agent=f"{agent}/v{__version__}")

    def copying_client(self, user: str, groups: tuple[str, ...] = (), *, agent: str) -> Client:
        """Return a client for callers other than components: it receives copies of objects, which may be changed."""
        return self._client(InProcessTransport, user, groups, agent)

    def _client(self, kind: type[InProcessTransport], user: str, groups: tuple[str, ...], agent: str) -> Client:
        transport = kind(self._server.for_peer(in_process_peer(user, groups)))
        return Client(transport, self._clock, user_agent=f"{agent}/v{__version__}")

    def controller_manager(self) -> Client:
        return self.client("system:kube-controller-manager", agent="kube-controller-manager")

    def controller(self, name: str) -> Client:
        """Return the client of a controller, which has the rights of its own service account."""
        namespace = "kube-system"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        return self.client(f"system:serviceaccount:{namespace}:{name}", groups, agent="kube-controller-manager")

    def scheduler(self) -> Client:
        return self.client("system:kube-scheduler", agent="kube-scheduler")

    def fleet(self) -> Client:
        return self.client(FLEET, agent="kubelet")

    def stages(self) -> Client:
        return self.client(STAGES, agent="kubelet")

    def node(self, name: str) -> Client:
        return self.client(f"system:node:{name}", ("system:nodes",), agent="kubelet")

    def addons(self) -> Client:
        return self.client(ADDONS, agent="setpoint")


@dataclass(frozen=True, slots=True)
class ComponentOptions:
    """The choice of components and their settings."""

    nodes: int = 3
    """The number of simulated nodes."""
    controllers: Collection[str] | None = None
    """Names of the controllers that run; None means all."""
    scheduler: bool = True
    """Whether the scheduler runs."""
    controller_options: ControllerOptions = field(default_factory=ControllerOptions)
    leader_elect: bool = True
    identity: str = ""
    """The lease holder identity of controllers and scheduler; empty means a new one. After a restart with the same
    identity, they need not wait until the old Lease expires."""
    wrap: Callable[[str, Client], Client] | None = None
    """Function from a component's name and client to the client that it uses; None means no wrapping."""
    default_storage_class: bool = True
    """Whether a new cluster gets a default storage class."""
    logs: ComponentLogs | None = None
    """The logs of the components, which the first node then shows as static Pods; None means no such Pods."""
    supervisor: Supervisor | None = None
    """Restarts components that fail; None means that a failure ends the cluster, as tests want."""
    fleet: FleetOptions | None = None
    """Properties of the nodes, whose number is then also in `nodes`; None means defaults."""
    cpu_limit: CpuLimit | None = None
    """The limit of the CPU time of the control loops, which clusters can share; None means no limit."""
    paused: bool = False
    """Whether the control loops are paused at first."""


class Components:
    """Runs the components while the block runs, which begins when caches have synced and nodes are ready.

    At the end the nodes stop first, then the scheduler, then the controllers, so that none acts on unfinished work of
    another."""

    def __init__(
        self,
        api: ApiServer,
        clock: Clock,
        ids: Ids,
        options: ComponentOptions,
        handle: Handler | None = None,
        controllers_handle: Handler | None = None,
    ) -> None:
        """Requests go to `handle` if it is given, for example to record them, and to `api` otherwise; those of the
        controllers go to `controllers_handle` if it is given, for example to another server of the same cluster."""
        self._clock = clock
        self._ids = ids
        self._options = options
        self._api = api
        self._server = InProcess(handle or api.handle)
        self._controllers_server = InProcess(controllers_handle) if controllers_handle is not None else self._server
        self._servers = [*dict.fromkeys((self._server, self._controllers_server))]
        self.clients = InProcessClients(self._server, clock)
        self._identity = options.identity or f"{hostname()}_{ids.uid()}"
        self._usage: FleetUsage | None = None
        """The source of metrics.k8s.io; None until it is served."""
        self._tasks = asyncio.TaskGroup()
        self._started = asyncio.Event()
        self._starting: dict[str, Manager] = {}
        """The managers whose informers are still syncing, by the names of their Leases."""
        self._waiting: dict[str, asyncio.Task[None]] = {}
        """Tasks that end with the components, by name: those that wait for the first node of a kind, and the timers of
        the gates."""
        api.resources.metrics.sources.append(self._families)
        self.gates = Gates(clock, options.cpu_limit)
        """They hold back the control loops if a user asks for it, or if they have used their CPU time."""
        if options.paused:
            self.gates.set_mode(Mode.PAUSED)
        self.board = LoopBoard(clock, self.gates, self._component_states, self._scheduler_rows)
        loops = LoopEndpoints(self.board, clock, self._run_gates, options.controllers)
        api.serve_path(LOOPS_PATH, loops.answer)
        api.serve_path(FAULTS_PATH, self._answer_faults)
        self._faults: FaultEndpoints | None = None
        """The faults that users inject; None until they are first asked for."""
        self.image_faults = ImageFaults()
        """Faults of the images of simulated nodes."""
        api.resources.loops = LoopStates(
            self._running_controllers,
            clock,
            self._other_loops,
            self._last_attempt,
            self.gates,
            self._component_states,
        )
        self.controllers = Component("controllers", self._controllers, self._restarts("kube-controller-manager"))
        self.scheduler = Component("scheduler", self._scheduler, self._restarts("kube-scheduler"))
        self.fleet = Component("fleet", self._fleet, self._restarts("nodes"))

    def _restarts(self, name: str) -> Restarts | None:
        """Return the restarts of a component and add them to `/readyz`; None without a supervisor."""
        supervisor = self._options.supervisor
        if supervisor is None:
            return None
        restarts = supervisor.restarts(name)
        self._api.parts.health.add("readyz", name, lambda: restarts.error)
        return restarts

    async def start(self, component: Component[Any]) -> None:
        await component.start(self._tasks, retry=self._started.is_set())

    def event_reader(self) -> Client:
        """Return a client that may read Events and the causes of writes, and nothing else."""
        rules = [rule(READ, "core", "events"), urls("get", CAUSES_PATH)]
        self._api.parts.own_identities.grant(EVENT_READER, rules)
        return self.clients.client(EVENT_READER, agent="setpoint")

    async def __aenter__(self) -> Components:
        for server in self._servers:
            await server.__aenter__()
        await self._tasks.__aenter__()
        if self._options.cpu_limit is not None:
            self._run_gates()
        try:
            await self._start_all()
        except BaseException:
            # This may be a cancellation because a component failed. The task group raises that component's error.
            await self.__aexit__(*sys.exc_info())
            raise
        return self

    async def _start_all(self) -> None:
        fleet = self._options.fleet
        simulates = bool(self._options.nodes or (fleet is not None and (fleet.stages or fleet.adopt_all)))
        if simulates:
            await self._serve_metrics()
        if self._options.default_storage_class:
            self._api.parts.own_identities.grant(ADDONS, (*DEFAULT_STORAGE_RULES, *VIEWER_RULES))
            await ensure_default_storage(self.clients.addons())
            await ensure_viewers_may_ask(self.clients.addons())
        await self.start(self.controllers)
        if self._options.scheduler:
            await self.start(self.scheduler)
        if simulates:
            await self.start(self.fleet)
        else:
            self._when_node_exists("node adoption", is_adopted, self._adopt)
            self._when_node_exists("metrics of real nodes", _is_own_real_node, self._serve_metrics)
        self._started.set()

    def _when_node_exists(
        self, name: str, matches: Callable[[Obj], bool], then: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Do something when the first Node exists that satisfies the predicate."""

        async def run() -> None:
            await wait_for_node(self.clients.fleet(), self._clock, matches)
            self._waiting.pop(name, None)
            await then()

        supervisor = self._options.supervisor
        self._waiting[name] = self._tasks.create_task(run() if supervisor is None else supervisor.run(name, run))

    async def _adopt(self) -> None:
        """Start the fleet of a cluster without simulated nodes, because a user created a Node to be simulated."""
        await self._serve_metrics()
        await self.fleet.start(self._tasks, retry=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._waiting.values():
            task.cancel()
        if self._faults is not None:
            await self._faults.stop()
        try:
            if kind is None:
                for component in (self.fleet, self.scheduler, self.controllers):
                    await component.stop()
        finally:
            try:
                await self._tasks.__aexit__(kind, error, trace)
            finally:
                for server in self._servers:
                    await server.__aexit__(None, None, None)

    async def _serve_metrics(self) -> None:
        if self._usage is not None:
            return
        # Imported here because a cluster without nodes need not load it.
        from setpoint.apiserver.metrics_api import serve_metrics
        from setpoint.cluster.in_process_nodes import FleetUsage
        from setpoint.cluster.kubelet_usage import KubeletUsage

        resources = self._api.resources
        kubelets = KubeletUsage(self._api.parts.nodes, lambda: CacheReader(resources).list("", "nodes"), self._clock)
        self._usage = FleetUsage(self._clock, kubelets)
        await serve_metrics(self._api.resources, self._usage)

    def _families(self) -> Iterable[Family]:
        for component in (self.controllers, self.scheduler):
            elected = component.current
            if elected is not None:
                yield from elected.families()

    def _running_controllers(self) -> list[Controller]:
        elected = self.controllers.current
        return [] if elected is None or elected.manager is None else elected.manager.all_controllers

    def _other_loops(self) -> list[str]:
        elected = self.scheduler.current
        return ["kube-scheduler"] if elected is not None and elected.manager is not None else []

    def _last_attempt(self, key: str) -> SchedulingAttempt | None:
        scheduler = self._running_scheduler()
        return None if scheduler is None else scheduler.last_attempt(key)

    def _running_scheduler(self) -> Scheduler | None:
        elected = self.scheduler.current
        if elected is None or elected.manager is None:
            return None
        from setpoint.scheduler.scheduler import Scheduler  # loaded already: it runs

        return next(each for each in elected.manager.runnables if isinstance(each, Scheduler))

    def _component_states(self) -> Iterable[ComponentState]:
        for name, component in (("kube-controller-manager", self.controllers), ("kube-scheduler", self.scheduler)):
            elected, restarts = component.current, component.restarts
            manager = elected.manager if elected is not None else None
            reading = manager or self._starting.get(name)
            yield ComponentState(
                name,
                [] if manager is None else manager.all_controllers,
                None if elected is None else elected.election,
                elected is not None,
                "" if restarts is None else restarts.error,
                [] if reading is None else reading.informers(),
            )

    def _scheduler_rows(self, times: Times) -> Iterable[tuple[LoopRow, RecentRuns]]:
        scheduler = self._running_scheduler()
        if scheduler is not None:
            from setpoint.scheduler.board import scheduler_row  # few requests need it

            yield scheduler_row(scheduler, self.gates.gate("kube-scheduler"), times), scheduler.recent

    async def _answer_faults(self, ctx: RequestContext) -> Answer:
        if self._faults is None:
            from setpoint.cluster.fault_endpoints import FaultEndpoints  # few clusters have faults

            def client_of(user: UserInfo) -> Client:
                return self.clients.acting_for(user, agent="setpoint-faults")

            self._faults = FaultEndpoints(self._api, self, self._clock, self._ids, client_of)
        return await self._faults.answer(ctx)

    def _run_gates(self) -> None:
        """Run the timers of the gates, unless they run: from the start if CPU time is limited, else from the first time
        on that a user closes one."""
        if "gates" not in self._waiting:
            self._waiting["gates"] = self._tasks.create_task(self.gates.run())

    def _factory(self, component: str) -> ComponentFactory:
        wrap, options = self._options.wrap, self._options
        server = self._controllers_server if component == "controllers" else self._server
        clients = InProcessClients(server, self._clock, None if wrap is None else partial(wrap, component))
        election = ElectionOptions(self._identity) if options.leader_elect else None
        return ComponentFactory(
            clients, self._clock, self._ids, election, started=self._started, gates=self.gates, starting=self._starting
        )

    def _controllers(self) -> AbstractAsyncContextManager[ElectedComponent]:
        return self._factory("controllers").controllers(self._options.controller_options, self._options.controllers)

    def _scheduler(self) -> AbstractAsyncContextManager[ElectedComponent]:
        return self._factory("scheduler").scheduler()

    @asynccontextmanager
    async def _fleet(self) -> AsyncIterator[Manager]:
        # Imported here because a cluster without nodes need not load it.
        from setpoint.cluster.in_process_nodes import connecting_nodes
        from setpoint.node.fleet import node_names

        nodes, fleet = self._options.nodes, self._options.fleet
        if fleet is not None and fleet.stages:
            self._api.parts.own_identities.grant(STAGES, stage_rules(fleet.stages))
        assert self._usage is not None, "metrics are served before the fleet starts"
        serving = connecting_nodes(self._api.parts.nodes, self._usage, self._clock, self._api.handle)
        statics = control_plane_pods(self._options.logs) if self._options.logs is not None else ()
        async with self._factory("fleet").fleet(fleet or nodes, serving, statics, self.image_faults) as manager:
            if self._options.scheduler and self._options.controllers is None:
                await wait_for_ready_nodes(self.clients.fleet(), node_names(nodes))
            yield manager


def _is_own_real_node(node: Obj) -> bool:
    """Return whether a node of this project runs real containers; others may have a metrics server of their own."""
    info = (node.get("status") or {}).get("nodeInfo") or {}
    runtime = info.get("containerRuntimeVersion", "")
    return "+setpoint-" in info.get("kubeletVersion", "") and not runtime.startswith("simulated:")


def components(api: ApiServer, clock: Clock, ids: Ids, nodes: int) -> Components:
    return Components(api, clock, ids, ComponentOptions(nodes=nodes))
