"""What controllers ask of Pods: is it alive, ready, available, and which goes first when there are too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from math import log2
from typing import Any

from setpoint.controllers.conditions import condition, is_true
from setpoint.meta.times import parse_time

Obj = dict[str, Any]

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def phase(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def is_active(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and phase(pod) not in ("Succeeded", "Failed")


def is_terminating(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"] and phase(pod) not in ("Succeeded", "Failed")


def is_ready(pod: Mapping[str, Any]) -> bool:
    return is_true(pod, "Ready")


def available_in(pod: Mapping[str, Any], min_ready_seconds: int, now: datetime) -> float | None:
    """Seconds until the Pod counts as available: zero or less if it does, None while it is not ready."""
    ready = condition(pod, "Ready")
    if ready is None or ready.get("status") != "True":
        return None
    if not min_ready_seconds:
        return 0.0
    since = ready.get("lastTransitionTime")
    if not since:
        return None
    return min_ready_seconds - (now - parse_time(since)).total_seconds()


def first_to_go(pods: Iterable[Obj], related: Iterable[Obj], now: datetime) -> list[Obj]:
    """In the order in which they are best given up: those that have come least far, cost least, crowd a node together
    with `related` Pods, and are youngest (by powers of two, so that age alone does not always hit the same)."""
    crowd = Counter(pod["spec"].get("nodeName", "") for pod in related if is_active(pod))

    def rank(pod: Obj) -> tuple[Any, ...]:
        node = pod["spec"].get("nodeName", "")
        ready = condition(pod, "Ready")
        is_up = ready is not None and ready.get("status") == "True"
        ready_age = _age_class(ready.get("lastTransitionTime", ""), now) if is_up and ready else -1
        return (
            bool(node),
            _PHASES.get(phase(pod), 0),
            is_up,
            _deletion_cost(pod),
            -crowd[node],
            ready_age,
            -most_restarts(pod),
            _age_class(pod["metadata"].get("creationTimestamp", ""), now),
            pod["metadata"]["uid"],
        )

    return sorted(pods, key=rank)


def _age_class(stamp: str, now: datetime) -> int:
    if not stamp:
        return -1
    age = (now - parse_time(stamp)).total_seconds()
    return int(log2(age)) if age >= 1 else 0


def _deletion_cost(pod: Mapping[str, Any]) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(_DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def most_restarts(pod: Mapping[str, Any]) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((status.get("restartCount", 0) for status in statuses), default=0)
