"""The observed state of a Job and its Pods: counts, indexes, policies, backoff, and whether the Job is about to end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from setpoint.controllers.job.job_pods import (
    FAILED,
    FAILURE_TARGET,
    SUCCESS_CRITERIA_MET,
    Indexes,
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
    job_condition,
)
from setpoint.controllers.pods import is_active, is_ready, is_terminating, phase
from setpoint.meta.conditions import condition_of
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_time, parse_time

if TYPE_CHECKING:
    from setpoint.kinds.typed import Job, Pod

_FIRST_BACKOFF, _MAX_BACKOFF = 10.0, 600.0


class Verdict(NamedTuple):
    """The decision of the failure policy about a failed Pod."""

    action: str = ""
    """Ignore, FailIndex, Count or FailJob; empty if no rule matches."""
    message: str = ""
    """Why the Job fails; empty if it does not."""

    @property
    def counts(self) -> bool:
        """Return whether the failure counts towards the backoff limits."""
        return self.action != "Ignore"


def apply_failure_policy(job: Job, pod: Pod) -> Verdict:
    """Return the decision of the first rule that matches the Pod."""
    policy = job["spec"].get("podFailurePolicy") or {}
    for number, rule in enumerate(policy.get("rules") or ()):
        cause = _cause(rule, pod)
        if cause:
            action = rule["action"]
            message = f"{cause} matching {action} rule at index {number}" if action == "FailJob" else ""
            return Verdict(action, message)
    return Verdict()


def _cause(rule: Mapping[str, Any], pod: Pod) -> str:
    meta, status = pod["metadata"], pod.get("status") or {}
    name = f"{meta['namespace']}/{meta['name']}"
    codes = rule.get("onExitCodes")
    if codes is not None:
        for found in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
            ended = (found.get("state") or {}).get("terminated")
            if ended is not None and _matches(codes, found["name"], ended.get("exitCode", 0)):
                return f"Container {found['name']} for pod {name} failed with exit code {ended['exitCode']}"
        return ""
    patterns = rule.get("onPodConditions") or ()
    for condition in status.get("conditions") or ():
        if any((condition["type"], condition["status"]) == (each["type"], each["status"]) for each in patterns):
            return f"Pod {name} has condition {condition['type']}"
    return ""


def _matches(codes: Mapping[str, Any], container: str, code: int) -> bool:
    if code == 0 or codes.get("containerName") not in (None, container):
        return False
    listed = code in (codes.get("values") or ())
    return {"In": listed, "NotIn": not listed}.get(codes.get("operator", ""), False)


def success_message(job: Job, succeeded: Indexes) -> str:
    """Return why the success policy is met; empty if it is not."""
    policy, completions = job["spec"].get("successPolicy"), job["spec"].get("completions") or 0
    if policy is None or not succeeded:
        return ""
    for number, rule in enumerate(policy.get("rules") or ()):
        wanted, enough = rule.get("succeededIndexes"), rule.get("succeededCount")
        if wanted is not None:
            required = Indexes.parse(wanted, completions)
            there = required.common(succeeded)
            met = bool(required) and (there == len(required) or (enough is not None and there >= enough))
        else:
            met = enough is not None and len(succeeded) >= enough
        if met:
            return f"Matched rules at index {number}"
    return ""


# -- backoff ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FailureBackoff:
    """The backoff before a Job replaces a failed Pod: 10 s, doubled with each consecutive failure, up to 10 min."""

    failures: int = 0
    """Failures since the last success."""
    last: datetime | None = None
    """The time of the last failure; None if there is none."""

    def after(self, succeeded: Iterable[Pod], failed: Iterable[Pod]) -> FailureBackoff:
        """Return the backoff after these Pods have ended."""
        successes = sorted(map(finished_at, succeeded))
        ends = sorted(map(finished_at, failed))
        if successes:
            ends = [end for end in ends if end > successes[-1]]
            return FailureBackoff(len(ends), ends[-1] if ends else None)
        return FailureBackoff(self.failures + len(ends), ends[-1]) if ends else self

    def remaining(self, now: datetime) -> float:
        """Return the seconds until the next Pod may be created."""
        return _remaining(self.failures, self.last, now)


def remaining_for_index(last_failed: Pod | None, now: datetime) -> float:
    """Return the backoff of one index, whose Pods carry the number of earlier failures."""
    if last_failed is None:
        return 0.0
    return _remaining(all_failures(last_failed) + 1, finished_at(last_failed), now)


def _remaining(failures: int, last: datetime | None, now: datetime) -> float:
    if not failures or last is None:
        return 0.0
    wait = min(_FIRST_BACKOFF * 2.0 ** min(failures - 1, 32), _MAX_BACKOFF)
    return max(0.0, wait - (now - last).total_seconds())


# -- progress ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Progress:
    job: Job
    """The Job. Its `status` is a private copy that is modified; everything else is shared."""
    pods: list[Pod]
    now: datetime
    active: list[Pod]
    ready: int
    terminating: int
    succeeded: int = 0
    failed: int = 0
    backoff: FailureBackoff = field(default_factory=FailureBackoff)
    outcome: ObjView | None = None
    """The interim or terminal condition if the Job is to end, otherwise None."""
    done_before: Indexes = field(default_factory=Indexes)
    """Indexes that have succeeded according to the status."""
    done: Indexes = field(default_factory=Indexes)
    failed_indexes: Indexes | None = None
    """Failed indexes; None unless failures are counted per index."""
    held: dict[int, Pod] = field(default_factory=dict)
    """The failed Pod, by index, that is retained until its replacement has inherited its failure count."""

    @property
    def status(self) -> Obj:
        return cast("Obj", self.job["status"])

    @property
    def completions(self) -> int:
        return int(self.job["spec"].get("completions") or 0)


def observe(job: Job, pods: Sequence[Pod], backoff: FailureBackoff | None, now: datetime) -> Progress:
    """Compute the progress. `backoff` summarizes the failures so far; None means recompute it from the remaining
    Pods."""
    active = [pod for pod in pods if is_active(pod)]
    seen = Progress(
        job,
        list(pods),
        now,
        active,
        ready=sum(map(is_ready, active)),
        terminating=sum(map(is_terminating, pods)),
    )
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


def _uncounted(seen: Progress, noted: Sequence[str], ended: Callable[[Pod], bool]) -> list[Pod]:
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


def _backoff_from_pods(pods: Sequence[Pod]) -> FailureBackoff:
    counted = [pod for pod in pods if not is_tracked(pod)]
    return FailureBackoff().after(
        [pod for pod in counted if has_succeeded(pod)], [pod for pod in counted if phase(pod) == "Failed"]
    )


# -- outcome --------------------------------------------------------------------------------------------------------


def _outcome(seen: Progress) -> ObjView | None:
    """Return the outcome: an earlier decision stands, then failure precedes success."""
    job, now = seen.job, seen.now
    met = condition_of(job, SUCCESS_CRITERIA_MET)
    if met is not None and met["status"] == "True":
        return met
    target = condition_of(job, FAILURE_TARGET)
    if target is not None and target["status"] == "True":
        return job_condition(FAILED, target.get("reason", ""), target.get("message", ""), now)
    for pod in seen.pods:
        if has_failed(pod, job) and (message := apply_failure_policy(job, pod).message):
            return job_condition(FAILURE_TARGET, "PodFailurePolicy", message, now)
    if seen.failed > job["spec"]["backoffLimit"] or _restarted_too_often(seen):
        text = "Job has reached the specified backoff limit"
        return job_condition(FAILURE_TARGET, "BackoffLimitExceeded", text, now)
    left = deadline_in(seen)
    if left is not None and left <= 0:
        text = "Job was active longer than specified deadline"
        return job_condition(FAILURE_TARGET, "DeadlineExceeded", text, now)
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
        for statuses in (pod["status"].get("initContainerStatuses"), pod["status"].get("containerStatuses"))
        for found in statuses or ()
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
                seen.outcome = job_condition(FAILURE_TARGET, "MaxFailedIndexesExceeded", text, now)
            elif lost and len(lost) + len(seen.done) >= completions:
                seen.outcome = job_condition(FAILURE_TARGET, "FailedIndexes", "Job has failed indexes", now)
        seen.held = _held(seen, lost)
    if seen.outcome is None and (message := success_message(job, seen.done)):
        seen.outcome = job_condition(SUCCESS_CRITERIA_MET, "SuccessPolicy", message, now)


def _newly(seen: Progress, is_so: Callable[[Pod], bool]) -> Indexes:
    found = (index_within(pod, seen.completions) for pod in seen.pods if is_tracked(pod) and is_so(pod))
    return Indexes.of(index for index in found if index is not None)


def _index_failed(job: Job, pod: Pod) -> bool:
    if not has_failed(pod, job):
        return False
    verdict = apply_failure_policy(job, pod)
    if verdict.action == "FailIndex":
        return True
    return verdict.counts and failures(pod) >= job["spec"]["backoffLimitPerIndex"]


def _held(seen: Progress, lost: Indexes) -> dict[int, Pod]:
    busy = indexes_of(seen.active)
    held: dict[int, Pod] = {}
    for pod in _uncounted(seen, (), lambda pod: has_failed(pod, seen.job)):
        index = index_within(pod, seen.completions)
        if index is None or index in seen.done or index in lost or index in busy:
            continue
        other = held.get(index)
        if other is None or (all_failures(other) <= all_failures(pod) and finished_at(other) <= finished_at(pod)):
            held[index] = pod
    return held
