"""Computes which Pods a Job lacks and which are surplus, creates and deletes them, and removes their finalizers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from setpoint.client import Client
from setpoint.controllers.expectations import Expectations, WrittenRevisions
from setpoint.controllers.job.job_pods import (
    FAILURES,
    FINALIZER,
    IGNORED_FAILURES,
    INDEX,
    Indexes,
    counts_failures_per_index,
    failures,
    ignored_failures,
    index_of,
    index_within,
    indexes_of,
    is_indexed,
    is_tracked,
    replaces_only_failed,
)
from setpoint.controllers.job.progress import Progress, apply_failure_policy, remaining_for_index
from setpoint.controllers.pod_control import PODS, PodControl, is_namespace_terminating, slow_start
from setpoint.controllers.pods import is_ready, is_terminating, most_restarts, phase
from setpoint.meta.conditions import condition_of
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import parse_time
from setpoint.reconcile import Informer
from setpoint.reconcile.run import because

if TYPE_CHECKING:
    from setpoint.kinds.typed import Job, Pod

_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_LONGEST_PREFIX = 58
"""The length to which the server truncates a generateName before it appends the suffix."""
_MAX_AT_ONCE = 500
RELEASE = {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}


def _wanted_active(seen: Progress) -> int:
    spec = seen.job["spec"]
    parallelism: int = spec["parallelism"]
    if spec.get("completions") is None:
        # Any success ends the Job: running Pods continue, none are added.
        return len(seen.active) if seen.succeeded > 0 else parallelism
    return int(max(0, min(spec["completions"] - seen.succeeded, parallelism)))


def missing(seen: Progress) -> int:
    waited_for = seen.terminating if replaces_only_failed(seen.job) else 0
    return _wanted_active(seen) - waited_for - len(seen.active)


def pending_indexes(seen: Progress, count: int) -> list[int]:
    """Return the lowest indexes without an active Pod that have neither succeeded nor failed."""
    used = seen.done | Indexes.of(indexes_of(seen.active))
    if replaces_only_failed(seen.job):
        used |= Indexes.of(indexes_of(filter(is_terminating, seen.pods)))
    if seen.failed_indexes is not None:
        used |= seen.failed_indexes
    return used.first_missing(count, seen.completions)


def _due_indexes(seen: Progress, indexes: Sequence[int]) -> tuple[list[int], float]:
    """Return the indexes whose backoff is over; if there are none, the seconds until the first."""
    waits = [(index, remaining_for_index(seen.held.get(index), seen.now)) for index in indexes]
    due = [index for index, wait in waits if wait <= 0]
    return due, 0.0 if due else min((wait for _, wait in waits), default=0.0)


def too_many(job: Job, active: Sequence[Pod], at_least: int) -> list[Pod]:
    """Return the Pods to delete: of an indexed Job all duplicates and those without a valid index, and further ones up
    to `at_least`."""
    gone: list[Pod] = []
    left = list(active)
    if is_indexed(job):
        left = []
        by_index: dict[int, list[Pod]] = {}
        unindexed: list[Pod] = []
        for pod in active:
            index = index_within(pod, job["spec"].get("completions") or 0)
            if index is None:
                # Without an index first, then those beyond the last one.
                unindexed.append(pod)
            else:
                by_index.setdefault(index, []).append(pod)
        gone += sorted(unindexed, key=lambda pod: (index_of(pod) is not None, index_of(pod) or 0))
        for index in sorted(by_index):
            *others, best = sorted(by_index[index], key=_advance)
            gone += others
            left.append(best)
    if len(gone) < at_least:
        gone += sorted(left, key=_advance)[: at_least - len(gone)]
    return gone


def _advance(pod: Pod) -> tuple[Any, ...]:
    """Return the sort key by which Pods are deleted: those in an early phase first, then the youngest."""
    up = is_ready(pod)
    ready_since = (condition_of(pod, "Ready") or {}).get("lastTransitionTime", "") if up else ""
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


def _base_template(job: Job) -> ObjView:
    """Return the part of the Pod template that all new Pods share."""
    template = job["spec"]["template"]
    meta: Obj = dict(template.get("metadata") or {})
    finalizers = list(meta.get("finalizers") or ())
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    meta["finalizers"] = finalizers
    spec: Obj = dict(template["spec"])
    if is_indexed(job):
        for kind in ("initContainers", "containers"):
            if spec.get(kind):
                spec[kind] = [_with_index_variable(container) for container in spec[kind]]
    return {**template, "metadata": meta, "spec": spec}


def _indexed_template(seen: Progress, base: ObjView, index: int) -> Obj:
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


def indexed_name(job: Job, index: int) -> str:
    """Return the name prefix of an index's Pods; a long Job name is truncated so that the index fits."""
    ending = f"-{index}-"
    return f"{job['metadata']['name'][: _LONGEST_PREFIX - len(ending)]}{ending}"


def _with_index_variable(container: Obj) -> Obj:
    env = container.get("env") or []
    if any(variable["name"] == _INDEX_VARIABLE for variable in env):
        return container
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
    return {**container, "env": [*env, {"name": _INDEX_VARIABLE, "valueFrom": source}]}


def _inherited_failures(job: Job, replaced: Pod | None) -> dict[str, str]:
    counted, ignored = 0, 0
    if replaced is not None:
        counts = apply_failure_policy(job, replaced).counts
        counted, ignored = failures(replaced) + counts, ignored_failures(replaced) + (not counts)
    return {FAILURES: str(counted), **({IGNORED_FAILURES: str(ignored)} if ignored else {})}


# -- creating and deleting --------------------------------------------------------------------------------------------


class JobPods:
    """Acts on the Pods of Jobs. The counters in `seen` (ready, terminating) are updated accordingly."""

    def __init__(
        self,
        client: Client,
        control: PodControl,
        pods: Informer[Pod],
        expected: Expectations,
        written: WrittenRevisions,
    ) -> None:
        self._client = client
        self._control = control
        self._pods = pods
        self._expected = expected
        self._written = written

    async def adjust(self, key: str, seen: Progress) -> tuple[int, float, Exception | None]:
        """Create or delete Pods, never both in one reconcile. Return the number of active Pods, the seconds until the
        next reconcile (0 means none), and the first error."""
        job, active = seen.job, len(seen.active)
        if job["spec"].get("suspend"):
            to_delete = too_many(job, seen.active, active)
        else:
            to_delete = too_many(job, seen.active, max(0, active - _wanted_active(seen)))[:_MAX_AT_ONCE]
        if to_delete or job["spec"].get("suspend"):
            because("the Job is suspended" if job["spec"].get("suspend") else f"{active} Pods are active, too many")
            removed, failure = await self._remove(key, seen, to_delete)
            return active - removed, 0.0, failure
        count = missing(seen)
        if count <= 0:
            return active, 0.0, None
        if not counts_failures_per_index(job) and (wait := seen.backoff.remaining(seen.now)) > 0:
            return active, wait, None
        count = min(count, _MAX_AT_ONCE)
        indexes: list[int] = []
        if is_indexed(job):
            indexes = pending_indexes(seen, count)
            if counts_failures_per_index(job):
                indexes, wait = _due_indexes(seen, indexes)
                if wait > 0:
                    return active, wait, None
            count = len(indexes)
        because(f"{'1 Pod is' if active == 1 else f'{active} Pods are'} active, {active + count} needed")
        made, failure = await self._create(key, seen, count, iter(indexes))
        return active + made, 0.0, failure

    async def _create(
        self, key: str, seen: Progress, count: int, indexes: Iterator[int]
    ) -> tuple[int, Exception | None]:
        job, base = seen.job, _base_template(seen.job)

        async def create_one() -> None:
            index = next(indexes, None)
            try:
                if index is None:
                    await self._control.create(job, base)
                else:
                    await self._control.create(job, _indexed_template(seen, base, index), indexed_name(job, index))
            except ApiError as error:
                if not is_namespace_terminating(error):
                    raise

        self._expected.expect_creations(key, count)
        made = 0
        try:
            made, failure = await slow_start(count, create_one)
        finally:
            for _ in range(count - made):
                self._expected.creation_observed(key)
        return made, failure

    async def _remove(self, key: str, seen: Progress, to_delete: Sequence[Pod]) -> tuple[int, Exception | None]:
        """Delete Pods without counting them: remove the finalizer first."""

        async def remove_one(pod: Pod) -> None:
            try:
                await self._remove_finalizer(key, pod)
                await self._control.delete(seen.job, pod)
            except BaseException as error:
                self._expected.deletion_observed(key, pod["metadata"]["uid"])
                if not isinstance(error, NotFound):
                    raise

        if to_delete:
            self._expected.expect_deletions(key, (pod["metadata"]["uid"] for pod in to_delete))
        return await self._gone(seen, to_delete, remove_one)

    async def delete_active(self, seen: Progress) -> tuple[int, Exception | None]:
        """Delete all active Pods, which keep their finalizers until they are counted. Return how many are left, and the
        first error."""

        async def delete_one(pod: Pod) -> None:
            with suppress(NotFound):
                await self._control.delete(seen.job, pod)

        removed, failure = await self._gone(seen, seen.active, delete_one)
        return len(seen.active) - removed, failure

    async def _gone(
        self, seen: Progress, pods: Sequence[Pod], remove: Callable[[Pod], Awaitable[None]]
    ) -> tuple[int, Exception | None]:
        gone, failure = await _each(pods, remove)
        seen.terminating += len(gone)
        seen.ready -= sum(map(is_ready, gone))
        return len(gone), failure

    async def release(self, key: str, pods: Iterable[Pod]) -> tuple[set[str], Exception | None]:
        """Remove the finalizers of these Pods. Return the uids of those that have none any more, and the first
        error."""

        async def release_one(pod: Pod) -> None:
            with suppress(NotFound):
                await self._remove_finalizer(key, pod)

        released, failure = await _each(list(pods), release_one)
        return {pod["metadata"]["uid"] for pod in released}, failure

    async def _remove_finalizer(self, key: str, pod: Pod) -> None:
        if is_tracked(pod):
            meta = pod["metadata"]
            answer = await self._client.patch(PODS, meta["name"], RELEASE, meta["namespace"], kind="strategic")
            self._written.wrote(key, self._pods, answer)


async def _each(pods: Sequence[Pod], do: Callable[[Pod], Awaitable[None]]) -> tuple[list[Pod], Exception | None]:
    """Run `do` for all Pods concurrently. Return those for which it succeeded, and the first error."""
    outcomes = await asyncio.gather(*(do(pod) for pod in pods), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
            raise outcome
    succeeded = [pod for pod, outcome in zip(pods, outcomes, strict=True) if outcome is None]
    return succeeded, next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None)
