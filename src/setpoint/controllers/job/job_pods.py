"""Facts about a Job's Pods: their index, how and when they ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from setpoint.controllers.conditions import condition
from setpoint.controllers.pods import phase
from setpoint.meta.times import parse_time

Obj = dict[str, Any]

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
"""The name of both an annotation and a label."""
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"

_GREATEST = 2**31 - 1


def is_indexed(job: Mapping[str, Any]) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def counts_failures_per_index(job: Mapping[str, Any]) -> bool:
    return job["spec"].get("backoffLimitPerIndex") is not None


def replaces_only_failed(job: Mapping[str, Any]) -> bool:
    return bool(job["spec"].get("podReplacementPolicy") == "Failed")


def is_tracked(pod: Mapping[str, Any]) -> bool:
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def has_succeeded(pod: Mapping[str, Any]) -> bool:
    return phase(pod) == "Succeeded"


def has_failed(pod: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """Return whether the Pod failed. A Pod being deleted counts, because it may never end, unless the Job waits for its
    end."""
    if phase(pod) == "Failed":
        return True
    return not replaces_only_failed(job) and "deletionTimestamp" in pod["metadata"] and not has_succeeded(pod)


def index_of(pod: Mapping[str, Any]) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def index_within(pod: Mapping[str, Any], completions: int) -> int | None:
    """Return the Pod's index, or None if it has none or one that the Job does not have."""
    index = index_of(pod)
    return index if index is not None and index < completions else None


def indexes_of(pods: Iterable[Mapping[str, Any]]) -> set[int]:
    return {index for pod in pods if (index := index_of(pod)) is not None}


def failures(pod: Mapping[str, Any]) -> int:
    """Return the failures at the Pod's index before it that count towards the limit."""
    return _count(pod, FAILURES)


def all_failures(pod: Mapping[str, Any]) -> int:
    return _count(pod, FAILURES) + _count(pod, IGNORED_FAILURES)


def ignored_failures(pod: Mapping[str, Any]) -> int:
    return _count(pod, IGNORED_FAILURES)


def _count(pod: Mapping[str, Any], name: str) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(name, "")
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
    return number if number <= _GREATEST else 0


def finished_at(pod: Mapping[str, Any]) -> datetime:
    """Return when the last container ended; failing that, when the Pod became unready, was deleted, or was created."""
    ended = _containers_ended(pod)
    if ended is not None:
        return ended
    ready = condition(pod, "Ready")
    if ready is not None and ready.get("status") == "False" and ready.get("lastTransitionTime"):
        return parse_time(ready["lastTransitionTime"])
    meta = pod["metadata"]
    if "deletionTimestamp" in meta:
        return parse_time(meta["deletionTimestamp"]) - timedelta(seconds=meta.get("deletionGracePeriodSeconds") or 0)
    return parse_time(meta["creationTimestamp"])


def _containers_ended(pod: Mapping[str, Any]) -> datetime | None:
    status = pod.get("status") or {}
    sidecars = {
        container["name"]
        for container in pod["spec"].get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    times: list[datetime] = []
    for found in (
        *(status.get("containerStatuses") or ()),
        *(each for each in status.get("initContainerStatuses") or () if each["name"] in sidecars),
    ):
        at = ((found.get("state") or {}).get("terminated") or {}).get("finishedAt")
        if not at:
            return None
        times.append(parse_time(at))
    return max(times, default=None)
