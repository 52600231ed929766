"""Computes the status of a StatefulSet from its Pods."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from setpoint.controllers.availability import is_available
from setpoint.controllers.statefulset.identity import revision_of_pod, size
from setpoint.controllers.statefulset.rollout import is_created, is_leaving, is_running_and_ready

Obj = dict[str, Any]

_NUMBERS = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
_ALWAYS_SHOWN = ("replicas", "availableReplicas")


def counts_of(stateful_set: Obj, pods: Iterable[Obj], current: str, update: str, now: datetime) -> dict[str, int]:
    """Count the Pods. `current` and `update` are the names of the revisions."""
    min_ready = stateful_set["spec"].get("minReadySeconds", 0)
    counts = dict.fromkeys(_NUMBERS, 0)
    for pod in pods:
        created = is_created(pod)
        counts["replicas"] += created
        if is_running_and_ready(pod):
            counts["readyReplicas"] += 1
            counts["availableReplicas"] += is_available(pod, min_ready, now)
        if created and not is_leaving(pod):
            revision = revision_of_pod(pod)
            counts["currentReplicas"] += revision == current
            counts["updatedReplicas"] += revision == update
    return counts


def status_of(stateful_set: Obj, counts: dict[str, int], current: str, update: str, collisions: int) -> Obj:
    desired = size(stateful_set)
    counts = dict(counts)
    if counts["updatedReplicas"] == counts["readyReplicas"] == counts["replicas"] == desired:
        # The update is complete: the update revision becomes the current one.
        counts["currentReplicas"] = counts["updatedReplicas"]
        current = update
    status: Obj = {"observedGeneration": stateful_set["metadata"]["generation"]}
    status.update({name: counts[name] for name in _NUMBERS if counts[name] or name in _ALWAYS_SHOWN})
    status.update(currentRevision=current, updateRevision=update, collisionCount=collisions)
    conditions = (stateful_set.get("status") or {}).get("conditions")
    if conditions:
        status["conditions"] = conditions
    return status


def differs(stateful_set: Obj, status: Obj) -> bool:
    """Return whether the status must be written. observedGeneration never decreases."""
    before = stateful_set.get("status") or {}
    names = (*_NUMBERS, "currentRevision", "updateRevision", "conditions")
    return status["observedGeneration"] > before.get("observedGeneration", 0) or any(
        (status.get(name) or 0) != (before.get(name) or 0) for name in names
    )
