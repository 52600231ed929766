"""Many simulated nodes behind one agent: one watch, one queue and one heap of timers for all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict, NotFound
from setpoint.node.dependencies import InformerLister, PodWorkerDependencies
from setpoint.node.heartbeat import Heartbeat
from setpoint.node.network import FleetNetwork, ServiceDirectory
from setpoint.node.node_state import NODE_NETWORK, POD_NETWORK, AddressPool, NodeState
from setpoint.node.options import FleetOptions
from setpoint.node.pod_status import status_changes
from setpoint.node.pod_worker import PodWorker
from setpoint.node.registration import allocatable_outdated
from setpoint.node.runtime.simulated import SimulatedRuntime
from setpoint.node.simulation_annotations import RUNNING, STATE, STATES, STOPPED, is_adopted
from setpoint.node.stages import add_stages
from setpoint.node.static_pods import StaticPod, StaticPods, is_mirror
from setpoint.node.volumes import TokenManager, node_volumes_owner
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, PersistentVolumeClaim, Pod

log = logging.getLogger("setpoint.node")

_PODS, _NODES, _CLAIMS = builtin("pods"), builtin("nodes"), builtin("persistentvolumeclaims")
_WORKERS = 64
_MAX_STEPS_PER_SYNC = 100
_MAX_SLEW = 1.0
"""Seconds by which the wall clock may fall behind without having been set back: it is adjusted continuously."""
_BY_NODE = "node"


class FleetNodeController:
    """Follows the Node objects of a fleet: adopts, stops, partitions, resumes and removes simulated nodes."""

    def __init__(
        self,
        nodes: dict[str, NodeState],
        informer: Informer[Node],
        heartbeat: Heartbeat,
        clock: Clock,
        hosts: AddressPool,
        pods: AddressPool,
        events: EventRecorder,
        changed: Callable[[NodeState, str], None],
    ) -> None:
        """Create the controller. `changed(node, what)` is called when a node is `adopted`, `removed`, `stopped`,
        `partitioned` or `running` again."""
        self._nodes = nodes
        self._informer = informer
        self._heartbeat = heartbeat
        self._hosts = hosts
        self._pods = pods
        self._events = events
        self._changed = changed
        self.controller = Controller("node-state", self._sync, clock, workers=4)

    def watch(self) -> None:
        self._informer.add_handler(self._node_changed)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        node = self._nodes.get(name)
        if new is None:
            if node is not None and node.object is not None:
                # A node whose Node object was deleted has left the cluster; it returns when a client creates a Node for
                # it.
                del self._nodes[name]
                self._heartbeat.forget(name)
                self._hosts.release(name)
                self._changed(node, "removed")
            return
        if node is None:
            if not is_adopted(new):
                return
            node = self._nodes[name] = NodeState(name, self._hosts.allocate(name, _internal_ip(new)), self._pods)
            node.adopted = True
            node.object = new
            self._changed(node, "adopted")
            self.controller.enqueue(name)
            return
        if _state_annotation(new) not in STATES and (old is None or _state_annotation(old) != _state_annotation(new)):
            message = f"annotation {STATE}: {_state_annotation(new)!r} is not one of {', '.join(STATES)}"
            self._events.warning(new, "InvalidSimulatedState", message, host=name)
        if node.object is None or _revision(node.object) < _revision(new):
            node.object = new
            node.status_changed |= allocatable_outdated(new.get("status") or {})
        if node.state != _desired_state(new):
            self.controller.enqueue(name)

    async def _sync(self, name: str) -> None:
        node, observed = self._nodes.get(name), self._informer.get(name)
        if node is None or observed is None:
            return
        desired, before = _desired_state(observed), node.state
        if desired != before:
            node.state = desired
            log.info("node %s is %s", name, desired)
            if desired == RUNNING and before == STOPPED:
                node.boot_count += 1
                node.status_changed = True
            self._changed(node, desired)
            if desired == RUNNING:
                await self._heartbeat.adopt(node)
        elif node.adopted and node.state == RUNNING:
            await self._heartbeat.adopt(node)


def _state_annotation(node: Node) -> str:
    return str((node["metadata"].get("annotations") or {}).get(STATE, RUNNING))


def _desired_state(node: Node) -> str:
    """Return the state that the annotation asks for; an unknown value means running."""
    state = _state_annotation(node)
    return state if state in STATES else RUNNING


def _revision(obj: Mapping[str, Any]) -> int:
    return int(obj["metadata"]["resourceVersion"])


def _internal_ip(node: Node) -> str:
    """Return the InternalIP in the Node's status; empty if there is none."""
    for each in (node.get("status") or {}).get("addresses") or ():
        if each.get("type") == "InternalIP":
            return str(each["address"])
    return ""


def node_names(count: int) -> list[str]:
    return [f"node-{number}" for number in range(1, count + 1)]


def add_fleet(
    manager: Manager,
    options: FleetOptions | int,
    runtime: SimulatedRuntime,
    *,
    client_for: Callable[[str], Client],
    stage_client: Client,
    version: str,
    runtime_version: str,
    static_pods: Sequence[StaticPod] | None = (),
) -> Fleet:
    """Add a fleet to the manager.

    `client_for(node)` returns a client with the identity of the node; the manager's client reads the Pods of all nodes,
    and `stage_client` writes what stages ask for. The first node runs the static Pods; None means that they are set
    later."""
    if isinstance(options, int):
        options = FleetOptions(options)
    hosts, shared = AddressPool(NODE_NETWORK), AddressPool(POD_NETWORK)
    nodes = {name: NodeState(name, hosts.allocate(name), shared) for name in node_names(options.nodes)}
    recorder = manager.recorder("kubelet")
    dependencies = PodWorkerDependencies(runtime, recorder, InformerLister(manager), nodes)
    pods = manager.informer(_PODS, field_selector="spec.nodeName!=")
    pods.add_index(_BY_NODE, lambda pod: (pod["spec"].get("nodeName", ""),))
    heartbeat = Heartbeat(
        nodes, client_for, manager.clock, recorder, template=options.template, versions=(version, runtime_version)
    )
    directory = ServiceDirectory(manager)
    network = FleetNetwork(directory, runtime, nodes, manager.ids, lambda node: pods.by_index(_BY_NODE, node))
    runtime.network = network
    stages = add_stages(manager, stage_client, options.stages, recorder)
    fleet = Fleet(
        dependencies, pods, manager.informer(_CLAIMS), client_for, manager.clock, heartbeat, stages.handles_pod, network
    )
    control = FleetNodeController(
        nodes, manager.informer(_NODES), heartbeat, manager.clock, hosts, shared, recorder, fleet.node_changed
    )
    control.watch()
    fleet.watch()
    if (static_pods or static_pods is None) and nodes:
        first = next(iter(nodes.values()))
        fleet.static = StaticPods(first.name, first.address, static_pods or (), pods, client_for, manager.clock)
        fleet.static.watch()
        manager.add(fleet.static.controller)
    for part in (directory, heartbeat, control.controller, fleet.controller):
        manager.add(part)
    return fleet


class Fleet:
    """The agent of all simulated nodes: runs a worker for each of their Pods and reports the Pods' status."""

    def __init__(
        self,
        dependencies: PodWorkerDependencies,
        pods: Informer[Pod],
        claims: Informer[PersistentVolumeClaim],
        client_for: Callable[[str], Client],
        clock: Clock,
        heartbeat: Heartbeat,
        handled_by_stages: Callable[[Pod], bool],
        network: FleetNetwork,
    ) -> None:
        """Create the fleet. `handled_by_stages(pod)` returns whether stages and not the agent determine the Pod's
        status."""
        self._dependencies = dependencies
        self._pods = pods
        self._claims = claims
        self._client_for = client_for
        self._clock = clock
        self.heartbeat = heartbeat
        self.tokens = TokenManager(client_for, clock)
        self.network = network
        self.static: StaticPods | None = None
        self._handled_by_stages = handled_by_stages
        self._workers: dict[str, PodWorker] = {}
        """Pod workers by the uid of the Pod."""
        self._latest, self._latest_at = clock.now().timestamp(), clock.monotonic()
        """The last result of `_now`, and the time of the monotonic clock at that moment."""
        self.controller = Controller("node", self.sync, clock, workers=_WORKERS)
        dependencies.runtime.on_change = self._enqueue_pod

    @property
    def registered(self) -> asyncio.Event:
        """An event that is set when all nodes that the fleet began with are registered and ready."""
        return self.heartbeat.registered

    # -- for the kubelet's API -----------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        return self._dependencies.nodes

    @property
    def runtime(self) -> SimulatedRuntime:
        """Return the runtime, which gives access to logs, exec and usage."""
        return self._dependencies.runtime

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        pod = self._pods.get(f"{namespace}/{name}")
        return self._workers.get(pod["metadata"]["uid"]) if pod is not None else None

    def workers(self) -> Iterable[PodWorker]:
        return self._workers.values()

    def workers_on(self, node: str) -> list[PodWorker]:
        found = (self._workers.get(pod["metadata"]["uid"]) for pod in self._pods.by_index(_BY_NODE, node))
        return [worker for worker in found if worker is not None]

    # -- informer handlers ---------------------------------------------------------------------------------------------

    def watch(self) -> None:
        self._pods.add_handler(self._pod_changed)
        self._claims.add_handler(self._claim_changed)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old or {}
        node = self._dependencies.nodes.get(pod["spec"].get("nodeName") or "")
        if node is None or is_mirror(pod):
            return
        uid = pod["metadata"]["uid"]
        if new is None:
            self._remove_worker(uid, node)
        elif uid not in self._workers:
            self._start_worker(new, node)
        elif self._workers[uid].update(new):
            self.controller.enqueue(key_of(new))

    def _claim_changed(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        if new is None and old is not None:
            self._dependencies.runtime.remove_volumes(old["metadata"]["uid"])

    def _start_worker(self, pod: Pod, node: NodeState) -> None:
        if not self._handled_by_stages(pod):
            self._workers[pod["metadata"]["uid"]] = PodWorker(pod, node, self._dependencies, self._now())
            self.controller.enqueue(key_of(pod))

    def _remove_worker(self, uid: str, node: NodeState) -> None:
        worker = self._workers.pop(uid, None)
        if worker is not None:
            worker.release_resources()
        self._dependencies.runtime.remove_pod(uid)
        node.release_addresses(uid)

    def node_changed(self, node: NodeState, what: str) -> None:
        now = self._now()
        if what == "removed":
            self._dependencies.runtime.remove_volumes(node_volumes_owner(node.name))
        for pod in self._pods.by_index(_BY_NODE, node.name):
            uid = pod["metadata"]["uid"]
            worker = self._workers.get(uid)
            if is_mirror(pod):
                continue
            if what == "removed":
                self._remove_worker(uid, node)
            elif worker is None:
                self._start_worker(pod, node)
            elif what == STOPPED:
                worker.power_lost(now)
            elif what == RUNNING:
                worker.update(pod)
                self.controller.enqueue(key_of(pod))

    def _enqueue_pod(self, uid: str) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            self.controller.enqueue(key_of(worker.pod))

    # -- reconcile -----------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        """Return the time for Pods: that of the wall clock, but it never decreases. If the wall clock is set back,
        probes, restarts and grace periods would otherwise wait for that much longer."""
        wall, at = self._clock.now().timestamp(), self._clock.monotonic()
        steady = self._latest + at - self._latest_at
        self._latest, self._latest_at = (wall if steady - wall < _MAX_SLEW else steady), at
        return self._latest

    async def sync(self, key: str) -> Result | None:
        pod = self._pods.get(key)
        worker = self._workers.get(pod["metadata"]["uid"]) if pod is not None else None
        if worker is None:
            return None
        if not worker.initialized and not worker.terminating:
            await self.tokens.ensure_tokens(worker)
            await self.network.prepare(worker.spec)
        for _ in range(_MAX_STEPS_PER_SYNC):
            if worker.node.state != RUNNING:
                return None  # the node is stopped or partitioned: it neither reports nor receives anything
            again = worker.step(self._now())
            try:
                await self._report(worker)
                if worker.finished and worker.deleting:
                    await self._remove(worker)
                    return None
            except (NotFound, Conflict):
                return None  # the Pod was deleted, or replaced by another: the informer reports it
            if not again:
                break
        if worker.next_step_at is None:
            return None
        return Result(requeue_after=max(0.001, worker.next_step_at - self._now()))

    async def _report(self, worker: PodWorker) -> None:
        new = status_changes(worker.reported, worker.status(self._now()))
        if not new:
            worker.status_written(worker.reported, worker.reported_version)
            return
        meta, version = worker.pod["metadata"], 0
        observed_versions: list[int] = []
        worker.observed_versions = observed_versions
        try:
            written = await self._client_for(worker.node.name).patch(
                _PODS,
                meta["name"],
                {"metadata": {"uid": meta["uid"]}, "status": new},
                meta["namespace"],
                kind="strategic",
                subresource="status",
            )
            version = int(written["metadata"]["resourceVersion"])
            worker.status_written(written.get("status") or {}, version)
        finally:
            worker.observed_versions = None
            if any(each != version for each in observed_versions):
                # Another client changed the Pod during the write.
                self.controller.enqueue(key_of(worker.pod))

    async def _remove(self, worker: PodWorker) -> None:
        meta = worker.pod["metadata"]
        with suppress(NotFound):
            await self._client_for(worker.node.name).delete(
                _PODS, meta["name"], meta["namespace"], grace_period=0, uid=meta["uid"]
            )
