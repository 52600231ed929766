"""Conditions in a Pod's status."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from setpoint.meta.times import format_time

SCHEDULING_GATED = "SchedulingGated"


def find_condition(status: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
    for condition in status.get("conditions", ()):
        if condition.get("type") == kind:
            found: dict[str, Any] = condition
            return found
    return None


def is_ready(pod: Mapping[str, Any]) -> bool:
    return (find_condition(pod.get("status") or {}, "Ready") or {}).get("status") == "True"


def with_condition(
    status: Mapping[str, Any], kind: str, value: str, now: datetime, *, reason: str = "", message: str = ""
) -> dict[str, Any]:
    """Return the status with this condition set; the time of an earlier one stays if its value does not change."""
    condition: dict[str, Any] = {"type": kind, "status": value, "lastProbeTime": None}
    before = find_condition(status, kind)
    kept = before is not None and before.get("status") == value
    condition["lastTransitionTime"] = before["lastTransitionTime"] if before and kept else format_time(now)
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    conditions = [condition if one is before else one for one in status.get("conditions", ())]
    if before is None:
        conditions.append(condition)
    return {**status, "conditions": conditions}
