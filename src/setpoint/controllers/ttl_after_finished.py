"""Deletes finished Jobs with `ttlSecondsAfterFinished` and their Pods after that time."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, cast

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.job.job_pods import finished_condition
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Clock
from setpoint.meta.errors import NotFound
from setpoint.meta.times import parse_time
from setpoint.reconcile import Controller, Informer, Manager, Result, key_of, split_key
from setpoint.reconcile.run import because

if TYPE_CHECKING:
    from setpoint.kinds.typed import Job

_JOBS = builtin("jobs", "batch")


def ttl_after_finished_controller(manager: Manager, options: ControllerOptions) -> Controller:
    name = "ttl-after-finished-controller"
    jobs = manager.informer(_JOBS)
    reconciler = FinishedJobs(manager.client_for(name), manager.clock, jobs)
    controller = Controller(
        name, reconciler.reconcile, manager.clock, workers=options.concurrent_ttl_after_finished_syncs
    )

    def job_changed(old: Job | None, new: Job | None) -> None:
        if new is not None and _expires_at(new) is not None:
            controller.enqueue(key_of(new))

    jobs.add_handler(job_changed)
    return controller


class FinishedJobs:
    def __init__(self, client: Client, clock: Clock, jobs: Informer[Job]) -> None:
        self._client = client
        self._clock = clock
        self._jobs = jobs

    async def reconcile(self, key: str) -> Result | None:
        job = self._jobs.get(key)
        left = self._seconds_left(job) if job is not None else None
        if left is None:
            return None
        if left > 0:
            return Result(requeue_after=left)
        # Read the Job from the server: the TTL may have been extended since the cache was updated.
        namespace, name = split_key(key)
        with suppress(NotFound):
            fresh = cast("Job", await self._client.get(_JOBS, name, namespace))
            left = self._seconds_left(fresh)
            if left is None:
                return None
            if left > 0:
                return Result(requeue_after=left)
            because(f"the Job ended {fresh['spec'].get('ttlSecondsAfterFinished')} s ago, its ttlSecondsAfterFinished")
            uid = fresh["metadata"]["uid"]
            await self._client.delete(_JOBS, name, namespace, propagation="Foreground", uid=uid)
        return None

    def _seconds_left(self, job: Job) -> float | None:
        at = _expires_at(job)
        return None if at is None else (at - self._clock.now()).total_seconds()


def _expires_at(job: Job) -> datetime | None:
    """Return the expiry, or None if the Job is not finished, is being deleted, or has no TTL."""
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is None or "deletionTimestamp" in job["metadata"]:
        return None
    finished = finished_condition(job)
    return None if finished is None else parse_time(finished["lastTransitionTime"]) + timedelta(seconds=ttl)
