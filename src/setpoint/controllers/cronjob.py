"""CronJobs: create a Job for each scheduled time.

The name of a Job is derived from its scheduled time, so no time is served twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.job.job_pods import COMPLETE, FAILED, finished_condition
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.ownership import controller_reference
from setpoint.controllers.pod_control import is_namespace_terminating
from setpoint.meta.clock import Clock
from setpoint.meta.cron import Schedule, load_zone, next_after, parse
from setpoint.meta.errors import AlreadyExists, ApiError, NotFound
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_time, parse_time
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of
from setpoint.reconcile.keys import controller_of
from setpoint.reconcile.run import because

if TYPE_CHECKING:
    from setpoint.kinds.typed import Job

_MAX_MISSED = 100
_SLACK = timedelta(milliseconds=100)
"""Added to the delay, so that a reconcile runs just after the scheduled time rather than just before it."""


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CRON_JOBS, _JOBS = builtin("cronjobs", "batch"), builtin("jobs", "batch")
_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"


class Due(NamedTuple):
    since: datetime
    """The time from which missed times are counted: the last scheduled one, or the creation."""
    latest: datetime | None
    """The most recent unserved scheduled time; None if there is none."""
    missed: int
    """The approximate number of missed times; 0 also if only one is due just now."""

    @property
    def too_many(self) -> bool:
        return self.missed > _MAX_MISSED


def schedule_of(cron_job: ObjView) -> Schedule:
    """Parse the schedule of a CronJob. Raise ValueError."""
    return parse(schedule_text(cron_job["spec"]))


def schedule_text(spec: ObjView) -> str:
    """Return the schedule with the time zone in front, if it has a known one and does not name another itself."""
    text: str = spec["schedule"]
    zone = spec.get("timeZone")
    if "TZ" in text or zone is None:
        return text
    try:
        load_zone(zone)
    except ValueError:
        return text
    return f"TZ={zone} {text}"


def due(cron_job: ObjView, schedule: Schedule, now: datetime, *, within_deadline: bool) -> Due:
    """Return the due times. With `within_deadline`, times older than startingDeadlineSeconds are ignored. Raise
    ValueError for a schedule that never fires, such as the 31st of February."""
    since = parse_time((cron_job.get("status") or {}).get("lastScheduleTime") or _created(cron_job))
    deadline = cron_job["spec"].get("startingDeadlineSeconds")
    if within_deadline and deadline is not None:
        since = max(since, now - timedelta(seconds=deadline))
    first = next_after(schedule, since)
    if first is not None and now < first:
        return Due(since, None, 0)
    second = next_after(schedule, first) if first is not None else None
    if first is not None and second is not None and now < second:
        return Due(since, first, 0)
    if first is None or second is None or (second - first) < timedelta(seconds=0.5):
        raise ValueError("time difference between two schedules is less than 1 second")
    apart = round((second - first).total_seconds())
    missed = int((now - first).total_seconds()) // apart + 1
    # Start near the end: a schedule that was missed for years need not be walked through. Go back one more step,
    # because times may be unevenly spaced.
    latest = None
    at = next_after(schedule, first + timedelta(seconds=(missed - 2) * apart))
    while at is not None and at <= now:
        latest, at = at, next_after(schedule, at)
    return Due(since, latest, missed)


def seconds_until_next(cron_job: ObjView, schedule: Schedule, now: datetime) -> float | None:
    """Return the seconds until the next scheduled time, or None if there is none."""
    try:
        found = due(cron_job, schedule, now, within_deadline=False)
    except ValueError:
        start = now
    else:
        start = found.latest or (now if found.missed else found.since)
    following = next_after(schedule, start)
    return None if following is None else (following + _SLACK - now).total_seconds()


def shown_in_zone(when: datetime, zone_name: str | None) -> str:
    """Format as RFC 3339 with the offset of the zone. Raise ValueError for an unknown zone."""
    zone = load_zone(zone_name or "") or UTC
    local = when.astimezone(zone).replace(microsecond=0)
    text = local.isoformat()
    return text.replace("+00:00", "Z") if local.utcoffset() == timedelta() else text


def shown_in_mail(when: datetime) -> str:
    """Format as RFC 1123 in UTC, independent of the locale."""
    at = when.astimezone(UTC)
    return f"{_DAYS[at.weekday()]}, {at.day:02d} {_MONTHS[at.month - 1]} {at.year:04d} {at:%H:%M:%S} +0000"


def _created(cron_job: ObjView) -> str:
    return str(cron_job["metadata"]["creationTimestamp"])


# -- status: active Jobs, last scheduled time, last success -----------------------------------------------------------


def _finished_as(job: Job) -> str:
    """Return Complete or Failed, or an empty string while the Job is active."""
    found = finished_condition(job)
    return "" if found is None else str(found["type"])


def _is_listed(status: Obj, uid: str) -> bool:
    return any(active.get("uid") == uid for active in status.get("active") or ())


def _unlist(status: Obj, uid: str) -> None:
    left = [active for active in status.get("active") or () if active.get("uid") != uid]
    if left:
        status["active"] = left
    else:
        status.pop("active", None)


def _enlist(status: Obj, job: ObjView) -> None:
    meta = job["metadata"]
    reference = {
        "kind": "Job",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "apiVersion": "batch/v1",
        "resourceVersion": meta["resourceVersion"],
    }
    status["active"] = [*(status.get("active") or ()), reference]


def _note_success(status: Obj, job: Job) -> bool:
    """Record a success. Return whether it is later than the one recorded before."""
    completed = (job.get("status") or {}).get("completionTime")
    if completed is None or completed <= status.get("lastSuccessfulTime", ""):
        return False
    status["lastSuccessfulTime"] = completed
    return True


def _oldest_first(jobs: Iterable[Job]) -> list[Job]:
    """Sort by start time; Jobs that never started come last."""

    def start(job: Job) -> tuple[bool, str, str]:
        started = (job.get("status") or {}).get("startTime")
        return started is None, started or "", job["metadata"]["name"]

    return sorted(jobs, key=start)


# -- controller -------------------------------------------------------------------------------------------------------


def cronjob_controller(manager: Manager, options: ControllerOptions) -> Controller:
    name = "cronjob-controller"
    reconciler = CronJobs(
        manager.client_for(name),
        manager.clock,
        manager.informer(_CRON_JOBS),
        manager.informer(_JOBS),
        manager.recorder(name),
    )
    controller = Controller(name, reconciler.reconcile, manager.clock, workers=options.concurrent_cron_job_syncs)
    reconciler.watch(controller)
    return controller


class CronJobs:
    def __init__(
        self, client: Client, clock: Clock, cron_jobs: Informer[Obj], jobs: Informer[Job], recorder: EventRecorder
    ) -> None:
        self._client = client
        self._clock = clock
        self._cron_jobs = cron_jobs
        self._jobs = jobs
        self._recorder = recorder

    # -- event handlers ---------------------------------------------------------------------------------------------

    def watch(self, controller: Controller) -> None:
        def cron_job_changed(old: Obj | None, new: Obj | None) -> None:
            key = key_of(new or old or {})
            if old is None or new is None or _timing(old) == _timing(new):
                controller.enqueue(key)
                return
            try:
                wait = seconds_until_next(new, schedule_of(new), self._clock.now())
            except ValueError:
                text = f"unparseable schedule for cronjob: {new['spec']['schedule']}"
                self._recorder.warning(new, "UnParseableCronJobSchedule", text)
                return
            if wait is not None:
                controller.queue.add_after(key, wait)

        def job_changed(old: Job | None, new: Job | None) -> None:
            for job in (old, new):
                key = self._owner_key(job) if job is not None else None
                if key is not None:
                    controller.enqueue(key)

        self._cron_jobs.add_handler(cron_job_changed)
        self._jobs.add_handler(job_changed)

    def _owner_key(self, job: Job) -> str | None:
        owner = controller_of(job)
        if owner is None or owner["kind"] != "CronJob":
            return None
        key = f"{job['metadata']['namespace']}/{owner['name']}"
        found = self._cron_jobs.get(key)
        return key if found is not None and found["metadata"]["uid"] == owner["uid"] else None

    # -- reconcile --------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Result | None:
        cached = self._cron_jobs.get(key)
        if cached is None:
            return None
        cron_job = {**cached, "status": dict(cached.get("status") or {})}
        jobs = self._jobs.controlled_by(cached["metadata"]["uid"])
        await self._clean_up(cron_job, jobs)
        failure: Exception | None = None
        wait: float | None = None
        try:
            await self._sync_active(cron_job, jobs)
            if "deletionTimestamp" not in cron_job["metadata"]:
                wait = await self._start(cron_job)
        except ApiError as error:
            failure = error
        if cron_job["status"] != (cached.get("status") or {}):
            await self._client.update(cron_job, subresource="status")
        if failure is not None:
            raise failure
        return Result(requeue_after=wait) if wait is not None else None

    async def _clean_up(self, cron_job: Obj, jobs: list[Job]) -> None:
        """Delete finished Jobs beyond the history limits."""
        spec = cron_job["spec"]
        for outcome, limit in (
            (COMPLETE, spec.get("successfulJobsHistoryLimit")),
            (FAILED, spec.get("failedJobsHistoryLimit")),
        ):
            if limit is not None:
                ended = _oldest_first(job for job in jobs if _finished_as(job) == outcome)
                for job in ended[: max(0, len(ended) - limit)]:
                    await self._delete(cron_job, job)

    async def _sync_active(self, cron_job: Obj, jobs: list[Job]) -> None:
        """Bring the list of active Jobs in line with the Jobs that exist."""
        meta, status = cron_job["metadata"], cron_job["status"]
        for job in jobs:
            uid, name, outcome = job["metadata"]["uid"], job["metadata"]["name"], _finished_as(job)
            listed = _is_listed(status, uid)
            if not outcome and not listed:
                # Ask the server: the cache may not show the last write yet.
                fresh = await self._client.get(_CRON_JOBS, meta["name"], meta["namespace"])
                if _is_listed(fresh.get("status") or {}, uid):
                    cron_job.update(fresh)
                    status = cron_job["status"] = dict(fresh["status"])
                    continue
                text = f"Saw a job that the controller did not create or forgot: {name}"
                self._recorder.warning(cron_job, "UnexpectedJob", text)
            elif outcome:
                if listed:
                    _unlist(status, uid)
                    text = f"Saw completed job: {name}, condition: {outcome}"
                    self._recorder.normal(cron_job, "SawCompletedJob", text)
                if outcome == COMPLETE:
                    _note_success(status, job)
        known = {job["metadata"]["uid"] for job in jobs}
        for active in status.get("active") or ():
            if active.get("uid") in known:
                continue
            try:
                await self._client.get(_JOBS, active["name"], active["namespace"])
            except NotFound:
                self._recorder.normal(cron_job, "MissingJob", f"Active job went missing: {active['name']}")
                _unlist(status, active["uid"])

    async def _start(self, cron_job: Obj) -> float | None:
        """Create a Job if one is due. Return the seconds until the next scheduled time, or None."""
        spec, now = cron_job["spec"], self._clock.now()
        schedule = self._schedule(cron_job)
        if schedule is None:
            return None
        try:
            found = due(cron_job, schedule, now, within_deadline=True)
        except ValueError as error:
            self._recorder.warning(cron_job, "InvalidSchedule", f"invalid schedule: {spec['schedule']} : {error}")
            return None
        if found.latest is not None:
            if found.too_many:
                text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
                self._recorder.warning(cron_job, "TooManyMissedTimes", text)
            if await self._may_start(cron_job, found.latest, now):
                await self._create(cron_job, found.latest)
        return seconds_until_next(cron_job, schedule, now)

    def _schedule(self, cron_job: Obj) -> Schedule | None:
        spec = cron_job["spec"]
        zone, text = spec.get("timeZone"), spec["schedule"]
        if zone is not None:
            try:
                load_zone(zone)
            except ValueError as error:
                self._recorder.warning(cron_job, "UnknownTimeZone", f"invalid timeZone: {quote(zone)}: {error}")
                return None
        if spec.get("suspend"):
            return None
        if "TZ" in text:
            message = (
                f"CRON_TZ or TZ used in schedule {quote(text)} is not officially supported, see "
                "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
            )
            self._recorder.warning(cron_job, "UnsupportedSchedule", message)
        try:
            return parse(schedule_text(spec))
        except ValueError as error:
            message = f"unparseable schedule: {quote(text)} : {error}"
            self._recorder.warning(cron_job, "UnparseableSchedule", message)
            return None

    async def _may_start(self, cron_job: Obj, scheduled: datetime, now: datetime) -> bool:
        spec, status = cron_job["spec"], cron_job["status"]
        deadline = spec.get("startingDeadlineSeconds")
        if deadline is not None and (now - scheduled).total_seconds() > deadline:
            text = f"Missed scheduled time to start a job: {shown_in_mail(scheduled)}"
            self._recorder.warning(cron_job, "MissSchedule", text)
            return False
        name = _job_name(cron_job, scheduled)
        if any(active.get("name") == name for active in status.get("active") or ()):
            return False
        if status.get("lastScheduleTime") == format_time(scheduled):
            return False
        policy = spec.get("concurrencyPolicy")
        if policy == "Forbid" and status.get("active"):
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._recorder.normal(cron_job, "JobAlreadyActive", text)
            return False
        if policy == "Replace":
            await self._replace(cron_job)
        return True

    async def _replace(self, cron_job: Obj) -> None:
        for active in list(cron_job["status"].get("active") or ()):
            try:
                job = await self._client.get(_JOBS, active["name"], active["namespace"])
            except ApiError as error:
                self._recorder.warning(cron_job, "FailedGet", f"Get job: {error}")
                raise
            if not await self._delete(cron_job, job):
                raise ApiError(f"could not replace job {active['namespace']}/{active['name']}")

    async def _create(self, cron_job: Obj, scheduled: datetime) -> None:
        wanted = _job_from(cron_job, scheduled)
        meta = wanted["metadata"]
        because(f"the schedule {cron_job['spec']['schedule']} was due at {format_time(scheduled)}")
        try:
            job = await self._client.create(wanted)
        except AlreadyExists:
            job = await self._client.get(_JOBS, meta["name"], meta["namespace"])
            owner = controller_of(job)
            if owner is None or owner["uid"] != cron_job["metadata"]["uid"]:
                return
            if _is_listed(cron_job["status"], job["metadata"]["uid"]):
                return
        except ApiError as error:
            if not is_namespace_terminating(error):
                self._recorder.warning(cron_job, "FailedCreate", f"Error creating job: {error}")
            raise
        else:
            self._recorder.normal(cron_job, "SuccessfulCreate", f"Created job {meta['name']}")
        _enlist(cron_job["status"], job)
        cron_job["status"]["lastScheduleTime"] = format_time(scheduled)

    async def _delete(self, cron_job: Obj, job: ObjView) -> bool:
        meta = job["metadata"]
        try:
            await self._client.delete(_JOBS, meta["name"], meta["namespace"], propagation="Background")
        except NotFound:
            # Deleted already, and the cache is stale: no Event.
            _unlist(cron_job["status"], meta["uid"])
            return True
        except ApiError as error:
            self._recorder.warning(cron_job, "FailedDelete", f"Deleted job: {error}")
            return False
        _unlist(cron_job["status"], meta["uid"])
        self._recorder.normal(cron_job, "SuccessfulDelete", f"Deleted job {meta['name']}")
        return True


def _job_name(cron_job: Obj, scheduled: datetime) -> str:
    """Derive the Job's name from its scheduled minute, so that no time gets two Jobs."""
    return f"{cron_job['metadata']['name']}-{int(scheduled.timestamp()) // 60}"


def _job_from(cron_job: Obj, scheduled: datetime) -> Obj:
    spec, meta = cron_job["spec"], cron_job["metadata"]
    template = spec["jobTemplate"]
    own = template.get("metadata") or {}
    annotations = {**(own.get("annotations") or {}), _SCHEDULED: shown_in_zone(scheduled, spec.get("timeZone"))}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": _job_name(cron_job, scheduled),
            "namespace": meta["namespace"],
            "annotations": annotations,
            **({"labels": own["labels"]} if own.get("labels") else {}),
            "ownerReferences": [controller_reference(cron_job)],
        },
        "spec": template["spec"],
    }


def _timing(cron_job: Obj) -> tuple[str, str | None]:
    return cron_job["spec"]["schedule"], cron_job["spec"].get("timeZone")
