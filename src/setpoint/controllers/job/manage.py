"""Creates and deletes a Job's Pods and removes their finalizers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.controllers.expectations import Expectations
from setpoint.controllers.job.job_pods import FINALIZER, counts_failures_per_index, is_indexed, is_tracked
from setpoint.controllers.job.pods_wanted import (
    base_template,
    due_indexes,
    indexed_name,
    indexed_template,
    missing,
    pending_indexes,
    too_many,
    wanted_active,
)
from setpoint.controllers.job.progress import Progress
from setpoint.controllers.pod_control import PODS, PodControl, is_namespace_terminating
from setpoint.controllers.pods import is_ready
from setpoint.controllers.slow_start import slow_start
from setpoint.controllers.written_revisions import WrittenRevisions
from setpoint.meta.errors import ApiError, NotFound
from setpoint.reconcile import Informer

Obj = dict[str, Any]

_MOST_AT_ONCE = 500
RELEASE = {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}


class JobPods:
    """Acts on the Pods of Jobs. The counters in `seen` (ready, terminating) are updated accordingly."""

    def __init__(
        self, client: Client, control: PodControl, pods: Informer, expected: Expectations, written: WrittenRevisions
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
            doomed = too_many(job, seen.active, active)
        else:
            doomed = too_many(job, seen.active, max(0, active - wanted_active(seen)))[:_MOST_AT_ONCE]
        if doomed or job["spec"].get("suspend"):
            removed, failure = await self._remove(key, seen, doomed)
            return active - removed, 0.0, failure
        count = missing(seen)
        if count <= 0:
            return active, 0.0, None
        if not counts_failures_per_index(job) and (wait := seen.backoff.remaining(seen.now)) > 0:
            return active, wait, None
        count = min(count, _MOST_AT_ONCE)
        indexes: list[int] = []
        if is_indexed(job):
            indexes = pending_indexes(seen, count)
            if counts_failures_per_index(job):
                indexes, wait = due_indexes(seen, indexes)
                if wait > 0:
                    return active, wait, None
            count = len(indexes)
        made, failure = await self._create(key, seen, count, iter(indexes))
        return active + made, 0.0, failure

    async def _create(
        self, key: str, seen: Progress, count: int, indexes: Iterator[int]
    ) -> tuple[int, Exception | None]:
        job, base = seen.job, base_template(seen.job)

        async def create_one() -> None:
            index = next(indexes, None)
            try:
                if index is None:
                    await self._control.create(job, base)
                else:
                    await self._control.create(job, indexed_template(seen, base, index), indexed_name(job, index))
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

    async def _remove(self, key: str, seen: Progress, doomed: Sequence[Obj]) -> tuple[int, Exception | None]:
        """Delete Pods without counting them: remove the finalizer first."""

        async def remove_one(pod: Obj) -> None:
            try:
                await self._remove_finalizer(key, pod)
                await self._control.delete(seen.job, pod)
            except BaseException as error:
                self._expected.deletion_observed(key, pod["metadata"]["uid"])
                if not isinstance(error, NotFound):
                    raise

        if doomed:
            self._expected.expect_deletions(key, (pod["metadata"]["uid"] for pod in doomed))
        return await self._gone(seen, doomed, remove_one)

    async def delete_active(self, seen: Progress) -> tuple[int, Exception | None]:
        """Delete all active Pods, which keep their finalizers until they are counted. Return how many are left, and the
        first error."""

        async def delete_one(pod: Obj) -> None:
            with suppress(NotFound):
                await self._control.delete(seen.job, pod)

        removed, failure = await self._gone(seen, seen.active, delete_one)
        return len(seen.active) - removed, failure

    async def _gone(
        self, seen: Progress, pods: Sequence[Obj], remove: Callable[[Obj], Awaitable[None]]
    ) -> tuple[int, Exception | None]:
        gone, failure = await _each(pods, remove)
        seen.terminating += len(gone)
        seen.ready -= sum(map(is_ready, gone))
        return len(gone), failure

    async def release(self, key: str, pods: Iterable[Obj]) -> tuple[set[str], Exception | None]:
        """Remove the finalizers of these Pods. Return the uids of those that have none any more, and the first
        error."""

        async def release_one(pod: Obj) -> None:
            with suppress(NotFound):
                await self._remove_finalizer(key, pod)

        released, failure = await _each(list(pods), release_one)
        return {pod["metadata"]["uid"] for pod in released}, failure

    async def _remove_finalizer(self, key: str, pod: Obj) -> None:
        if is_tracked(pod):
            meta = pod["metadata"]
            answer = await self._client.patch(PODS, meta["name"], RELEASE, meta["namespace"], kind="strategic")
            self._written.wrote(key, self._pods, answer)


async def _each(pods: Sequence[Obj], do: Callable[[Obj], Awaitable[None]]) -> tuple[list[Obj], Exception | None]:
    """Run `do` for all Pods concurrently. Return those for which it succeeded, and the first error."""
    outcomes = await asyncio.gather(*(do(pod) for pod in pods), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
            raise outcome
    well = [pod for pod, outcome in zip(pods, outcomes, strict=True) if outcome is None]
    return well, next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None)
