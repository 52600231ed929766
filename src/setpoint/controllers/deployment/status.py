"""Computes the status of a Deployment from its ReplicaSets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from setpoint.controllers.conditions import condition, without
from setpoint.controllers.deployment.sizes import count, limits, size
from setpoint.meta.times import format_time, parse_time

Obj = dict[str, Any]

_NO_DEADLINE = 2**31 - 1
_COMPLETE, _TIMED_OUT, _PAUSED = "NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused"


def status_of(deployment: Obj, new: Obj | None, old: Sequence[Obj], now: datetime) -> Obj:
    """Compute the status without the Progressing condition, which scaling does not affect."""
    everything = [*old, *([new] if new is not None else [])]
    before = deployment.get("status") or {}
    available = count(everything, "availableReplicas")
    counts = {
        "replicas": count(everything, "replicas"),
        "updatedReplicas": count([new], "replicas") if new is not None else 0,
        "readyReplicas": count(everything, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(size(found) for found in everything) - available),
    }
    status: Obj = {"observedGeneration": deployment["metadata"]["generation"]}
    status.update({name: number for name, number in counts.items() if number})
    if not any(_omits_terminating(found.get("status") or {}) for found in everything):
        status["terminatingReplicas"] = count(everything, "terminatingReplicas")
    if "collisionCount" in before:
        status["collisionCount"] = before["collisionCount"]
    status["conditions"] = _available(before.get("conditions") or [], deployment, available, now)
    return status


def _omits_terminating(status: Obj) -> bool:
    """Return whether the status has been observed and still omits the terminating Pods."""
    return bool(status.get("observedGeneration")) and "terminatingReplicas" not in status


def rollout_status(
    deployment: Obj, new: Obj | None, old: Sequence[Obj], now: datetime, *, created: bool = False
) -> Obj:
    """Compute the status of a rollout. `created`: the new ReplicaSet was just created."""
    status = status_of(deployment, new, old, now)
    conditions = _progressing(status["conditions"], deployment, status, new, created, now)
    status["conditions"] = _failures(conditions, new, [*old, *([new] if new is not None else [])])
    return status


def with_pause_condition(deployment: Obj, now: datetime) -> Obj:
    """Add the condition for a paused or resumed Deployment, so that the pause does not count towards the deadline."""
    current = condition(deployment, "Progressing")
    reason = current["reason"] if current is not None else ""
    paused = bool(deployment["spec"].get("paused"))
    if _deadline(deployment) is None or reason == _TIMED_OUT or paused == (reason == _PAUSED):
        return deployment
    if paused:
        return _with_progress(deployment, "Unknown", _PAUSED, "Deployment is paused", now)
    return _with_progress(deployment, "Unknown", "DeploymentResumed", "Deployment is resumed", now)


def with_progress_start(deployment: Obj, new: Obj, now: datetime) -> Obj:
    """Add a Progressing condition if there is none, as the start of the progress deadline."""
    if _deadline(deployment) is None or condition(deployment, "Progressing") is not None:
        return deployment
    message = f'Found new replica set "{new["metadata"]["name"]}"'
    return _with_progress(deployment, "True", "FoundNewReplicaSet", message, now)


def creation_failed(deployment: Obj, message: str, now: datetime) -> Obj:
    """Return the status that reports the failed creation."""
    if _deadline(deployment) is not None:
        deployment = _with_progress(deployment, "False", "ReplicaSetCreateError", message, now)
    return deployment.get("status") or {}


def _with_progress(deployment: Obj, value: str, reason: str, message: str, now: datetime) -> Obj:
    status = deployment.get("status") or {}
    conditions = _set(status.get("conditions") or [], "Progressing", value, reason, message, now)
    return {**deployment, "status": {**status, "conditions": conditions}}


def is_complete(deployment: Obj, status: Obj) -> bool:
    desired = size(deployment)
    numbers = ("updatedReplicas", "replicas", "availableReplicas")
    caught_up = int(status.get("observedGeneration", 0)) >= int(deployment["metadata"]["generation"])
    return caught_up and all(status.get(name, 0) == desired for name in numbers)


def seconds_to_deadline(deployment: Obj, status: Obj, now: datetime) -> float | None:
    """Return the seconds until the progress deadline, or None if it does not apply."""
    deadline = _deadline(deployment)
    found = condition({"status": status}, "Progressing")
    if deadline is None or found is None or found["reason"] in (_COMPLETE, _TIMED_OUT):
        return None
    elapsed = (now - parse_time(found["lastUpdateTime"])).total_seconds()
    return float(max(1.0, deadline - elapsed + 1.0))


def _deadline(deployment: Obj) -> int | None:
    seconds = deployment["spec"].get("progressDeadlineSeconds")
    return None if seconds in (None, _NO_DEADLINE) else int(seconds)


def _set(conditions: list[Obj], kind: str, value: str, reason: str, message: str, now: datetime) -> list[Obj]:
    current = condition({"status": {"conditions": conditions}}, kind)
    if current is not None and (current["status"], current["reason"]) == (value, reason):
        return conditions
    return _replace(conditions, current, kind, value, reason, message, now)


def _replace(
    conditions: list[Obj], current: Obj | None, kind: str, value: str, reason: str, message: str, now: datetime
) -> list[Obj]:
    stamp = format_time(now)
    changed = stamp if current is None or current["status"] != value else current["lastTransitionTime"]
    made = {
        "type": kind,
        "status": value,
        "lastUpdateTime": stamp,
        "lastTransitionTime": changed,
        "reason": reason,
        "message": message,
    }
    return [*without(conditions, kind), made]


def _available(conditions: list[Obj], deployment: Obj, available: int, now: datetime) -> list[Obj]:
    if available >= size(deployment) - limits(deployment)[1]:
        message = "Deployment has minimum availability."
        return _set(conditions, "Available", "True", "MinimumReplicasAvailable", message, now)
    message = "Deployment does not have minimum availability."
    return _set(conditions, "Available", "False", "MinimumReplicasUnavailable", message, now)


def _progressing(
    conditions: list[Obj], deployment: Obj, status: Obj, new: Obj | None, created: bool, now: datetime
) -> list[Obj]:
    deadline = _deadline(deployment)
    if deadline is None:
        return without(conditions, "Progressing")
    current = condition(deployment, "Progressing")
    kind, subject = ("ReplicaSet", new) if new is not None else ("Deployment", deployment)
    what = f'{kind} "{subject["metadata"]["name"]}"'
    if created and new is not None:
        message = f'Created new replica set "{new["metadata"]["name"]}"'
        return _set(conditions, "Progressing", "True", "NewReplicaSetCreated", message, now)
    if (
        current is not None
        and current["reason"] == _COMPLETE
        and status.get("replicas", 0) == status.get("updatedReplicas", 0)
    ):
        return conditions  # the rollout is complete; later changes of its Pods are not progress
    if is_complete(deployment, status):
        return _set(conditions, "Progressing", "True", _COMPLETE, f"{what} has successfully progressed.", now)
    if _has_progressed(deployment.get("status") or {}, status):
        # Rewrite the condition although it says the same: its time is the time of the last progress.
        return _replace(conditions, current, "Progressing", "True", "ReplicaSetUpdated", f"{what} is progressing.", now)
    found = condition({"status": {"conditions": conditions}}, "Progressing")
    if found is not None and found["reason"] != _COMPLETE:
        if (now - parse_time(found["lastUpdateTime"])).total_seconds() > deadline:
            message = f"{what} has timed out progressing."
            return _set(conditions, "Progressing", "False", _TIMED_OUT, message, now)
    return conditions


def _has_progressed(before: Obj, after: Obj) -> bool:
    def number(status: Obj, name: str) -> int:
        return int(status.get(name, 0))

    def outdated(status: Obj) -> int:
        return number(status, "replicas") - number(status, "updatedReplicas")

    return outdated(after) < outdated(before) or any(
        number(after, name) > number(before, name) for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )


def _failures(conditions: list[Obj], new: Obj | None, everything: Sequence[Obj]) -> list[Obj]:
    for found in [*([new] if new is not None else []), *everything]:
        failure = condition(found, "ReplicaFailure")
        if failure is not None:
            failure["lastUpdateTime"] = failure.get("lastTransitionTime")
            current = condition({"status": {"conditions": conditions}}, "ReplicaFailure")
            if current is not None and (current["status"], current["reason"]) == (failure["status"], failure["reason"]):
                return conditions
            return [*without(conditions, "ReplicaFailure"), failure]
    return without(conditions, "ReplicaFailure")
