"""The runnables of node lifecycle: the monitor, the queues of the zones, and two controllers that react to changes."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.controllers.controller_group import ControllerGroup
from setpoint.controllers.node_lifecycle.monitor import LEASE_NAMESPACE, LEASES, NodeMonitor
from setpoint.controllers.node_lifecycle.pods_not_ready import mark_not_ready
from setpoint.controllers.node_lifecycle.taints import (
    EVICTING,
    NODES,
    evicting_taint,
    missing_labels,
    scheduling_changes,
    swap_taints,
)
from setpoint.controllers.node_lifecycle.zones import Zones, zone_of
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.pods_by_node import PodsByNode
from setpoint.meta.clock import Clock
from setpoint.meta.errors import NotFound
from setpoint.reconcile import Controller, Informer, Manager, Result, key_of
from setpoint.reconcile.manager import Runnable

Obj = dict[str, Any]

ACCOUNT = "node-controller"
_NODE_WORKERS, _POD_WORKERS = 8, 4


def node_lifecycle_controller(manager: Manager, options: ControllerOptions) -> Runnable:
    client, clock, recorder = manager.client_for(ACCOUNT), manager.clock, manager.recorder(ACCOUNT)
    nodes, pods = manager.informer(NODES), manager.informer(PODS)
    leases = manager.informer(LEASES, namespace=LEASE_NAMESPACE)
    zones = Zones(clock, options)
    queues = ZoneQueues(client, clock, nodes, zones)
    by_node = PodsByNode(pods)
    monitor = NodeMonitor(client, clock, recorder, nodes, leases, by_node, zones, options, queues.add)
    queues.monitor = monitor
    marks = NodeTaints(client, clock, nodes)
    following = Controller("node-lifecycle-controller", marks.reconcile, clock, workers=_NODE_WORKERS)

    async def pod_bound(key: str) -> None:
        pod = pods.get(key)
        if pod is not None and monitor.ready(pod["spec"].get("nodeName") or "") in ("False", "Unknown"):
            await mark_not_ready(client, clock, recorder, [pod])

    binding = Controller("node-lifecycle-pods", pod_bound, clock, workers=_POD_WORKERS)

    def node_changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            following.enqueue(key_of(new))

    def pod_changed(old: Obj | None, new: Obj | None) -> None:
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

    def __init__(self, client: Client, clock: Clock, nodes: Informer) -> None:
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

    def __init__(self, client: Client, clock: Clock, nodes: Informer, zones: Zones) -> None:
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
                if await self._taint(node, wanted, opposite):
                    self._zones.limiter(zone).take()
            waiting.pop(name, None)
        return None

    async def _taint(self, node: Obj, wanted: tuple[str, str], opposite: list[tuple[str, str]]) -> bool:
        try:
            return await swap_taints(self._client, self._clock, node, (wanted,), opposite)
        except NotFound:
            return False
