"""The observed state of a Job and its Pods: counts, indexes, and whether the Job is about to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from setpoint.controllers.conditions import Condition, condition
from setpoint.controllers.job.backoff import Backoff
from setpoint.controllers.job.indexes import Indexes
from setpoint.controllers.job.job_conditions import FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, new_condition
from setpoint.controllers.job.job_pods import (
    all_failures,
    counts_failures_per_index,
    failures,
    finished_at,
    has_failed,
    has_succeeded,
    index_within,
    indexes_of,
    is_indexed,
    is_tracked,
)
from setpoint.controllers.job.policies import apply_failure_policy, success_message
from setpoint.controllers.pods import is_active, is_ready, is_terminating, phase
from setpoint.meta.times import format_time, parse_time

Obj = dict[str, Any]


@dataclass(slots=True)
class Progress:
    job: Obj
    """The Job. Its `status` is a private copy that is modified; everything else is shared."""
    pods: list[Obj]
    now: datetime
    active: list[Obj]
    ready: int
    terminating: int
    succeeded: int = 0
    failed: int = 0
    backoff: Backoff = field(default_factory=Backoff)
    outcome: Condition | None = None
    """The interim or terminal condition if the Job is to end, otherwise None."""
    done_before: Indexes = field(default_factory=Indexes)
    """Indexes that have succeeded according to the status."""
    done: Indexes = field(default_factory=Indexes)
    failed_indexes: Indexes | None = None
    """Failed indexes; None unless failures are counted per index."""
    held: dict[int, Obj] = field(default_factory=dict)
    """The failed Pod, by index, that is retained until its replacement has inherited its failure count."""

    @property
    def status(self) -> Obj:
        found: Obj = self.job["status"]
        return found

    @property
    def completions(self) -> int:
        return int(self.job["spec"].get("completions") or 0)


def observe(job: Obj, pods: Sequence[Obj], backoff: Backoff | None, now: datetime) -> Progress:
    """Compute the progress. `backoff` summarizes the failures so far; None means recompute it from the remaining
    Pods."""
    active = [pod for pod in pods if is_active(pod)]
    seen = Progress(
        job, list(pods), now, active,
        ready=sum(map(is_ready, active)), terminating=sum(map(is_terminating, pods)),
    )  # fmt: skip
    spec, status = job["spec"], seen.status
    uncounted = status.setdefault("uncountedTerminatedPods", {})
    waiting = {kind: uncounted.get(kind) or [] for kind in ("succeeded", "failed")}
    new_successes = _uncounted(seen, waiting["succeeded"], has_succeeded)
    new_failures = _uncounted(seen, waiting["failed"], lambda pod: has_failed(pod, job))
    counted_failures = sum(apply_failure_policy(job, pod).counts for pod in new_failures)
    seen.succeeded = status.get("succeeded", 0) + len(new_successes) + len(waiting["succeeded"])
    seen.failed = status.get("failed", 0) + counted_failures + len(waiting["failed"])
    if "startTime" not in status and not spec.get("suspend"):
        status["startTime"] = format_time(now)
    if backoff is None:
        backoff = _backoff_from_pods(pods)
    seen.backoff = backoff.after(new_successes, new_failures)
    seen.outcome = _outcome(seen)
    if is_indexed(job):
        _observe_indexes(seen)
    return seen


def deadline_in(seen: Progress) -> float | None:
    """Return the seconds until activeDeadlineSeconds have passed, or None."""
    limit, started = seen.job["spec"].get("activeDeadlineSeconds"), seen.status.get("startTime")
    if limit is None or started is None or seen.job["spec"].get("suspend"):
        return None
    return float(limit - (seen.now - parse_time(started)).total_seconds())


def _uncounted(seen: Progress, noted: Sequence[str], ended: Callable[[Obj], bool]) -> list[Obj]:
    """Return the Pods that have ended and are not recorded in the status."""
    known = set(noted)
    return [
        pod
        for pod in seen.pods
        if is_tracked(pod)
        and pod["metadata"]["uid"] not in known
        and (not is_indexed(seen.job) or index_within(pod, seen.completions) is not None)
        and ended(pod)
    ]


def _backoff_from_pods(pods: Sequence[Obj]) -> Backoff:
    counted = [pod for pod in pods if not is_tracked(pod)]
    return Backoff().after(
        [pod for pod in counted if has_succeeded(pod)], [pod for pod in counted if phase(pod) == "Failed"]
    )


# -- outcome --------------------------------------------------------------------------------------------------------


def _outcome(seen: Progress) -> Condition | None:
    """Return the outcome: an earlier decision stands, then failure precedes success."""
    job, now = seen.job, seen.now
    met = condition(job, SUCCESS_CRITERIA_MET)
    if met is not None and met["status"] == "True":
        return met
    target = condition(job, FAILURE_TARGET)
    if target is not None and target["status"] == "True":
        return new_condition(FAILED, target.get("reason", ""), target.get("message", ""), now)
    for pod in seen.pods:
        if has_failed(pod, job) and (message := apply_failure_policy(job, pod).message):
            return new_condition(FAILURE_TARGET, "PodFailurePolicy", message, now)
    if seen.failed > job["spec"]["backoffLimit"] or _restarted_too_often(seen):
        text = "Job has reached the specified backoff limit"
        return new_condition(FAILURE_TARGET, "BackoffLimitExceeded", text, now)
    left = deadline_in(seen)
    if left is not None and left <= 0:
        text = "Job was active longer than specified deadline"
        return new_condition(FAILURE_TARGET, "DeadlineExceeded", text, now)
    return None


def _restarted_too_often(seen: Progress) -> bool:
    """Return whether container restarts exceed the limit, where the kubelet restarts containers."""
    spec = seen.job["spec"]
    if spec["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(
        found.get("restartCount", 0)
        for pod in seen.pods
        if phase(pod) in ("Running", "Pending")
        for kind in ("initContainerStatuses", "containerStatuses")
        for found in pod["status"].get(kind) or ()
    )
    return bool(restarts >= max(spec["backoffLimit"], 1))


# -- indexes --------------------------------------------------------------------------------------------------------


def _observe_indexes(seen: Progress) -> None:
    job, now, completions = seen.job, seen.now, seen.completions
    seen.done_before = Indexes.parse(seen.status.get("completedIndexes", ""), completions)
    seen.done = seen.done_before | _newly(seen, has_succeeded)
    seen.succeeded = len(seen.done)
    if counts_failures_per_index(job):
        before = Indexes.parse(seen.status.get("failedIndexes") or "", completions)
        seen.failed_indexes = lost = before | _newly(seen, lambda pod: _index_failed(job, pod))
        if seen.outcome is None:
            most = job["spec"].get("maxFailedIndexes")
            if most is not None and len(lost) > most:
                text = "Job has exceeded the specified maximal number of failed indexes"
                seen.outcome = new_condition(FAILURE_TARGET, "MaxFailedIndexesExceeded", text, now)
            elif lost and len(lost) + len(seen.done) >= completions:
                seen.outcome = new_condition(FAILURE_TARGET, "FailedIndexes", "Job has failed indexes", now)
        seen.held = _held(seen, lost)
    if seen.outcome is None and (message := success_message(job, seen.done)):
        seen.outcome = new_condition(SUCCESS_CRITERIA_MET, "SuccessPolicy", message, now)


def _newly(seen: Progress, is_so: Callable[[Obj], bool]) -> Indexes:
    found = (index_within(pod, seen.completions) for pod in seen.pods if is_tracked(pod) and is_so(pod))
    return Indexes.of(index for index in found if index is not None)


def _index_failed(job: Obj, pod: Obj) -> bool:
    if not has_failed(pod, job):
        return False
    verdict = apply_failure_policy(job, pod)
    if verdict.action == "FailIndex":
        return True
    return verdict.counts and failures(pod) >= job["spec"]["backoffLimitPerIndex"]


def _held(seen: Progress, lost: Indexes) -> dict[int, Obj]:
    busy = indexes_of(seen.active)
    held: dict[int, Obj] = {}
    for pod in _uncounted(seen, (), lambda pod: has_failed(pod, seen.job)):
        index = index_within(pod, seen.completions)
        if index is None or index in seen.done or index in lost or index in busy:
            continue
        other = held.get(index)
        if other is None or (all_failures(other) <= all_failures(pod) and finished_at(other) <= finished_at(pod)):
            held[index] = pod
    return held
