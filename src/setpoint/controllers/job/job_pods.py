"""Facts about a Job and its Pods: its conditions, how and when Pods ended, and sets of completion indexes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from setpoint.controllers.pods import phase
from setpoint.meta.conditions import condition_of, conditions_of, new_condition
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_time, parse_time

if TYPE_CHECKING:
    from setpoint.kinds.typed import Job, Pod

COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
SUCCESS_CRITERIA_MET, FAILURE_TARGET = "SuccessCriteriaMet", "FailureTarget"
"""Written before the finalizers of the last Pods are removed; Complete or Failed follow when all are counted."""
FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
"""The name of both an annotation and a label."""
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"
_GREATEST = 2**31 - 1
Span = tuple[int, int]


def finished_condition(job: Job) -> ObjView | None:
    """Return the Complete or Failed condition if it is true, or None while the Job is active."""
    for found in conditions_of(job):
        if found["type"] in (COMPLETE, FAILED) and found["status"] == "True":
            return found
    return None


def is_finished(job: Job) -> bool:
    return finished_condition(job) is not None


def job_condition(kind: str, reason: str, message: str, now: datetime, status: str = "True") -> Obj:
    return {**new_condition(kind, status, reason, message, now), "lastProbeTime": format_time(now)}


def set_job_condition(status: Obj, wanted: ObjView) -> bool:
    """Set a condition and return whether that changed anything. A condition that was never present is not added as
    False."""
    conditions: list[ObjView] = list(status.get("conditions") or ())
    for place, found in enumerate(conditions):
        if found["type"] == wanted["type"]:
            if all(found.get(key) == wanted[key] for key in ("status", "reason", "message")):
                return False
            conditions[place] = wanted
            break
    else:
        if wanted["status"] == "False":
            return False
        conditions.append(wanted)
    status["conditions"] = conditions
    return True


# -- Pods -------------------------------------------------------------------------------------------------------------


def is_indexed(job: Job) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def counts_failures_per_index(job: Job) -> bool:
    return job["spec"].get("backoffLimitPerIndex") is not None


def replaces_only_failed(job: Job) -> bool:
    return bool(job["spec"].get("podReplacementPolicy") == "Failed")


def is_tracked(pod: Pod) -> bool:
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def has_succeeded(pod: Pod) -> bool:
    return phase(pod) == "Succeeded"


def has_failed(pod: Pod, job: Job) -> bool:
    """Return whether the Pod failed. A Pod being deleted counts, because it may never end, unless the Job waits for its
    end."""
    if phase(pod) == "Failed":
        return True
    return not replaces_only_failed(job) and "deletionTimestamp" in pod["metadata"] and not has_succeeded(pod)


def index_of(pod: Pod) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def index_within(pod: Pod, completions: int) -> int | None:
    """Return the Pod's index, or None if it has none or one that the Job does not have."""
    index = index_of(pod)
    return index if index is not None and index < completions else None


def indexes_of(pods: Iterable[Pod]) -> set[int]:
    return {index for pod in pods if (index := index_of(pod)) is not None}


def failures(pod: Pod) -> int:
    """Return the failures at the Pod's index before it that count towards the limit."""
    return _count(pod, FAILURES)


def all_failures(pod: Pod) -> int:
    return _count(pod, FAILURES) + _count(pod, IGNORED_FAILURES)


def ignored_failures(pod: Pod) -> int:
    return _count(pod, IGNORED_FAILURES)


def _count(pod: Pod, name: str) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(name, "")
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
    return number if number <= _GREATEST else 0


def finished_at(pod: Pod) -> datetime:
    """Return when the last container ended; failing that, when the Pod became unready, was deleted, or was created."""
    ended = _containers_ended(pod)
    if ended is not None:
        return ended
    ready = condition_of(pod, "Ready")
    if ready is not None and ready.get("status") == "False" and ready.get("lastTransitionTime"):
        return parse_time(ready["lastTransitionTime"])
    meta = pod["metadata"]
    if "deletionTimestamp" in meta:
        return parse_time(meta["deletionTimestamp"]) - timedelta(seconds=meta.get("deletionGracePeriodSeconds") or 0)
    return parse_time(meta["creationTimestamp"])


def _containers_ended(pod: Pod) -> datetime | None:
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


# -- completion indexes -----------------------------------------------------------------------------------------------


class Indexes:
    """An immutable set of indexes. Spans are sorted and not adjacent."""

    __slots__ = ("spans",)

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        joined: list[Span] = []
        for first, last in sorted(spans):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(joined[-1][1], last))
            else:
                joined.append((first, last))
        self.spans: tuple[Span, ...] = tuple(joined)

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Indexes:
        return cls((number, number) for number in numbers)

    @classmethod
    def parse(cls, text: str, completions: int) -> Indexes:
        """Parse the indexes below `completions`, ignoring invalid parts."""
        spans: list[Span] = []
        for part in filter(None, text.split(",")):
            low, *high = part.split("-")
            if not low.isdecimal() or (high and not high[0].isdecimal()):
                continue
            first = int(low)
            if first >= completions:
                break
            spans.append((first, min(int(high[0]), completions - 1) if high else first))
        return cls(spans)

    def __or__(self, other: Indexes) -> Indexes:
        return Indexes((*self.spans, *other.spans))

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.spans, (number, 2**63)) - 1
        return at >= 0 and number <= self.spans[at][1]

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.spans)

    def __str__(self) -> str:
        return ",".join(_written(first, last) for first, last in self.spans)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Indexes) and self.spans == other.spans

    def __hash__(self) -> int:
        return hash(self.spans)

    def common(self, other: Indexes) -> int:
        """Return the size of the intersection."""
        shared, mine, theirs = 0, 0, 0
        while mine < len(self.spans) and theirs < len(other.spans):
            (first, last), (other_first, other_last) = self.spans[mine], other.spans[theirs]
            shared += max(0, min(last, other_last) - max(first, other_first) + 1)
            if last <= other_last:
                mine += 1
            if other_last <= last:
                theirs += 1
        return shared

    def first_missing(self, count: int, completions: int) -> list[int]:
        """Return the lowest `count` numbers below `completions` that are missing."""
        found: list[int] = []
        candidate = 0
        for first, last in (*self.spans, (completions, completions)):
            found += range(candidate, min(first, completions, candidate + count - len(found)))
            candidate = max(candidate, last + 1)
            if len(found) >= count:
                break
        return found


def _written(first: int, last: int) -> str:
    if last <= first:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
