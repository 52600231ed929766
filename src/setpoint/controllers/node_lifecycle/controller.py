"""Checks every node periodically: its last heartbeat, its conditions, the readiness of its Pods, and its taints.

The controller runs the monitor, the queues of the zones, and two control loops that react to changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.controllers.node_lifecycle.health import Health, observe, unknown_conditions
from setpoint.controllers.node_lifecycle.taints import (
    EVICTING,
    NODES,
    Change,
    Zones,
    evicting_taint,
    ids_of,
    missing_labels,
    scheduling_changes,
    swap_taints,
    taints_of,
    zone_of,
)
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.pods import PodsByNode, is_ready
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import condition_of
from setpoint.meta.errors import ApiError, Conflict, NotFound
from setpoint.meta.times import format_time
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of
from setpoint.reconcile.gate import Checkpoint
from setpoint.reconcile.manager import ControllerGroup, Runnable
from setpoint.reconcile.run import Run, act_on, because, current_run, periodic_run, process_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Lease, Node, Pod


log = logging.getLogger("setpoint.controllers")


LEASES = builtin("leases", "coordination.k8s.io")
LEASE_NAMESPACE = "kube-node-lease"
_EXCLUDED = "node.kubernetes.io/exclude-disruption"
_MAX_CONCURRENT = 8
_ATTEMPTS, _PAUSE = 5, 0.02
_YIELD_EVERY = 500
"""The number of nodes after which the loop yields to other tasks."""
_ACCOUNT, _NAME = "node-controller", "node-lifecycle-controller"
_NODE_WORKERS, _POD_WORKERS = 8, 4


async def mark_not_ready(client: Client, clock: Clock, recorder: EventRecorder, pods: Iterable[Pod]) -> None:
    """Mark the Pods of an unreachable node as not ready, so that they are removed from endpoints."""
    for pod in pods:
        if not is_ready(pod):
            continue
        meta = pod["metadata"]
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": format_time(clock.now())}
        change = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [ready]}}
        with suppress(NotFound):
            await client.patch(PODS, meta["name"], change, meta["namespace"], kind="strategic", subresource="status")
            recorder.warning(pod, "NodeNotReady", "Node is not ready")


# -- monitor ----------------------------------------------------------------------------------------------------------


class StaleLeases(Exception):
    """The cache of Leases is stale: a missing renewal proves nothing."""


class NodeMonitor:
    """Checks every node periodically and updates conditions, Pods and taints."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        recorder: EventRecorder,
        nodes: Informer[Node],
        leases: Informer[Lease],
        pods: PodsByNode,
        zones: Zones,
        options: ControllerOptions,
        taint: Callable[[str, str], None],
        checkpoint: Checkpoint,
    ) -> None:
        """Create the monitor. `taint(zone, node)` adds a node to the queue of its zone; an empty name only wakes the
        queue."""
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._nodes = nodes
        self._leases = leases
        self._pods = pods
        self._zones = zones
        self._options = options
        self._taint = taint
        self._checkpoint = checkpoint
        self.health: dict[str, Health] = {}
        self._known: dict[str, str] = {}
        """Uids of the nodes at the previous check, by name."""
        self._unmarked: set[str] = set()
        """Nodes some of whose Pods may still be marked as ready."""
        self._leases_until = 0
        """The revision that the cache of Leases must have reached."""
        self._process = ""
        self._runs = 0

    async def run(self) -> None:
        current_run.set(periodic_run(_NAME, self._clock.now(), self._timer))
        self._process = process_of(_NAME, self._clock.now())
        with self._checkpoint.guarded():
            while True:
                await self._checkpoint.wait()
                try:
                    await self.check_nodes()
                except StaleLeases:
                    log.info("node lifecycle: waiting until the cache of Leases has caught up")
                except (ApiError, Unreachable) as error:
                    log.warning("node lifecycle: %s", error)
                except Exception:
                    log.exception("node lifecycle: the check of the nodes failed; retrying in the next period")
                await self._clock.sleep(self._options.node_monitor_period)

    @property
    def _timer(self) -> str:
        return f"timer:{self._options.node_monitor_period:g}"

    def _run_for(self, node: Node) -> Run:
        """Return a run for one node. It is triggered by the Node as it is cached, or by the absence of heartbeats after
        the last one."""
        self._runs += 1
        name = node["metadata"]["name"]
        health, last = self.health.get(name), self._leases.get(f"{LEASE_NAMESPACE}/{name}")
        if health is None or self.ready(name) == "True" or last is None:
            trigger, besides = node["metadata"]["resourceVersion"], self._timer
        else:
            silent = self._clock.monotonic() - health.last_heartbeat
            trigger, besides = last["metadata"]["resourceVersion"], f"silent:{silent:.0f}"
        return Run(_NAME, self._process, self._runs, name, (int(trigger),), besides=besides)

    def ready(self, name: str) -> str:
        """Return the status of the node's Ready condition as last seen or written; empty if there is none."""
        health = self.health.get(name)
        return str((health.ready or {}).get("status") or "") if health is not None else ""

    async def check_nodes(self) -> None:
        if int(self._leases.resource_version or 0) < self._leases_until:
            raise StaleLeases
        nodes = sorted(self._nodes.items.values(), key=lambda node: str(node["metadata"]["name"]))
        self._record_membership(nodes)
        before: dict[str, str] = {}
        overdue: list[Node] = []
        for count, node in enumerate(nodes):
            if count and count % _YIELD_EVERY == 0:
                await self._clock.sleep(0)
            if self._is_overdue(node):
                overdue.append(node)
            name = node["metadata"]["name"]
            before[name] = self.ready(name) or "Unknown"
        failed = await self._all(overdue, self._mark_unknown)
        ready_by_zone: dict[str, list[bool]] = {}
        active = []
        for count, node in enumerate(nodes):
            if count and count % _YIELD_EVERY == 0:
                await self._clock.sleep(0)
            name = node["metadata"]["name"]
            if name in failed:
                continue
            if _EXCLUDED not in (node["metadata"].get("labels") or {}):
                ready_by_zone.setdefault(self.health[name].zone, []).append(self.ready(name) == "True")
            if self._needs_attention(node, before[name]):
                active.append(node)

        async def handle(node: Node) -> None:
            await self._handle(node, before[node["metadata"]["name"]])

        await self._all(active, handle)
        await self._assess_zones(ready_by_zone, nodes)

    async def _all(self, nodes: list[Node], do: Callable[[Node], Any]) -> set[str]:
        """Run `do` for the nodes with limited concurrency. Return the names of those for which it failed."""
        limit, failed = asyncio.Semaphore(_MAX_CONCURRENT), set()

        async def one(node: Node) -> None:
            current_run.set(self._run_for(node))
            async with limit:
                try:
                    await do(node)
                except (ApiError, Unreachable) as error:
                    log.warning("node lifecycle: node %s: %s", node["metadata"]["name"], error)
                    failed.add(node["metadata"]["name"])

        outcomes = await asyncio.gather(*(one(node) for node in nodes), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return failed

    # -- added and removed nodes --------------------------------------------------------------------------------------

    def _record_membership(self, nodes: list[Node]) -> None:
        current = {node["metadata"]["name"]: node["metadata"]["uid"] for node in nodes}
        for name, uid in current.items():
            if name not in self._known:
                self._record(name, uid, "RegisteredNode", f"Registered Node {name} in Controller")
                self._unmarked.add(name)
        for name, uid in self._known.items():
            if name not in current:
                self._record(name, uid, "RemovingNode", f"Removing Node {name} from Controller")
                self._unmarked.discard(name)
                self.health.pop(name, None)
        self._known = current

    def _record(self, name: str, uid: str, reason: str, message: str) -> None:
        about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": uid}}
        self._recorder.normal(about, reason, f"Node {name} event: {message}")

    # -- health -------------------------------------------------------------------------------------------------------

    def _is_overdue(self, node: Node) -> bool:
        name = node["metadata"]["name"]
        lease = self._leases.get(f"{LEASE_NAMESPACE}/{name}")
        at = self._clock.monotonic()
        health = self.health.get(name)
        # In a large cluster, most nodes have not changed since the last check.
        if (
            health is None
            or health.observed is None
            or health.observed[0] is not node
            or health.observed[1] is not lease
        ):
            health = self.health[name] = observe(health, node, lease, at, self._clock.now())
        options = self._options
        grace = options.node_startup_grace_period if health.ready is None else options.node_monitor_grace_period
        return at > health.last_heartbeat + grace and self.ready(name) != "Unknown"

    async def _mark_unknown(self, node: Node) -> None:
        name, run = node["metadata"]["name"], current_run.get()
        await self._check_lease(name)
        if run is not None:
            silent = self._clock.monotonic() - self.health[name].last_heartbeat
            run.note(f"silent:{silent:.0f}", f"{name} has sent no heartbeat for {silent:.0f} s")
        for attempt in range(_ATTEMPTS):
            conditions = unknown_conditions(node, self._clock.now())
            if conditions is None:
                return
            changed = {**node, "status": {**(node.get("status") or {}), "conditions": conditions}}
            try:
                written = await self._client.update(changed, subresource="status")
                self.health[name].ready = condition_of(written, "Ready")
                self.health[name].observed = None
                return
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
            await self._clock.sleep(_PAUSE)
            node = cast("Node", await self._client.get(NODES, name))
            if not self._is_overdue(node):
                return

    async def _check_lease(self, name: str) -> None:
        """Read the Lease from the server before a node is declared unhealthy, because the cache may have stalled."""
        try:
            live = await self._client.get(LEASES, name, LEASE_NAMESPACE)
        except NotFound:
            return
        cached = self._leases.get(f"{LEASE_NAMESPACE}/{name}")
        version = live["metadata"]["resourceVersion"]
        if cached is None or cached["metadata"]["resourceVersion"] != version:
            self._leases_until = int(version)
            raise StaleLeases

    # -- taints and Pods ----------------------------------------------------------------------------------------------

    def _needs_attention(self, node: Node, before: str) -> bool:
        """Return whether anything must be done for the node; most are healthy and were before."""
        name = node["metadata"]["name"]
        now, taints = self.ready(name), node["spec"].get("taints")
        if now == before == "True" and (not taints or ids_of(taints).isdisjoint(EVICTING)):
            self._unmarked.discard(name)
            return False
        return bool(now)

    async def _handle(self, node: Node, before: str) -> None:
        name, ready = node["metadata"]["name"], self.ready(node["metadata"]["name"])
        await self._apply_taint(node, ready)
        if ready != "True" and before == "True":
            about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": node["metadata"]["uid"]}}
            self._recorder.normal(about, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
            self._unmarked.add(name)
        if ready == "Unknown" and name in self._unmarked:
            because(f"{name} is not ready, so its Pods are not")
            await mark_not_ready(self._client, self._clock, self._recorder, self._pods.on(name))
        self._unmarked.discard(name)

    async def _apply_taint(self, node: Node, ready: str) -> None:
        there, wanted = ids_of(taints_of(node)), evicting_taint(ready)
        if wanted is None:
            await swap_taints(self._client, self._clock, node, (), EVICTING)
        elif not there.isdisjoint(each for each in EVICTING if each != wanted):
            # It is tainted already: only the reason has changed.
            opposite = [each for each in EVICTING if each != wanted]
            await swap_taints(self._client, self._clock, node, (wanted,), opposite)
        elif wanted not in there:
            self._taint(zone_of(node), node["metadata"]["name"])

    async def _assess_zones(self, ready_by_zone: dict[str, list[bool]], nodes: list[Node]) -> None:
        change = self._zones.assess(ready_by_zone)
        if change is Change.ALL_DOWN:
            log.warning("node lifecycle: no node is ready; evictions are suspended until one is")

            async def untaint(node: Node) -> None:
                await swap_taints(self._client, self._clock, node, (), EVICTING)

            await self._all([node for node in nodes if not ids_of(taints_of(node)).isdisjoint(EVICTING)], untaint)
        elif change is Change.UP_AGAIN:
            log.warning("node lifecycle: some nodes are ready again; evictions resume")
            now = self._clock.monotonic()
            for health in self.health.values():
                health.last_heartbeat = now
        for zone in ready_by_zone:
            self._taint(zone, "")


def node_lifecycle_controller(manager: Manager, options: ControllerOptions) -> Runnable:
    client, clock, recorder = manager.client_for(_ACCOUNT), manager.clock, manager.recorder(_ACCOUNT)
    nodes, pods = manager.informer(NODES), manager.informer(PODS)
    leases = manager.informer(LEASES, namespace=LEASE_NAMESPACE)
    zones = Zones(clock, options)
    queues = ZoneQueues(client, clock, nodes, zones)
    by_node = PodsByNode(pods)
    checkpoint = Checkpoint(manager.gates, _NAME)
    monitor = NodeMonitor(client, clock, recorder, nodes, leases, by_node, zones, options, queues.add, checkpoint)
    queues.monitor = monitor
    marks = NodeTaints(client, clock, nodes)
    following = Controller(_NAME, marks.reconcile, clock, workers=_NODE_WORKERS)

    async def pod_bound(key: str) -> None:
        pod = pods.get(key)
        if pod is not None and monitor.ready(pod["spec"].get("nodeName") or "") in ("False", "Unknown"):
            await mark_not_ready(client, clock, recorder, [pod])

    binding = Controller("node-lifecycle-pods", pod_bound, clock, workers=_POD_WORKERS)

    def node_changed(old: Node | None, new: Node | None) -> None:
        if new is not None:
            following.enqueue(key_of(new))

    def pod_changed(old: Pod | None, new: Pod | None) -> None:
        node = new["spec"].get("nodeName") if new is not None else None
        if new is None or not node or (old is not None and old["spec"].get("nodeName") == node):
            return
        if monitor.ready(node) in ("False", "Unknown"):
            binding.enqueue(key_of(new))

    nodes.add_handler(node_changed)
    pods.add_handler(pod_changed)
    return ControllerGroup(following, binding, queues.controller, monitor)


class NodeTaints:
    """Keeps the NoSchedule taints of a node in line with its conditions."""

    def __init__(self, client: Client, clock: Clock, nodes: Informer[Node]) -> None:
        self._client = client
        self._clock = clock
        self._nodes = nodes

    async def reconcile(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None:
            return
        try:
            add, remove = scheduling_changes(node)
            if add or remove:
                await swap_taints(self._client, self._clock, node, add, remove)
            labels = missing_labels(node)
            if labels:
                meta = {"labels": labels, "uid": node["metadata"]["uid"]}
                await self._client.patch(NODES, name, {"metadata": meta})
        except NotFound:
            return


class ZoneQueues:
    """Rate-limited queues, one per zone, of nodes to be tainted with NoExecute. The next check of the nodes finds
    queued nodes again, so nothing is lost on a restart."""

    monitor: NodeMonitor

    def __init__(self, client: Client, clock: Clock, nodes: Informer[Node], zones: Zones) -> None:
        self._client = client
        self._clock = clock
        self._nodes = nodes
        self._zones = zones
        self._waiting: dict[str, dict[str, None]] = {}
        self.controller = Controller("node-lifecycle-zones", self._reconcile, clock)

    def add(self, zone: str, node: str) -> None:
        if node:
            self._waiting.setdefault(zone, {})[node] = None
        elif self._waiting.get(zone):
            self.controller.enqueue(zone)

    async def _reconcile(self, zone: str) -> Result | None:
        waiting = self._waiting.get(zone) or {}
        while waiting:
            wait = self._zones.limiter(zone).wait()
            if wait is None:
                return None
            if wait > 0:
                return Result(requeue_after=wait)
            name = next(iter(waiting))
            node, wanted = self._nodes.get(name), evicting_taint(self.monitor.ready(name))
            if node is not None and wanted is not None and zone_of(node) == zone:
                opposite = [each for each in EVICTING if each != wanted]
                act_on(node, f"{name} is not ready")
                if await self._taint(node, wanted, opposite):
                    self._zones.limiter(zone).take()
            waiting.pop(name, None)
        return None

    async def _taint(self, node: Node, wanted: tuple[str, str], opposite: list[tuple[str, str]]) -> bool:
        try:
            return await swap_taints(self._client, self._clock, node, (wanted,), opposite)
        except NotFound:
            return False
