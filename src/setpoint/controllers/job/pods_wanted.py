"""Computes which Pods a Job lacks and which are surplus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from setpoint.controllers.conditions import condition
from setpoint.controllers.job.backoff import remaining_for_index
from setpoint.controllers.job.indexes import Indexes
from setpoint.controllers.job.job_pods import (
    FAILURES,
    FINALIZER,
    IGNORED_FAILURES,
    INDEX,
    counts_failures_per_index,
    failures,
    ignored_failures,
    index_of,
    index_within,
    indexes_of,
    is_indexed,
    replaces_only_failed,
)
from setpoint.controllers.job.policies import apply_failure_policy
from setpoint.controllers.job.progress import Progress
from setpoint.controllers.pods import is_ready, is_terminating, most_restarts, phase
from setpoint.meta.times import parse_time

Obj = dict[str, Any]

_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_LONGEST_PREFIX = 58
"""The length to which the server truncates a generateName before it appends the suffix."""


def wanted_active(seen: Progress) -> int:
    spec = seen.job["spec"]
    parallelism: int = spec["parallelism"]
    if spec.get("completions") is None:
        # Any success ends the Job: running Pods continue, none are added.
        return len(seen.active) if seen.succeeded > 0 else parallelism
    return int(max(0, min(spec["completions"] - seen.succeeded, parallelism)))


def missing(seen: Progress) -> int:
    waited_for = seen.terminating if replaces_only_failed(seen.job) else 0
    return wanted_active(seen) - waited_for - len(seen.active)


def pending_indexes(seen: Progress, count: int) -> list[int]:
    """Return the lowest indexes without an active Pod that have neither succeeded nor failed."""
    taken = seen.done | Indexes.of(indexes_of(seen.active))
    if replaces_only_failed(seen.job):
        taken |= Indexes.of(indexes_of(filter(is_terminating, seen.pods)))
    if seen.failed_indexes is not None:
        taken |= seen.failed_indexes
    return taken.first_missing(count, seen.completions)


def due_indexes(seen: Progress, indexes: Sequence[int]) -> tuple[list[int], float]:
    """Return the indexes whose backoff is over; if there are none, the seconds until the first."""
    waits = [(index, remaining_for_index(seen.held.get(index), seen.now)) for index in indexes]
    due = [index for index, wait in waits if wait <= 0]
    return due, 0.0 if due else min((wait for _, wait in waits), default=0.0)


def too_many(job: Obj, active: Sequence[Obj], at_least: int) -> list[Obj]:
    """Return the Pods to delete: of an indexed Job all duplicates and those without a valid index, and further ones up
    to `at_least`."""
    gone: list[Obj] = []
    left = list(active)
    if is_indexed(job):
        left = []
        by_index: dict[int, list[Obj]] = {}
        nowhere: list[Obj] = []
        for pod in active:
            index = index_within(pod, job["spec"].get("completions") or 0)
            if index is None:
                # Without an index first, then those beyond the last one.
                nowhere.append(pod)
            else:
                by_index.setdefault(index, []).append(pod)
        gone += sorted(nowhere, key=lambda pod: (index_of(pod) is not None, index_of(pod) or 0))
        for index in sorted(by_index):
            *others, best = sorted(by_index[index], key=_advance)
            gone += others
            left.append(best)
    if len(gone) < at_least:
        gone += sorted(left, key=_advance)[: at_least - len(gone)]
    return gone


def _advance(pod: Obj) -> tuple[Any, ...]:
    """Return the sort key by which Pods are deleted: those in an early phase first, then the youngest."""
    up = is_ready(pod)
    ready_since = (condition(pod, "Ready") or {}).get("lastTransitionTime", "") if up else ""
    return (
        bool(pod["spec"].get("nodeName")),
        {"Unknown": 1, "Running": 2}.get(phase(pod), 0),
        up,
        _youngest_first(ready_since),
        -most_restarts(pod),
        _youngest_first(pod["metadata"].get("creationTimestamp", "")),
        pod["metadata"]["uid"],
    )


def _youngest_first(stamp: str) -> float:
    return -parse_time(stamp).timestamp() if stamp else float("-inf")


def base_template(job: Obj) -> Obj:
    """Return the part of the Pod template that all new Pods share."""
    template: Obj = job["spec"]["template"]
    meta = dict(template.get("metadata") or {})
    finalizers = list(meta.get("finalizers") or ())
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    meta["finalizers"] = finalizers
    spec = dict(template["spec"])
    if is_indexed(job):
        for kind in ("initContainers", "containers"):
            if spec.get(kind):
                spec[kind] = [_with_index_variable(container) for container in spec[kind]]
    return {**template, "metadata": meta, "spec": spec}


def indexed_template(seen: Progress, base: Obj, index: int) -> Obj:
    job, meta = seen.job, base["metadata"]
    annotations = {**(meta.get("annotations") or {}), INDEX: str(index)}
    if counts_failures_per_index(job):
        annotations |= _inherited_failures(job, seen.held.get(index))
    labels = {**(meta.get("labels") or {}), INDEX: str(index)}
    hostname = f"{job['metadata']['name']}-{index}"
    return {
        **base,
        "metadata": {**meta, "annotations": annotations, "labels": labels},
        "spec": {**base["spec"], "hostname": hostname},
    }


def indexed_name(job: Obj, index: int) -> str:
    """Return the name prefix of an index's Pods; a long Job name is truncated so that the index fits."""
    ending = f"-{index}-"
    return f"{job['metadata']['name'][: _LONGEST_PREFIX - len(ending)]}{ending}"


def _with_index_variable(container: Obj) -> Obj:
    env = container.get("env") or []
    if any(variable["name"] == _INDEX_VARIABLE for variable in env):
        return container
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
    return {**container, "env": [*env, {"name": _INDEX_VARIABLE, "valueFrom": source}]}


def _inherited_failures(job: Obj, replaced: Obj | None) -> dict[str, str]:
    counted, ignored = 0, 0
    if replaced is not None:
        counts = apply_failure_policy(job, replaced).counts
        counted, ignored = failures(replaced) + counts, ignored_failures(replaced) + (not counts)
    return {FAILURES: str(counted), **({IGNORED_FAILURES: str(ignored)} if ignored else {})}
