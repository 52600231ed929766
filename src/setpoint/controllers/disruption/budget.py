"""Computes what a budget allows, given its Pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from setpoint.controllers.int_or_percent import scaled_value
from setpoint.controllers.pods import is_ready
from setpoint.meta.times import format_time, parse_time

Obj = dict[str, Any]

DELETION_TIMEOUT = timedelta(minutes=2)
"""The time after which an evicted Pod that is still not being deleted counts as not evicted."""
ALLOWED = "DisruptionAllowed"


def needs_scale(budget: Obj) -> bool:
    """Return whether the budget depends on the desired number of Pods and not only on the existing ones."""
    spec = budget["spec"]
    return spec.get("maxUnavailable") is not None or isinstance(spec.get("minAvailable"), str)


def desired_healthy(budget: Obj, expected: int) -> int:
    spec = budget["spec"]
    if spec.get("maxUnavailable") is not None:
        return max(0, expected - scaled_value(spec["maxUnavailable"], expected, up=True))
    return scaled_value(spec.get("minAvailable", 0), expected, up=True)


class Disrupted(NamedTuple):
    pods: dict[str, str]
    """Evicted Pods whose deletion is not observed yet: the time of eviction by name."""
    overdue: list[Obj]
    recheck: datetime | None
    """The time at which the first of them becomes overdue; None if there is none."""


def still_disrupted(budget: Obj, pods: Iterable[Obj], now: datetime) -> Disrupted:
    noted = (budget.get("status") or {}).get("disruptedPods") or {}
    left: dict[str, str] = {}
    overdue: list[Obj] = []
    ends: list[datetime] = []
    for pod in pods:
        since = noted.get(pod["metadata"]["name"])
        if since is None or "deletionTimestamp" in pod["metadata"]:
            continue
        end = parse_time(since) + DELETION_TIMEOUT
        if end < now:
            overdue.append(pod)
        else:
            left[pod["metadata"]["name"]] = since
            ends.append(end)
    return Disrupted(left, overdue, min(ends, default=None))


def healthy(pods: Iterable[Obj], disrupted: Mapping[str, str], now: datetime) -> int:
    def counts(pod: Obj) -> bool:
        since = disrupted.get(pod["metadata"]["name"])
        if "deletionTimestamp" in pod["metadata"] or (since and parse_time(since) + DELETION_TIMEOUT > now):
            return False
        return is_ready(pod)

    return sum(map(counts, pods))


def status_of(budget: Obj, pods: Sequence[Obj], expected: int, disrupted: dict[str, str], now: datetime) -> Obj:
    current, desired = healthy(pods, disrupted, now), desired_healthy(budget, expected)
    allowed = max(0, current - desired) if expected > 0 else 0
    generation = budget["metadata"].get("generation", 0)
    status: Obj = {
        "currentHealthy": current,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "expectedPods": expected,
        "observedGeneration": generation,
    }
    if disrupted:
        status["disruptedPods"] = disrupted
    verdict = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    status["conditions"] = _conditions(budget, *verdict, "", generation, now)
    return status


def failed_status(budget: Obj, message: str, now: datetime) -> Obj:
    """Return the status of a budget that cannot be computed, which allows no disruption."""
    old = budget.get("status") or {}
    generation = old.get("observedGeneration", 0)
    conditions = _conditions(budget, "False", "SyncFailed", message, generation, now)
    counts = {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
    return {**counts, **old, "disruptionsAllowed": 0, "conditions": conditions}


def _conditions(budget: Obj, status: str, reason: str, message: str, generation: int, now: datetime) -> list[Obj]:
    wanted: Obj = {"type": ALLOWED, "status": status, "reason": reason, "message": message}
    if generation:
        wanted["observedGeneration"] = generation
    since = format_time(now)
    conditions: list[Obj] = []
    there = False
    for old in (budget.get("status") or {}).get("conditions") or ():
        if old["type"] == ALLOWED:
            there = True
            if old["status"] == status:
                since = old["lastTransitionTime"]
            old = {**wanted, "lastTransitionTime": since}
        conditions.append(old)
    return conditions if there else [*conditions, {**wanted, "lastTransitionTime": since}]
