"""Taints that correspond to a node's conditions, and deprecated label aliases."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict
from setpoint.meta.times import format_time
from setpoint.meta.tolerations import NO_EXECUTE, NO_SCHEDULE

Obj = dict[str, Any]
TaintId = tuple[str, str]
"""Key and effect, which identify a taint."""

NODES = builtin("nodes")
_PREFIX = "node.kubernetes.io/"
NOT_READY, UNREACHABLE = _PREFIX + "not-ready", _PREFIX + "unreachable"
_UNSCHEDULABLE = _PREFIX + "unschedulable"
_BY_CONDITION = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): _PREFIX + "memory-pressure",
    ("DiskPressure", "True"): _PREFIX + "disk-pressure",
    ("NetworkUnavailable", "True"): _PREFIX + "network-unavailable",
    ("PIDPressure", "True"): _PREFIX + "pid-pressure",
}
_OURS = {*_BY_CONDITION.values(), _UNSCHEDULABLE}
EVICTING: tuple[TaintId, TaintId] = ((NOT_READY, NO_EXECUTE), (UNREACHABLE, NO_EXECUTE))

_ALIASES = {"beta.kubernetes.io/os": "kubernetes.io/os", "beta.kubernetes.io/arch": "kubernetes.io/arch"}
_ATTEMPTS, _PAUSE = 5, 0.1


def ids_of(taints: Iterable[Mapping[str, Any]]) -> set[TaintId]:
    return {(taint["key"], taint["effect"]) for taint in taints}


def taints_of(node: Mapping[str, Any]) -> list[Obj]:
    return list((node.get("spec") or {}).get("taints") or ())


def scheduling_changes(node: Mapping[str, Any]) -> tuple[list[TaintId], list[TaintId]]:
    """Return the NoSchedule taints that are missing, and those that no longer apply."""
    keys = [
        _BY_CONDITION.get((found["type"], found["status"]))
        for found in (node.get("status") or {}).get("conditions") or ()
    ]
    if node["spec"].get("unschedulable"):
        keys.append(_UNSCHEDULABLE)
    wanted = [(key, NO_SCHEDULE) for key in dict.fromkeys(keys) if key]
    there = [(taint["key"], taint["effect"]) for taint in taints_of(node)]
    ours = [each for each in there if each[1] == NO_SCHEDULE and each[0] in _OURS]
    return [each for each in wanted if each not in ours], [each for each in ours if each not in wanted]


def evicting_taint(ready: str) -> TaintId | None:
    """Return the NoExecute taint for this status of the Ready condition, or None."""
    return {"False": EVICTING[0], "Unknown": EVICTING[1]}.get(ready)


def changed_taints(
    taints: list[Obj], add: Collection[TaintId], remove: Collection[TaintId], now: datetime
) -> list[Obj] | None:
    """Return the changed taints, or None if nothing changes. A taint that is added again gets a new time."""
    there = ids_of(taints)
    missing = [each for each in add if each not in there]
    if not missing and there.isdisjoint(remove):
        return None
    kept = [taint for taint in taints if (taint["key"], taint["effect"]) not in remove]
    stamp = format_time(now)
    return [*kept, *({"key": key, "effect": effect, "timeAdded": stamp} for key, effect in missing)]


async def swap_taints(
    client: Client, clock: Clock, node: Obj, add: Collection[TaintId], remove: Collection[TaintId]
) -> bool:
    """Change the taints and return whether that changed anything. Starts with the given node; taints of others are
    preserved on conflicts."""
    name = node["metadata"]["name"]
    for attempt in range(_ATTEMPTS):
        wanted = changed_taints(taints_of(node), add, remove, clock.now())
        if wanted is None:
            return False
        meta = {"resourceVersion": node["metadata"]["resourceVersion"], "uid": node["metadata"]["uid"]}
        try:
            await client.patch(NODES, name, {"metadata": meta, "spec": {"taints": wanted or None}})
            return True
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
        if attempt:
            await clock.sleep(_PAUSE)
        fresh = await client.get(NODES, name)
        if fresh["metadata"]["uid"] != node["metadata"]["uid"]:
            return False
        node = fresh
    return False


def missing_labels(node: Mapping[str, Any]) -> dict[str, str]:
    labels = node["metadata"].get("labels") or {}
    return {
        alias: labels[name] for alias, name in _ALIASES.items() if name in labels and labels.get(alias) != labels[name]
    }
