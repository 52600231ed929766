"""Status conditions: finding, building, setting and removing them. Nothing here modifies what it is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_time

ADDRESS_FROM_POOL = "setpoint.dev/AddressFromPool"
"""The condition of a Service of type LoadBalancer whose addresses are of the cluster's own pool. Its nodes announce
them."""


def conditions_of(obj: ObjView) -> Sequence[ObjView]:
    """Return the conditions in the object's status; empty if there are none."""
    return (obj.get("status") or {}).get("conditions") or ()


def find_condition(conditions: Iterable[ObjView], type: str) -> ObjView | None:
    """Return the condition of this type, or None."""
    for condition in conditions:
        if condition.get("type") == type:
            return condition
    return None


def condition_of(obj: ObjView, type: str) -> ObjView | None:
    """Return the condition of this type in the object's status, or None."""
    return find_condition(conditions_of(obj), type)


def is_true(obj: ObjView, type: str) -> bool:
    """Return whether the object has a condition of this type with the status True."""
    condition = condition_of(obj, type)
    return condition is not None and condition.get("status") == "True"


def new_condition(type: str, status: str, reason: str, message: str, now: datetime) -> Obj:
    """Return a condition that changed `now`."""
    changed = format_time(now)
    return {"type": type, "status": status, "lastTransitionTime": changed, "reason": reason, "message": message}


def with_condition(conditions: Iterable[ObjView], new: ObjView) -> list[ObjView]:
    """Return the conditions with `new` in the place of the one of its type, or at the end.

    `new` has the present time as its transition time. If the status does not change, the earlier time stays.
    """
    found = list(conditions)
    for place, old in enumerate(found):
        if old.get("type") == new["type"]:
            found[place] = _with_earlier_time(old, new)
            return found
    return [*found, new]


def without_condition(conditions: Iterable[ObjView], type: str) -> list[ObjView]:
    """Return the conditions except those of this type."""
    return [condition for condition in conditions if condition.get("type") != type]


def changed_condition(obj: ObjView, wanted: ObjView, now: datetime) -> ObjView | None:
    """Return `wanted`, which has no transition time, with its transition time; None if the object has it already."""
    old = condition_of(obj, wanted["type"]) or {}
    if all(old.get(field) == value for field, value in wanted.items()):
        return None
    return _with_earlier_time(old, {**wanted, "lastTransitionTime": format_time(now)})


def _with_earlier_time(old: ObjView, new: ObjView) -> ObjView:
    """Return `new` with the transition time of `old` if both have the same status."""
    earlier = old.get("lastTransitionTime") if old.get("status") == new["status"] else None
    return {**new, "lastTransitionTime": earlier} if earlier else new
