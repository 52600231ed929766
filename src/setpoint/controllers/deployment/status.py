"""Computes the status of a Deployment from its ReplicaSets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, cast

from setpoint.controllers.deployment.replica_sets import count, limits, size
from setpoint.meta.conditions import condition_of, find_condition, new_condition, without_condition
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_time, parse_time

if TYPE_CHECKING:
    from setpoint.kinds.typed import Deployment, ReplicaSet

Conditions = Sequence[ObjView]

_NO_DEADLINE = 2**31 - 1
_COMPLETE, _TIMED_OUT, _PAUSED = "NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused"


def status_of(deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet], now: datetime) -> Obj:
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


def _omits_terminating(status: ObjView) -> bool:
    """Return whether the status has been observed and still omits the terminating Pods."""
    return bool(status.get("observedGeneration")) and "terminatingReplicas" not in status


def rollout_status(
    deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet], now: datetime, *, created: bool = False
) -> Obj:
    """Compute the status of a rollout. `created`: the new ReplicaSet was just created."""
    status = status_of(deployment, new, old, now)
    conditions = _progressing(status["conditions"], deployment, status, new, created, now)
    status["conditions"] = _failures(conditions, new, [*old, *([new] if new is not None else [])])
    return status


def with_pause_condition(deployment: Deployment, now: datetime) -> Deployment:
    """Add the condition for a paused or resumed Deployment, so that the pause does not count towards the deadline."""
    current = condition_of(deployment, "Progressing")
    reason = current["reason"] if current is not None else ""
    paused = bool(deployment["spec"].get("paused"))
    if _deadline(deployment) is None or reason == _TIMED_OUT or paused == (reason == _PAUSED):
        return deployment
    if paused:
        return _with_progress(deployment, "Unknown", _PAUSED, "Deployment is paused", now)
    return _with_progress(deployment, "Unknown", "DeploymentResumed", "Deployment is resumed", now)


def with_progress_start(deployment: Deployment, new: ReplicaSet, now: datetime) -> Deployment:
    """Add a Progressing condition if there is none, as the start of the progress deadline."""
    if _deadline(deployment) is None or condition_of(deployment, "Progressing") is not None:
        return deployment
    message = f'Found new replica set "{new["metadata"]["name"]}"'
    return _with_progress(deployment, "True", "FoundNewReplicaSet", message, now)


def creation_failed(deployment: Deployment, message: str, now: datetime) -> ObjView:
    """Return the status that reports the failed creation."""
    if _deadline(deployment) is not None:
        deployment = _with_progress(deployment, "False", "ReplicaSetCreateError", message, now)
    return deployment.get("status") or {}


def _with_progress(deployment: Deployment, value: str, reason: str, message: str, now: datetime) -> Deployment:
    status = deployment.get("status") or {}
    conditions = _with_condition(status.get("conditions") or [], "Progressing", value, reason, message, now)
    return cast("Deployment", {**deployment, "status": {**status, "conditions": conditions}})


def is_complete(deployment: Deployment, status: ObjView) -> bool:
    desired = size(deployment)
    numbers = ("updatedReplicas", "replicas", "availableReplicas")
    caught_up = int(status.get("observedGeneration", 0)) >= int(deployment["metadata"]["generation"])
    return caught_up and all(status.get(name, 0) == desired for name in numbers)


def seconds_to_deadline(deployment: Deployment, status: ObjView, now: datetime) -> float | None:
    """Return the seconds until the progress deadline, or None if it does not apply."""
    deadline = _deadline(deployment)
    found = find_condition(status.get("conditions") or (), "Progressing")
    if deadline is None or found is None or found["reason"] in (_COMPLETE, _TIMED_OUT):
        return None
    elapsed = (now - parse_time(found["lastUpdateTime"])).total_seconds()
    return float(max(1.0, deadline - elapsed + 1.0))


def _deadline(deployment: Deployment) -> int | None:
    seconds = deployment["spec"].get("progressDeadlineSeconds")
    return None if seconds in (None, _NO_DEADLINE) else int(seconds)


def _with_condition(
    conditions: Conditions, kind: str, value: str, reason: str, message: str, now: datetime
) -> Conditions:
    current = find_condition(conditions, kind)
    if current is not None and (current["status"], current["reason"]) == (value, reason):
        return conditions
    return _with_renewed_condition(conditions, current, kind, value, reason, message, now)


def _with_renewed_condition(
    conditions: Conditions,
    current: ObjView | None,
    kind: str,
    value: str,
    reason: str,
    message: str,
    now: datetime,
) -> Conditions:
    made = {**new_condition(kind, value, reason, message, now), "lastUpdateTime": format_time(now)}
    if current is not None and current["status"] == value:
        made["lastTransitionTime"] = current["lastTransitionTime"]
    return [*without_condition(conditions, kind), made]


def _available(conditions: Conditions, deployment: Deployment, available: int, now: datetime) -> Conditions:
    if available >= size(deployment) - limits(deployment)[1]:
        message = "Deployment has minimum availability."
        return _with_condition(conditions, "Available", "True", "MinimumReplicasAvailable", message, now)
    message = "Deployment does not have minimum availability."
    return _with_condition(conditions, "Available", "False", "MinimumReplicasUnavailable", message, now)


def _progressing(
    conditions: Conditions, deployment: Deployment, status: Obj, new: ReplicaSet | None, created: bool, now: datetime
) -> Conditions:
    deadline = _deadline(deployment)
    if deadline is None:
        return without_condition(conditions, "Progressing")
    current = condition_of(deployment, "Progressing")
    kind, subject = ("ReplicaSet", new) if new is not None else ("Deployment", deployment)
    what = f'{kind} "{subject["metadata"]["name"]}"'
    if created and new is not None:
        message = f'Created new replica set "{new["metadata"]["name"]}"'
        return _with_condition(conditions, "Progressing", "True", "NewReplicaSetCreated", message, now)
    if (
        current is not None
        and current["reason"] == _COMPLETE
        and status.get("replicas", 0) == status.get("updatedReplicas", 0)
    ):
        return conditions  # the rollout is complete; later changes of its Pods are not progress
    if is_complete(deployment, status):
        return _with_condition(
            conditions, "Progressing", "True", _COMPLETE, f"{what} has successfully progressed.", now
        )
    if _has_progressed(deployment.get("status") or {}, status):
        # Rewrite the condition although it says the same: its time is the time of the last progress.
        return _with_renewed_condition(
            conditions, current, "Progressing", "True", "ReplicaSetUpdated", f"{what} is progressing.", now
        )
    found = find_condition(conditions, "Progressing")
    if found is not None and found["reason"] != _COMPLETE:
        if (now - parse_time(found["lastUpdateTime"])).total_seconds() > deadline:
            message = f"{what} has timed out progressing."
            return _with_condition(conditions, "Progressing", "False", _TIMED_OUT, message, now)
    return conditions


def _has_progressed(before: ObjView, after: ObjView) -> bool:
    def number(status: ObjView, name: str) -> int:
        return int(status.get(name, 0))

    def outdated(status: ObjView) -> int:
        return number(status, "replicas") - number(status, "updatedReplicas")

    return outdated(after) < outdated(before) or any(
        number(after, name) > number(before, name) for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )


def _failures(conditions: Conditions, new: ReplicaSet | None, everything: Sequence[ReplicaSet]) -> Conditions:
    for found in [*([new] if new is not None else []), *everything]:
        failure = condition_of(found, "ReplicaFailure")
        if failure is not None:
            failure = {**failure, "lastUpdateTime": failure.get("lastTransitionTime")}
            current = find_condition(conditions, "ReplicaFailure")
            if current is not None and (current["status"], current["reason"]) == (failure["status"], failure["reason"]):
                return conditions
            return [*without_condition(conditions, "ReplicaFailure"), failure]
    return without_condition(conditions, "ReplicaFailure")
