"""Why a Pod cannot go to a node. Each filter gives its reason in the words that people know, or None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.meta.quantity import value
from setpoint.scheduler.snapshot import NodeInfo

Obj = dict[str, Any]
Filter = Callable[[Obj, NodeInfo], str | None]


def is_schedulable(pod: Obj, info: NodeInfo) -> str | None:
    node = info.node or {}
    return "node(s) were unschedulable" if (node.get("spec") or {}).get("unschedulable") else None


def is_ready(pod: Obj, info: NodeInfo) -> str | None:
    node = info.node or {}
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            return None
    return "node(s) were not ready"


def has_room(pod: Obj, info: NodeInfo) -> str | None:
    allocatable = ((info.node or {}).get("status") or {}).get("allocatable") or {}
    return None if len(info.pods) < value(allocatable.get("pods", "0")) else "Too many pods"


FILTERS: tuple[Filter, ...] = (is_schedulable, is_ready, has_room)
