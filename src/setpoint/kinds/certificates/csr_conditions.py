"""Conditions of a CertificateSigningRequest: decisions, which once made stay made."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from setpoint.kinds.strategy import Obj
from setpoint.meta.field import Errors, duplicate, not_supported, required
from setpoint.meta.times import format_time

APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
_DECISIONS = (APPROVED, DENIED, FAILED)
_STATUSES = ("False", "True", "Unknown")
Conditions = list[dict[str, Any]]


def conditions_of(obj: Obj | None) -> Conditions:
    return ((obj or {}).get("status") or {}).get("conditions") or []


def of_type(conditions: Conditions, kind: str) -> Conditions:
    return [condition for condition in conditions if condition.get("type", "") == kind]


def retain_instances(obj: Obj, old: Obj, kind: str) -> None:
    """Restore the conditions of this type from `old`, unless their number changed, which validation reports."""
    before = of_type(conditions_of(old), kind)
    conditions = conditions_of(obj)
    places = [i for i, condition in enumerate(conditions) if condition.get("type", "") == kind]
    if len(before) == len(places):
        for i, condition in zip(places, before):
            conditions[i] = dict(condition)


def stamp(obj: Obj, old: Obj, now: datetime) -> None:
    """Fill in when each condition was updated and when it last changed."""
    text = format_time(now)
    for condition in conditions_of(obj):
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = text
        if not condition.get("lastTransitionTime"):
            condition["lastTransitionTime"] = next(
                (
                    before["lastTransitionTime"]
                    for before in of_type(conditions_of(old), condition.get("type", ""))
                    if before.get("status") == condition.get("status") and before.get("lastTransitionTime")
                ),
                text,
            )


def validate_conditions(conditions: Conditions, old: Conditions, path: str, errs: Errors) -> None:
    old_types = [condition.get("type", "") for condition in old]
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        kind, status = condition.get("type", ""), condition.get("status", "")
        if not kind and "" not in old_types:
            errs.append(required(f"{path}[{i}].type"))
        allowed = ("True",) if kind in _DECISIONS else _STATUSES
        if not status:
            errs.append(required(f"{path}[{i}].status"))
        elif status not in allowed:
            errs.append(not_supported(f"{path}[{i}].status", status, allowed))
        if kind in seen and len(set(old_types)) == len(old_types):
            errs.append(duplicate(f"{path}[{i}].type", kind))
        seen.add(kind)
