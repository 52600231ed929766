"""The Job controller: event handlers, reconcile, and the release of Pods that no Job will count."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.expectations import Expectations, WrittenRevisions
from setpoint.controllers.job.job_pods import (
    COMPLETE,
    FINALIZER,
    SUCCESS_CRITERIA_MET,
    SUSPENDED,
    is_finished,
    is_tracked,
    job_condition,
    set_job_condition,
)
from setpoint.controllers.job.manage import RELEASE, JobPods
from setpoint.controllers.job.progress import FailureBackoff, Progress, deadline_in, observe
from setpoint.controllers.job.tally import Recorded, count_released, finish, record_ended
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.ownership import Claim, PodOwners
from setpoint.controllers.pod_control import PODS, PodControl
from setpoint.meta.clock import Clock
from setpoint.meta.errors import NotFound
from setpoint.meta.selectors import from_label_selector
from setpoint.meta.times import format_time
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of
from setpoint.reconcile.keys import controller_of
from setpoint.reconcile.manager import ControllerGroup
from setpoint.reconcile.workqueue import ExponentialBackoff, RateLimitingQueue

if TYPE_CHECKING:
    from setpoint.kinds.typed import Job, Pod

_JOBS = builtin("jobs", "batch")
_OWN_NAME = "kubernetes.io/job-controller"
_INITIAL_BACKOFF, _MAX_BACKOFF = 1.0, 60.0
_BATCH = 1.0
"""Seconds by which Pod changes are delayed, so that those of a large Job coalesce."""


class OrphanPods:
    """Removes the tracking finalizer from Pods that no Job will count."""

    def __init__(self, client: Client, jobs: Informer[Job], pods: Informer[Pod]) -> None:
        self._client = client
        self._jobs = jobs
        self._pods = pods

    async def reconcile(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or not is_tracked(pod) or self._has_job(pod):
            return
        meta = pod["metadata"]
        with suppress(NotFound):
            await self._client.patch(PODS, meta["name"], RELEASE, meta["namespace"], kind="strategic")

    def _has_job(self, pod: Pod) -> bool:
        owner = controller_of(pod)
        if owner is None:
            return False
        if owner["kind"] != "Job" or owner["apiVersion"] != "batch/v1":
            return True
        job = self._jobs.get(f"{pod['metadata']['namespace']}/{owner['name']}")
        if job is None or job["metadata"]["uid"] != owner["uid"]:
            return False
        return not is_finished(job) or job["spec"].get("managedBy") not in (None, "kubernetes.io/job-controller")


def job_controller(manager: Manager, options: ControllerOptions) -> ControllerGroup:
    name, workers = "job-controller", options.concurrent_job_syncs
    client, recorder = manager.client_for(name), manager.recorder(name)
    jobs, pods = manager.informer(_JOBS), manager.informer(PODS)
    reconciler = Jobs(client, manager.clock, jobs, pods, recorder)
    controller = Controller(name, reconciler.reconcile, manager.clock, workers=workers, queue=_queue(manager.clock))
    orphans = OrphanPods(client, jobs, pods)
    releasing = Controller(
        f"{name} (orphans)", orphans.reconcile, manager.clock, workers=workers, queue=_queue(manager.clock)
    )
    reconciler.watch(controller, releasing.enqueue)
    return ControllerGroup(controller, releasing)


def _queue(clock: Clock) -> RateLimitingQueue:
    return RateLimitingQueue(clock, (ExponentialBackoff(_INITIAL_BACKOFF, _MAX_BACKOFF),))


class Jobs:
    def __init__(
        self, client: Client, clock: Clock, jobs: Informer[Job], pods: Informer[Pod], recorder: EventRecorder
    ) -> None:
        self._client = client
        self._clock = clock
        self._jobs = jobs
        self._pods = pods
        self._recorder = recorder
        self._owners = PodOwners("Job", jobs)
        self._expected = Expectations(clock)
        self._written = WrittenRevisions()
        self._backoffs: dict[str, FailureBackoff] = {}
        """Backoff by key. A cache: a missing entry is recomputed from the remaining Pods."""
        self._job_pods = JobPods(client, PodControl(client, recorder), pods, self._expected, self._written)

    # -- event handlers ---------------------------------------------------------------------------------------------

    def watch(self, controller: Controller, release: Callable[[str], None]) -> None:
        """Register the handlers. `release(key)` enqueues the removal of a Pod's finalizer that no Job will remove."""

        def job_changed(old: Job | None, new: Job | None) -> None:
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

        def pod_changed(old: Pod | None, new: Pod | None) -> None:
            for key in self._affected(old, new):
                controller.queue.add_after(key, _BATCH)
            pod = new or old or {}
            if new is not None and is_tracked(pod) and self._is_untracked(pod):
                release(key_of(pod))

        self._jobs.add_handler(job_changed)
        self._pods.add_handler(pod_changed)

    def _selected(self, job: Job) -> Iterable[Pod]:
        meta = job["metadata"]
        selector = from_label_selector(job["spec"]["selector"])
        orphans = (pod for pod in self._pods.orphans(meta["namespace"]) if selector.matches(_labels(pod)))
        return [*self._pods.controlled_by(meta["uid"]), *orphans]

    def _is_untracked(self, pod: Pod) -> bool:
        """Return whether no reconcile of a Job will remove the Pod's finalizer. An unknown Job may just be new, unless
        the Pod is being deleted."""
        if controller_of(pod) is None:
            return True
        key = self._owners.key(pod)
        if key is None:
            return "deletionTimestamp" in pod["metadata"]
        return is_finished(self._jobs.items[key])

    def _affected(self, old: Pod | None, new: Pod | None) -> list[str]:
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
        if cached["spec"].get("managedBy") not in (None, _OWN_NAME):
            return None
        if is_finished(cached):
            self._forget(key)
            return None
        if not self._written.seen(key):
            return Result(retry=True)
        # Check before the first await: the expectations refer to the cache as it is now.
        may_act = self._expected.satisfied(key)
        job: Job = {**cached, "status": copy.deepcopy(cached.get("status") or {})}
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
                seen.outcome = job_condition(SUCCESS_CRITERIA_MET, "CompletionsReached", text, seen.now)
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

    async def _claimed(self, job: Job) -> list[Pod]:
        meta = job["metadata"]
        selector = from_label_selector(job["spec"]["selector"])
        candidates = [*self._pods.controlled_by(meta["uid"]), *self._pods.orphans(meta["namespace"])]
        claimed = await Claim(self._client, _JOBS, job, PODS, selector, FINALIZER).claimed(candidates)
        return [pod if controller_of(pod) is not None else _with_finalizer(pod) for pod in claimed]

    def _note_suspension(self, seen: Progress) -> bool:
        suspended = bool(seen.job["spec"].get("suspend"))
        status, word = ("True", "Suspended") if suspended else ("False", "Resumed")
        wanted = job_condition(SUSPENDED, f"Job{word}", f"Job {word.lower()}", seen.now, status)
        if not set_job_condition(seen.status, wanted):
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
        recorded = record_ended(seen)
        if changed or recorded.changed:
            await self._write(key, seen)
            self._backoffs[key] = seen.backoff
        changed = await self._release(key, seen, recorded)
        finished = recorded.complete and finish(seen)
        if changed or finished:
            await self._write(key, seen)
        if finished:
            self._record_outcome(seen)

    async def _release(self, key: str, seen: Progress, recorded: Recorded) -> bool:
        """Remove finalizers. Return whether the status must be written again afterwards."""
        tracked = {pod["metadata"]["uid"] for pod in seen.pods if is_tracked(pod)}
        released, failure = await self._job_pods.release(key, recorded.release)
        changed = count_released(seen.status, tracked - released)
        if failure is None:
            return changed
        if changed:
            await self._write(key, seen)
        raise failure

    async def _write(self, key: str, seen: Progress) -> None:
        written = await self._client.update(seen.job, subresource="status")
        # Copy the status to continue with: the written object is shared.
        status = {"uncountedTerminatedPods": {}, **(written.get("status") or {})}
        seen.job = cast("Job", {**written, "status": status})
        self._written.wrote(key, self._jobs, seen.job)

    def _record_outcome(self, seen: Progress) -> None:
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


def _labels(pod: Pod) -> Mapping[str, str]:
    return pod["metadata"].get("labels") or {}


def _with_finalizer(pod: Pod) -> Pod:
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
