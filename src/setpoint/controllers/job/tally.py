"""Counts ended Pods in a Job's status, in steps that make it happen exactly once."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from setpoint.controllers.job.job_pods import (
    COMPLETE,
    FAILED,
    FAILURE_TARGET,
    SUCCESS_CRITERIA_MET,
    Indexes,
    counts_failures_per_index,
    has_failed,
    has_succeeded,
    index_of,
    index_within,
    is_indexed,
    is_tracked,
    job_condition,
    set_job_condition,
)
from setpoint.controllers.job.progress import Progress, apply_failure_policy
from setpoint.meta.objects import Obj

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

MAX_UNCOUNTED = 500
"""The maximum number of uncounted uids in a status, which bounds its size and the duration of a reconcile."""


class Recorded(NamedTuple):
    release: list[Pod]
    """Pods whose finalizer can be removed once the status is written."""
    changed: bool
    """The status must be written first."""
    complete: bool
    """No ended Pods were left for the next reconcile."""


def record_ended(seen: Progress) -> Recorded:
    """First step: record the ended Pods in the status as uncounted."""
    status, indexed = seen.status, is_indexed(seen.job)
    pods = (
        sorted(seen.pods, key=lambda pod: -1 if (index := index_of(pod)) is None else index) if indexed else seen.pods
    )
    tracked = {pod["metadata"]["uid"] for pod in pods if is_tracked(pod)}
    changed = count_released(status, tracked)
    uncounted = {kind: list(status["uncountedTerminatedPods"].get(kind) or ()) for kind in ("succeeded", "failed")}
    release: list[Pod] = []
    new_indexes: list[int] = []
    complete = True
    for pod in pods:
        if not is_tracked(pod) or not _may_release(seen, pod):
            continue
        uid, place = pod["metadata"]["uid"], index_within(pod, seen.completions) if indexed else None
        release.append(pod)
        if has_succeeded(pod) and uid not in uncounted["failed"]:
            # For an indexed Job the index itself prevents counting twice.
            if indexed:
                if place is not None and place not in seen.done_before:
                    new_indexes.append(place)
            elif uid not in uncounted["succeeded"]:
                uncounted["succeeded"].append(uid)
        elif has_failed(pod, seen.job) or _ends_in_failure(seen):
            if (
                uid not in uncounted["failed"]
                and (not indexed or place is not None)
                and apply_failure_policy(seen.job, pod).counts
            ):
                uncounted["failed"].append(uid)
        if len(new_indexes) + len(uncounted["succeeded"]) + len(uncounted["failed"]) >= MAX_UNCOUNTED:
            complete = False
            break
    recorded = {kind: uids for kind, uids in uncounted.items() if uids}
    changed |= recorded != status["uncountedTerminatedPods"] or bool(new_indexes)
    status["uncountedTerminatedPods"] = recorded
    if indexed:
        seen.done |= Indexes.of(new_indexes)
        changed |= _write_indexes(seen)
    return Recorded(release, _write_interim(seen) or changed, complete)


def count_released(status: Obj, tracked: Collection[str]) -> bool:
    """Second step: count the recorded Pods whose finalizer is removed. Return whether there were any."""
    uncounted = status["uncountedTerminatedPods"]
    left: Obj = {}
    changed = False
    for kind in ("succeeded", "failed"):
        before = uncounted.get(kind) or ()
        still = [uid for uid in before if uid in tracked]
        if len(still) != len(before):
            status[kind] = status.get(kind, 0) + len(before) - len(still)
            changed = True
        if still:
            left[kind] = still
    if changed:
        status["uncountedTerminatedPods"] = left
    return changed


def finish(seen: Progress) -> bool:
    """Last step: set the terminal condition if the Job is to end and no Pod is uncounted. Return whether it was set."""
    status, outcome = seen.status, seen.outcome
    uncounted = status.get("uncountedTerminatedPods") or {}
    if outcome is None or uncounted.get("succeeded") or uncounted.get("failed") or seen.terminating > 0:
        return False
    set_job_condition(status, outcome)
    if outcome["type"] == COMPLETE:
        status["completionTime"] = outcome["lastTransitionTime"]
    return True


def _may_release(seen: Progress, pod: Pod) -> bool:
    if "deletionTimestamp" in seen.job["metadata"] or seen.outcome is not None or has_succeeded(pod):
        return True
    if not has_failed(pod, seen.job):
        return False
    if not counts_failures_per_index(seen.job):
        return True
    # Retain the Pod from which the replacement inherits its failure count.
    index = index_of(pod)
    held = seen.held.get(index) if index is not None else None
    return held is None or held["metadata"]["uid"] != pod["metadata"]["uid"]


def _ends_in_failure(seen: Progress) -> bool:
    """Return whether the Job fails, in which case running Pods count as failed."""
    return seen.outcome is not None and seen.outcome["type"] != SUCCESS_CRITERIA_MET


def _write_indexes(seen: Progress) -> bool:
    status, text = seen.status, str(seen.done)
    changed = bool(text != status.get("completedIndexes", ""))
    _put(status, "succeeded", len(seen.done))
    _put(status, "completedIndexes", text)
    lost = None if seen.failed_indexes is None else str(seen.failed_indexes)
    changed = changed or lost != status.get("failedIndexes")
    if lost is None:
        status.pop("failedIndexes", None)
    else:
        status["failedIndexes"] = lost
    return changed


def _write_interim(seen: Progress) -> bool:
    """Write the interim condition before the last finalizers are removed, and set `outcome` to the terminal one."""
    outcome = seen.outcome
    if outcome is None or outcome["type"] not in (FAILURE_TARGET, SUCCESS_CRITERIA_MET):
        return False
    changed = set_job_condition(seen.status, outcome)
    final = FAILED if outcome["type"] == FAILURE_TARGET else COMPLETE
    seen.outcome = job_condition(final, outcome.get("reason", ""), outcome.get("message", ""), seen.now)
    return changed


def _put(status: Obj, name: str, value: int | str) -> None:
    if value:
        status[name] = value
    else:
        status.pop(name, None)
