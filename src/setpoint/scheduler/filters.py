"""Why a Pod cannot go to a node. Each filter gives its reason in the words that people know, or None."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from setpoint.meta.quantity import value
from setpoint.scheduler.snapshot import NodeInfo

Obj = dict[str, Any]
Filter = Callable[[Obj, NodeInfo], str | None]

_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def is_schedulable(pod: Obj, info: NodeInfo) -> str | None:
    if (info.node or {}).get("spec", {}).get("unschedulable") and not _tolerates(pod, _CORDON):
        return "node(s) were unschedulable"
    return None


def has_no_taint(pod: Obj, info: NodeInfo) -> str | None:
    """A node that is not ready is tainted."""
    for taint in (info.node or {}).get("spec", {}).get("taints") or ():
        if taint["effect"] in ("NoSchedule", "NoExecute") and not _tolerates(pod, taint):
            return "node(s) had untolerated taint(s)"
    return None


def has_room(pod: Obj, info: NodeInfo) -> str | None:
    allocatable = ((info.node or {}).get("status") or {}).get("allocatable") or {}
    return None if len(info.pods) < value(allocatable.get("pods", "0")) else "Too many pods"


def _tolerates(pod: Obj, taint: Mapping[str, Any]) -> bool:
    return any(_covers(toleration, taint) for toleration in pod["spec"].get("tolerations") or ())


def _covers(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return bool(toleration.get("value", "") == taint.get("value", ""))
    return bool(operator == "Exists")


FILTERS: tuple[Filter, ...] = (is_schedulable, has_no_taint, has_room)
