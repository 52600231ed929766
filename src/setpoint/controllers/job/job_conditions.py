"""A Job's conditions: interim (it is about to end), terminal, and Suspended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from setpoint.controllers.conditions import Condition
from setpoint.meta.times import format_time

COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
SUCCESS_CRITERIA_MET, FAILURE_TARGET = "SuccessCriteriaMet", "FailureTarget"
"""Written before the finalizers of the last Pods are removed; Complete or Failed follow when all are counted."""


def finished_condition(job: Mapping[str, Any]) -> Condition | None:
    """Return the Complete or Failed condition if it is true, or None while the Job is active."""
    for found in (job.get("status") or {}).get("conditions") or ():
        if found["type"] in (COMPLETE, FAILED) and found["status"] == "True":
            return dict(found)
    return None


def is_finished(job: Mapping[str, Any]) -> bool:
    return finished_condition(job) is not None


def new_condition(kind: str, reason: str, message: str, now: datetime, status: str = "True") -> Condition:
    stamp = format_time(now)
    return {
        "type": kind,
        "status": status,
        "lastProbeTime": stamp,
        "lastTransitionTime": stamp,
        "reason": reason,
        "message": message,
    }


def set_condition(status: dict[str, Any], wanted: Condition) -> bool:
    """Set a condition and return whether that changed anything. A condition that was never present is not added as
    False."""
    conditions: list[Condition] = list(status.get("conditions") or ())
    for place, found in enumerate(conditions):
        if found["type"] == wanted["type"]:
            if all(found.get(key) == wanted[key] for key in ("status", "reason", "message")):
                return False
            conditions[place] = wanted
            break
    else:
        if wanted["status"] == "False":
            return False
        conditions.append(wanted)
    status["conditions"] = conditions
    return True
