"""The condition that marks a Pod as about to be disrupted before it is deleted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from setpoint.controllers.conditions import condition
from setpoint.meta.times import format_time

Obj = dict[str, Any]

_KIND = "DisruptionTarget"


def disruption_target(pod: Mapping[str, Any], reason: str, message: str, now: datetime) -> Obj | None:
    """Return the condition to write, or None if the Pod has it already."""
    before = condition(pod, _KIND) or {}
    wanted: Obj = {"type": _KIND, "status": "True", "reason": reason, "message": message}
    if pod["metadata"].get("generation"):
        wanted["observedGeneration"] = pod["metadata"]["generation"]
    if all(before.get(field) == value for field, value in wanted.items()):
        return None
    since = before.get("lastTransitionTime") if before.get("status") == "True" else None
    return {**wanted, "lastTransitionTime": since or format_time(now)}
