"""Computes until when a Pod may stay on a tainted node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from setpoint.controllers.conditions import condition
from setpoint.meta.times import parse_time
from setpoint.meta.tolerations import NO_EXECUTE, tolerates

Obj = dict[str, Any]

AT_ONCE = datetime.min.replace(tzinfo=UTC)


def evicting(node: Mapping[str, Any] | None) -> list[Obj]:
    """Return the NoExecute taints of a node."""
    taints = ((node or {}).get("spec") or {}).get("taints") or ()
    return [taint for taint in taints if taint.get("effect") == NO_EXECUTE]


def stays_until(taints: Iterable[Obj], tolerations: Iterable[Obj], since: Callable[[Obj], datetime]) -> datetime | None:
    """Return until when the Pod may stay, or None if forever. `since(taint)` is when the Pod became subject to it."""
    until: datetime | None = None
    tolerations = list(tolerations)
    for taint in taints:
        # The first matching toleration counts, even if a later one lasts longer.
        match = next((each for each in tolerations if tolerates(each, taint)), None)
        if match is None:
            return AT_ONCE
        seconds = match.get("tolerationSeconds")
        if seconds is None:
            continue
        if seconds <= 0:
            return AT_ONCE
        end = since(taint) + timedelta(seconds=seconds)
        until = end if until is None else min(until, end)
    return until


def bound_at(pod: Mapping[str, Any]) -> datetime:
    """Return when the Pod was bound to its node."""
    scheduled = condition(pod, "PodScheduled") or {}
    return parse_time(scheduled.get("lastTransitionTime") or pod["metadata"]["creationTimestamp"])
