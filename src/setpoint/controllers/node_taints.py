"""Nodes that are not well, or cordoned, carry taints that keep new Pods away; nodes that are, do not."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.reconcile import Controller, Informer, Manager, key_of

Obj = dict[str, Any]

NODES = builtin("nodes")
_EFFECT = "NoSchedule"
_PREFIX = "node.kubernetes.io/"
_BY_CONDITION = {
    ("Ready", "False"): _PREFIX + "not-ready",
    ("Ready", "Unknown"): _PREFIX + "unreachable",
    ("MemoryPressure", "True"): _PREFIX + "memory-pressure",
    ("DiskPressure", "True"): _PREFIX + "disk-pressure",
    ("NetworkUnavailable", "True"): _PREFIX + "network-unavailable",
    ("PIDPressure", "True"): _PREFIX + "pid-pressure",
}
_UNSCHEDULABLE = _PREFIX + "unschedulable"
_OURS = {*_BY_CONDITION.values(), _UNSCHEDULABLE}
_WORKERS = 8


def node_taint_controller(manager: Manager, _: ControllerOptions) -> Controller:
    nodes = manager.informer(NODES)
    taints = NodeTaints(manager.client_for("node-controller"), nodes)
    controller = Controller("node-taints", taints.reconcile, manager.clock, workers=_WORKERS)

    def changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            controller.enqueue(key_of(new))

    nodes.add_handler(changed)
    return controller


class NodeTaints:
    def __init__(self, client: Client, nodes: Informer) -> None:
        self._client = client
        self._nodes = nodes

    async def reconcile(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None:
            return
        current = node["spec"].get("taints") or []
        wanted = taints_of(node, current)
        if wanted != current:
            # With the version that was looked at: somebody else's taint must not get lost in between.
            meta = {"resourceVersion": node["metadata"]["resourceVersion"]}
            await self._client.patch(NODES, name, {"metadata": meta, "spec": {"taints": wanted or None}})


def taints_of(node: Obj, current: list[Obj]) -> list[Obj]:
    """The taints that a node should have: those of others as they are, and those that its state asks for."""
    keys = {
        _BY_CONDITION.get((found["type"], found["status"]))
        for found in (node.get("status") or {}).get("conditions") or ()
    }
    if node["spec"].get("unschedulable"):
        keys.add(_UNSCHEDULABLE)

    def is_ours(taint: Obj) -> bool:
        return taint["effect"] == _EFFECT and taint["key"] in _OURS

    kept = [taint for taint in current if not is_ours(taint) or taint["key"] in keys]
    there = {taint["key"] for taint in kept if is_ours(taint)}
    return [*kept, *({"key": key, "effect": _EFFECT} for key in sorted(key for key in keys if key) if key not in there)]
