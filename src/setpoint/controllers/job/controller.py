"""The Job controller: event handlers and reconcile."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.controller_group import ControllerGroup
from setpoint.controllers.expectations import Expectations
from setpoint.controllers.job.backoff import Backoff
from setpoint.controllers.job.job_conditions import (
    COMPLETE,
    SUCCESS_CRITERIA_MET,
    SUSPENDED,
    is_finished,
    new_condition,
    set_condition,
)
from setpoint.controllers.job.job_pods import FINALIZER, is_tracked
from setpoint.controllers.job.manage import JobPods
from setpoint.controllers.job.orphans import OrphanPods
from setpoint.controllers.job.progress import Progress, deadline_in, observe
from setpoint.controllers.job.tally import Noted, count_released, finish, note_ended
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.ownership import Claim
from setpoint.controllers.pod_control import PODS, PodControl
from setpoint.controllers.pod_owners import PodOwners
from setpoint.controllers.written_revisions import WrittenRevisions
from setpoint.meta.clock import Clock
from setpoint.meta.selectors import from_label_selector
from setpoint.meta.times import format_time
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of
from setpoint.reconcile.keys import controller_of
from setpoint.reconcile.rate_limiting import ExponentialBackoff, RateLimitingQueue

Obj = dict[str, Any]

JOBS = builtin("jobs", "batch")
OWN_NAME = "kubernetes.io/job-controller"
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0
_BATCH = 1.0
"""Seconds by which Pod changes are delayed, so that those of a large Job coalesce."""


def job_controller(manager: Manager, options: ControllerOptions) -> ControllerGroup:
    name, workers = "job-controller", options.concurrent_job_syncs
    client, recorder = manager.client_for(name), manager.recorder(name)
    jobs, pods = manager.informer(JOBS), manager.informer(PODS)
    reconciler = Jobs(client, manager.clock, jobs, pods, recorder)
    controller = Controller(name, reconciler.reconcile, manager.clock, workers=workers, queue=_queue(manager.clock))
    orphans = OrphanPods(client, jobs, pods)
    releasing = Controller(
        f"{name} (orphans)", orphans.reconcile, manager.clock, workers=workers, queue=_queue(manager.clock)
    )
    reconciler.watch(controller, releasing.enqueue)
    return ControllerGroup(controller, releasing)


def _queue(clock: Clock) -> RateLimitingQueue:
    return RateLimitingQueue(clock, (ExponentialBackoff(_FIRST_RETRY, _LONGEST_RETRY),))


class Jobs:
    def __init__(
        self, client: Client, clock: Clock, jobs: Informer, pods: Informer, recorder: EventRecorder
    ) -> None:  # fmt: skip
        self._client = client
        self._clock = clock
        self._jobs = jobs
        self._pods = pods
        self._recorder = recorder
        self._owners = PodOwners("Job", jobs)
        self._expected = Expectations(clock)
        self._written = WrittenRevisions()
        self._backoffs: dict[str, Backoff] = {}
        """Backoff by key. A cache: a missing entry is recomputed from the remaining Pods."""
        self._job_pods = JobPods(client, PodControl(client, recorder), pods, self._expected, self._written)

    # -- event handlers ---------------------------------------------------------------------------------------------

    def watch(self, controller: Controller, release: Callable[[str], None]) -> None:
        """Register the handlers. `release(key)` enqueues the removal of a Pod's finalizer that no Job will remove."""

        def job_changed(old: Obj | None, new: Obj | None) -> None:
            job = new or old or {}
            key = key_of(job)
            if new is None or is_finished(new):
                for pod in self._selected(job):
                    if is_tracked(pod):
                        release(key_of(pod))
            if new is None:
                self._forget(key)
            same_spec = (
                old is not None and new is not None and (old["metadata"]["generation"] == new["metadata"]["generation"])
            )
            controller.queue.add_after(key, _BATCH if same_spec else 0)

        def pod_changed(old: Obj | None, new: Obj | None) -> None:
            for key in self._affected(old, new):
                controller.queue.add_after(key, _BATCH)
            pod = new or old or {}
            if new is not None and is_tracked(pod) and self._is_untracked(pod):
                release(key_of(pod))

        self._jobs.add_handler(job_changed)
        self._pods.add_handler(pod_changed)

    def _selected(self, job: Obj) -> Iterable[Obj]:
        meta = job["metadata"]
        selector = from_label_selector(job["spec"]["selector"])
        orphans = (pod for pod in self._pods.orphans(meta["namespace"]) if selector.matches(_labels(pod)))
        return [*self._pods.controlled_by(meta["uid"]), *orphans]

    def _is_untracked(self, pod: Obj) -> bool:
        """Return whether no reconcile of a Job will remove the Pod's finalizer. An unknown Job may just be new, unless
        the Pod is being deleted."""
        if controller_of(pod) is None:
            return True
        key = self._owners.key(pod)
        if key is None:
            return "deletionTimestamp" in pod["metadata"]
        return is_finished(self._jobs.items[key])

    def _affected(self, old: Obj | None, new: Obj | None) -> list[str]:
        """Return the keys of the Jobs that a Pod change concerns, and record the observation in the expectations."""
        pod = new or old or {}
        keys = self._owners.affected(old, new)
        if new is None or "deletionTimestamp" in new["metadata"]:
            for key in keys:
                self._expected.deletion_observed(key, pod["metadata"]["uid"])
        elif old is None and (after := self._owners.key(new)) is not None:
            self._expected.creation_observed(after)
        return keys

    # -- reconcile --------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Result | None:
        cached = self._jobs.get(key)
        if cached is None:
            self._forget(key)
            return None
        if cached["spec"].get("managedBy") not in (None, OWN_NAME):
            return None
        if is_finished(cached):
            self._forget(key)
            return None
        if not self._written.seen(key):
            return Result(retry=True)
        # Check before the first await: the expectations refer to the cache as it is now.
        may_act = self._expected.satisfied(key)
        job = {**cached, "status": copy.deepcopy(cached.get("status") or {})}
        pods = await self._claimed(job)
        seen = observe(job, pods, self._backoffs.get(key), self._clock.now())
        again = None if seen.outcome is not None else deadline_in(seen)
        changed = False
        if seen.outcome is not None:
            active, failure = await self._job_pods.delete_active(seen)
            if active or not may_act:
                # Not finished yet: there may be Pods that the cache does not show or that could not be deleted.
                seen.outcome = None
        else:
            active, failure = len(seen.active), None
            managed = may_act and "deletionTimestamp" not in job["metadata"]
            if managed:
                active, wait, failure = await self._job_pods.adjust(key, seen)
                if wait:
                    again = min(wait, again) if again is not None else wait
            if _is_complete(seen, active):
                text = "Reached expected number of succeeded pods"
                seen.outcome = new_condition(SUCCESS_CRITERIA_MET, "CompletionsReached", text, seen.now)
            elif managed:
                changed = self._note_suspension(seen)
        changed |= _write_counts(seen, active)
        await self._track(key, seen, changed)
        if failure is not None:
            raise failure
        return Result(requeue_after=max(again, _BATCH)) if again is not None else None

    def _forget(self, key: str) -> None:
        self._expected.forget(key)
        self._written.forget(key)
        self._backoffs.pop(key, None)

    async def _claimed(self, job: Obj) -> list[Obj]:
        meta = job["metadata"]
        selector = from_label_selector(job["spec"]["selector"])
        candidates = [*self._pods.controlled_by(meta["uid"]), *self._pods.orphans(meta["namespace"])]
        claimed = await Claim(self._client, JOBS, job, PODS, selector, FINALIZER).claimed(candidates)
        return [pod if controller_of(pod) is not None else _with_finalizer(pod) for pod in claimed]

    def _note_suspension(self, seen: Progress) -> bool:
        suspended = bool(seen.job["spec"].get("suspend"))
        status, word = ("True", "Suspended") if suspended else ("False", "Resumed")
        wanted = new_condition(SUSPENDED, f"Job{word}", f"Job {word.lower()}", seen.now, status)
        if not set_condition(seen.status, wanted):
            return False
        self._recorder.normal(seen.job, word, f"Job {word.lower()}")
        if suspended:
            seen.status.pop("startTime", None)
        else:
            # The deadline applies to the time that the Job is active without interruption.
            seen.status["startTime"] = format_time(seen.now)
        return True

    # -- counting ---------------------------------------------------------------------------------------------------

    async def _track(self, key: str, seen: Progress, changed: bool) -> None:
        noted = note_ended(seen)
        if changed or noted.changed:
            await self._write(key, seen)
            self._backoffs[key] = seen.backoff
        changed = await self._release(key, seen, noted)
        finished = noted.complete and finish(seen)
        if changed or finished:
            await self._write(key, seen)
        if finished:
            self._announce(seen)

    async def _release(self, key: str, seen: Progress, noted: Noted) -> bool:
        """Remove finalizers. Return whether the status must be written again afterwards."""
        tracked = {pod["metadata"]["uid"] for pod in seen.pods if is_tracked(pod)}
        released, failure = await self._job_pods.release(key, noted.release)
        changed = count_released(seen.status, tracked - released)
        if failure is None:
            return changed
        if changed:
            await self._write(key, seen)
        raise failure

    async def _write(self, key: str, seen: Progress) -> None:
        written = await self._client.update(seen.job, subresource="status")
        # Copy the status to continue with: the written object is shared.
        seen.job = {**written, "status": {"uncountedTerminatedPods": {}, **(written.get("status") or {})}}
        self._written.wrote(key, self._jobs, seen.job)

    def _announce(self, seen: Progress) -> None:
        job, outcome = seen.job, seen.outcome
        assert outcome is not None
        if outcome["type"] != COMPLETE:
            self._recorder.warning(job, outcome["reason"], outcome["message"])
            return
        completions = job["spec"].get("completions")
        if completions is not None and job["status"].get("succeeded", 0) > completions:
            text = "Too many succeeded pods running after completion count reached"
            self._recorder.warning(job, "TooManySucceededPods", text)
        self._recorder.normal(job, "Completed", "Job completed")


def _labels(pod: Obj) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}


def _with_finalizer(pod: Obj) -> Obj:
    """Return the Pod as the cache will show it after the adoption, with the finalizer."""
    if is_tracked(pod):
        return pod
    meta = pod["metadata"]
    return {**pod, "metadata": {**meta, "finalizers": [*(meta.get("finalizers") or ()), FINALIZER]}}


def _is_complete(seen: Progress, active: int) -> bool:
    completions = seen.job["spec"].get("completions")
    enough = seen.succeeded > 0 if completions is None else seen.succeeded >= completions
    return enough and active == 0


def _write_counts(seen: Progress, active: int) -> bool:
    status = seen.status
    before = (status.get("active", 0), status.get("ready"), status.get("terminating"))
    status["active"] = active
    if not active:
        del status["active"]
    status["ready"], status["terminating"] = seen.ready, seen.terminating
    return before != (active, seen.ready, seen.terminating)
