"""Predicates on Pods (active, ready, available) and the order in which surplus Pods are deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from math import inf, log2
from typing import Any

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
    return ready_condition(pod) is not None


def ready_condition(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the Ready condition if it is true, or None."""
    for found in (pod.get("status") or {}).get("conditions") or ():
        if found["type"] == "Ready":
            return found if found.get("status") == "True" else None
    return None


def available_in(pod: Mapping[str, Any], min_ready_seconds: int, now: datetime) -> float | None:
    """Return the seconds until the Pod is available: zero or less if it is, None while it is not ready."""
    ready = ready_condition(pod)
    return None if ready is None else available_from(ready, min_ready_seconds, now)


def available_from(ready: Mapping[str, Any], min_ready_seconds: int, now: datetime) -> float:
    """Return the seconds until a Pod with this Ready condition is available."""
    if not min_ready_seconds:
        return 0.0
    since = ready.get("lastTransitionTime")
    if not since:
        return inf
    return min_ready_seconds - (now - parse_time(since)).total_seconds()


def deletion_order(pods: Iterable[Obj], related: Iterable[Obj], now: datetime) -> list[Obj]:
    """Sort Pods in the order in which they are deleted when scaling down.

    First come Pods in an early phase, with a low deletion cost, on a node with many `related` Pods, and young ones.
    Ages are compared by powers of two, so that age alone does not always select the same Pod.
    """
    crowd = Counter(pod["spec"].get("nodeName", "") for pod in related if is_active(pod))

    def rank(pod: Obj) -> tuple[Any, ...]:
        node = pod["spec"].get("nodeName", "")
        ready = ready_condition(pod)
        is_up = ready is not None
        ready_age = _age_class(ready.get("lastTransitionTime", ""), now) if ready is not None else -1
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
    return int(log2(age * 1e9)) if age > 0 else -1


def _deletion_cost(pod: Mapping[str, Any]) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(_DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def most_restarts(pod: Mapping[str, Any]) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((status.get("restartCount", 0) for status in statuses), default=0)
