"""Whether a node takes a Pod that was bound to it: the checks that a kubelet makes again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from setpoint.kinds.core.host_ports import host_ports, ports_conflict
from setpoint.kinds.core.pod_totals import pod_requests
from setpoint.meta.node_selectors import required_nodes
from setpoint.meta.quantity import parse
from setpoint.meta.tolerations import NO_EXECUTE, untolerated
from setpoint.node.node_state import NodeState

if TYPE_CHECKING:
    from setpoint.node.tools import Tools

Obj = Mapping[str, Any]


def admission_problem(pod: Obj, node: NodeState, tools: Tools) -> tuple[str, str] | None:
    """Why not: reason and message. A node that does not know itself yet takes everything."""
    own = node.object
    if own is None:
        return None
    spec = pod["spec"]
    allocatable = (own.get("status") or {}).get("allocatable") or {}
    problem = _shortage(pod, node, allocatable)
    if problem is not None:
        return problem
    if (spec.get("nodeSelector") or spec.get("affinity")) and not required_nodes(spec)(own):
        return "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    wanted = host_ports(spec)
    if wanted and any(ports_conflict(one, other) for one in wanted for held in node.ports.values() for other in held):
        return "NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    taints = own["spec"].get("taints")
    if taints and untolerated(taints, spec.get("tolerations") or (), (NO_EXECUTE,)) is not None:
        return "TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
    return None


def _shortage(pod: Obj, node: NodeState, allocatable: Mapping[str, str]) -> tuple[str, str] | None:
    room = int(allocatable.get("pods") or 110)
    if len(node.pods) + 1 > room:
        return _short("pods", 1, len(node.pods), room)
    wanted = demand(pod)
    for resource, amount in wanted.items():
        if not amount or resource not in allocatable:
            continue
        quantity = parse(allocatable[resource])
        capacity = quantity.milli_value() if resource == "cpu" else quantity.value()
        used = node.used.get(resource, 0)
        if used + amount > capacity:
            return _short(resource, amount, used, capacity)
    return None


def demand(pod: Obj) -> dict[str, int]:
    """What it requests: cpu in thousandths, everything else in whole units."""
    if not any(each.get("resources") for each in pod["spec"].get("containers") or ()) and not pod["spec"].get(
        "initContainers"
    ):
        return {}
    return {
        name: parse(amount).milli_value() if name == "cpu" else parse(amount).value()
        for name, amount in pod_requests(pod).items()
    }


def _short(resource: str, requested: int, used: int, capacity: int) -> tuple[str, str]:
    text = f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
    return f"OutOf{resource}", text
