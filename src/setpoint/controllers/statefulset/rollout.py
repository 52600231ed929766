"""Chooses the Pods to replace during a rollout."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from setpoint.controllers.availability import is_available
from setpoint.controllers.int_or_percent import scaled_value
from setpoint.controllers.pods import is_ready, phase
from setpoint.controllers.statefulset.identity import partition, revision_of_pod, size

Obj = dict[str, Any]


def is_created(pod: Obj) -> bool:
    return phase(pod) != ""


def is_leaving(pod: Obj) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_running_and_ready(pod: Obj) -> bool:
    return phase(pod) == "Running" and is_ready(pod)


def is_unavailable(pod: Obj, min_ready: int, now: datetime) -> bool:
    """Return whether the Pod is unavailable or being deleted."""
    return is_leaving(pod) or not is_available(pod, min_ready, now)


def in_parallel(stateful_set: Obj) -> bool:
    return bool(stateful_set["spec"].get("podManagementPolicy") == "Parallel")


def max_unavailable(stateful_set: Obj) -> int:
    """Return maxUnavailable, at least one so that the rollout can proceed."""
    rolling = stateful_set["spec"]["updateStrategy"].get("rollingUpdate") or {}
    requested = rolling.get("maxUnavailable")
    return 1 if requested is None else max(1, scaled_value(requested, size(stateful_set), up=False))


def to_replace(stateful_set: Obj, replicas: Sequence[Obj], update: str, now: datetime) -> list[Obj]:
    """Return the Pods to delete, the highest ordinal first. `replicas` are sorted by ordinal; `update` is the name of
    the update revision."""
    min_ready = stateful_set["spec"].get("minReadySeconds", 0)
    parallel = in_parallel(stateful_set)
    unavailable = [pod for pod in replicas if is_unavailable(pod, min_ready, now)]

    def is_outdated(pod: Obj) -> bool:
        return revision_of_pod(pod) != update and not is_leaving(pod) and is_created(pod)

    candidates = [pod for pod in reversed(replicas[partition(stateful_set) :]) if is_outdated(pod)]
    room = max(0, max_unavailable(stateful_set) - len(unavailable))
    if not parallel:
        return candidates[:room]
    # Unavailable Pods are replaced first and cost nothing; only available ones count towards the limit.
    broken = [pod for pod in candidates if not is_available(pod, min_ready, now)]
    working = [pod for pod in candidates if is_available(pod, min_ready, now)]
    return [*broken, *working[:room]]
