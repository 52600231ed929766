"""Many simulated nodes behind one agent: one watch, one queue and one heap of timers for all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.node.dependencies import InformerLister, PodWorkerDependencies
from setpoint.node.heartbeat import Heartbeat
from setpoint.node.mirror_pods import is_mirror
from setpoint.node.network import FleetNetwork, ServiceDirectory
from setpoint.node.node_state import NODE_NETWORK, POD_NETWORK, AddressPool, NodeState
from setpoint.node.options import FleetOptions
from setpoint.node.pod_sync import PodSync
from setpoint.node.registration import CopiedNodeReporter, allocatable_outdated
from setpoint.node.runtime.simulated import SimulatedRuntime
from setpoint.node.simulation_annotations import PARTITIONED, RUNNING, STATE, STATES, STOPPED, is_adopted
from setpoint.node.stages import add_stages
from setpoint.node.static_pods import StaticPod, StaticPods
from setpoint.node.volumes import TokenManager, mount_error, node_volumes_owner
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, PersistentVolumeClaim, Pod
    from setpoint.node.pod_worker import PodWorker

log = logging.getLogger("setpoint.node")

_PODS, _NODES, _CLAIMS = builtin("pods"), builtin("nodes"), builtin("persistentvolumeclaims")
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
        adopt_all: bool = False,
    ) -> None:
        """Create the controller. `changed(node, what)` is called when a node is `adopted`, `removed`, `stopped`,
        `partitioned` or `running` again. With `adopt_all`, every Node is simulated; one that is not ready stays
        away, as if it were partitioned."""
        self._nodes = nodes
        self._informer = informer
        self._heartbeat = heartbeat
        self._hosts = hosts
        self._pods = pods
        self._events = events
        self._changed = changed
        self._adopt_all = adopt_all
        self._away: set[str] = set()
        """Names of nodes that were not ready when they were adopted."""
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
                self._away.discard(name)
                self._heartbeat.forget(name)
                self._hosts.release(name)
                self._changed(node, "removed")
            return
        if node is None:
            if not (self._adopt_all or is_adopted(new)):
                return
            node = self._nodes[name] = NodeState(name, self._hosts.allocate(name, _internal_ip(new)), self._pods)
            node.adopted = True
            if self._adopt_all and _is_away(new):
                self._away.add(name)
                node.state = self._desired_state(new)
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
        if node.state != self._desired_state(new):
            self.controller.enqueue(name)

    async def _sync(self, name: str) -> None:
        node, observed = self._nodes.get(name), self._informer.get(name)
        if node is None or observed is None:
            return
        desired, before = self._desired_state(observed), node.state
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

    def _desired_state(self, node: Node) -> str:
        """Return the state that the annotation asks for; an unknown value means running, and so does no annotation,
        except for a node that is away."""
        if node["metadata"]["name"] in self._away and STATE not in (node["metadata"].get("annotations") or {}):
            return PARTITIONED
        state = _state_annotation(node)
        return state if state in STATES else RUNNING


def _is_away(node: Node) -> bool:
    """Return whether the Node's status says that it is not ready."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] != "True" for each in conditions)


def _state_annotation(node: Node) -> str:
    return str((node["metadata"].get("annotations") or {}).get(STATE, RUNNING))


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
    lister = InformerLister(manager)
    runtime.mount_error = lambda pod: mount_error(pod, lister)
    dependencies = PodWorkerDependencies(runtime, recorder, lister, nodes)
    pods = manager.informer(_PODS, field_selector="spec.nodeName!=")
    pods.add_index(_BY_NODE, lambda pod: (pod["spec"].get("nodeName", ""),))
    heartbeat = Heartbeat(
        nodes,
        client_for,
        manager.clock,
        recorder,
        template=options.template,
        versions=(version, runtime_version),
        reporter=CopiedNodeReporter(manager.clock) if options.adopt_all else None,
    )
    directory = ServiceDirectory(manager, pods)
    network = FleetNetwork(directory, runtime, nodes, manager.ids, lambda node: pods.by_index(_BY_NODE, node))
    runtime.connect(network)
    stages = add_stages(manager, stage_client, options.stages, recorder)
    fleet = Fleet(
        dependencies,
        runtime,
        pods,
        manager.informer(_CLAIMS),
        client_for,
        manager.clock,
        heartbeat,
        stages.handles_pod,
        network,
    )
    control = FleetNodeController(
        nodes,
        manager.informer(_NODES),
        heartbeat,
        manager.clock,
        hosts,
        shared,
        recorder,
        fleet.node_changed,
        options.adopt_all,
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
        runtime: SimulatedRuntime,
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
        self.runtime = runtime
        """The runtime, which gives access to logs, exec and usage."""
        self.heartbeat = heartbeat
        self.tokens = TokenManager(client_for, clock)
        self.network = network
        self.static: StaticPods | None = None
        self._handled_by_stages = handled_by_stages
        self._sync = PodSync(dependencies, pods, client_for, clock, self._prepare)

    @property
    def controller(self) -> Controller:
        """The controller that steps the Pod workers."""
        return self._sync.controller

    @property
    def registered(self) -> asyncio.Event:
        """An event that is set when all nodes that the fleet began with are registered and ready."""
        return self.heartbeat.registered

    # -- for the kubelet's API -----------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        return self._dependencies.nodes

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        return self._sync.worker(namespace, name)

    def workers(self) -> Iterable[PodWorker]:
        return self._sync.workers.values()

    def workers_on(self, node: str) -> list[PodWorker]:
        found = (self._sync.workers.get(pod["metadata"]["uid"]) for pod in self._pods.by_index(_BY_NODE, node))
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
            self._sync.remove_worker(uid, node)
        elif uid not in self._sync.workers:
            self._start_worker(new, node)
        else:
            self._sync.update_worker(self._sync.workers[uid], new)

    def _claim_changed(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        if new is None and old is not None:
            self.runtime.remove_volumes(old["metadata"]["uid"])

    def _start_worker(self, pod: Pod, node: NodeState) -> None:
        if not self._handled_by_stages(pod):
            self._sync.start_worker(pod, node)

    def node_changed(self, node: NodeState, what: str) -> None:
        now = self._sync.now()
        if what == "removed":
            self.runtime.remove_volumes(node_volumes_owner(node.name))
        for pod in self._pods.by_index(_BY_NODE, node.name):
            uid = pod["metadata"]["uid"]
            worker = self._sync.workers.get(uid)
            if is_mirror(pod):
                continue
            if what == "removed":
                self._sync.remove_worker(uid, node)
            elif worker is None:
                self._start_worker(pod, node)
            elif what == STOPPED:
                worker.power_lost(now)
            elif what == RUNNING:
                worker.update(pod)
                self.controller.enqueue(key_of(pod))

    async def _prepare(self, worker: PodWorker) -> None:
        if not worker.initialized and not worker.terminating:
            await self.tokens.ensure_tokens(worker)
            await self.network.prepare(worker.spec)
