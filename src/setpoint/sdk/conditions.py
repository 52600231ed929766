"""Status conditions: type, status, reason, message and transition time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from setpoint.meta.times import format_time

Condition = dict[str, Any]


def with_condition(
    conditions: Iterable[Mapping[str, Any]],
    type: str,
    status: bool | None,
    reason: str,
    message: str = "",
    *,
    now: datetime,
    generation: int = 0,
) -> list[Condition]:
    """Return the conditions with this one added or replaced; a status of None means Unknown.

    The transition time changes only when the status changes.
    """
    word = "Unknown" if status is None else "True" if status else "False"
    new: Condition = {"type": type, "status": word, "reason": reason, "message": message}
    if generation:
        new["observedGeneration"] = generation
    new["lastTransitionTime"] = format_time(now)
    found = [dict(each) for each in conditions]
    for at, each in enumerate(found):
        if each["type"] == type:
            if each.get("status") == word:
                new["lastTransitionTime"] = each.get("lastTransitionTime", new["lastTransitionTime"])
            found[at] = new
            return found
    return [*found, new]


def is_true(obj: Mapping[str, Any], type: str) -> bool:
    """Return whether the object, a dict, has this condition with the status True."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(each["type"] == type and each["status"] == "True" for each in conditions)
