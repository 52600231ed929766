"""CronJob: Jobs on a schedule."""

from __future__ import annotations

import re
from datetime import datetime

from setpoint.kinds.apps.workload import WorkloadStrategy, container_columns, name_warning
from setpoint.kinds.batch.jobspec import (
    default_failure_policy,
    drop_disabled_fields,
    job_warnings,
    validate_job_spec,
)
from setpoint.kinds.cell_texts import NONE, UNSET, since
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.podspec import CREATE, PodOptions, default_pod_template, pod_template_options
from setpoint.kinds.numbers import non_negative_fields
from setpoint.kinds.strategy import Column, Context, StatusStrategy
from setpoint.meta.cron import load_zone, parse
from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import format_labels

_CONCURRENCY = ("Allow", "Forbid", "Replace")
_ZONE_PART = re.compile("[A-Za-z.\\-_0-9+]{1,14}")
_NAME_LIMIT = 52
"""Maximum length of a name, to which Jobs append a dash and a timestamp of ten digits."""


class CronJobStrategy(WorkloadStrategy):
    def pod_template(self, obj: ObjView) -> Obj | None:
        return _template(obj)

    def default(self, obj: Obj) -> None:
        spec = obj.setdefault("spec", {})
        if not spec.get("concurrencyPolicy"):
            spec["concurrencyPolicy"] = "Allow"
        if spec.get("suspend") is None:
            spec["suspend"] = False
        if spec.get("successfulJobsHistoryLimit") is None:
            spec["successfulJobsHistoryLimit"] = 3
        if spec.get("failedJobsHistoryLimit") is None:
            spec["failedJobsHistoryLimit"] = 1
        job = spec.setdefault("jobTemplate", {}).setdefault("spec", {})
        default_failure_policy(job)
        default_pod_template(job.setdefault("template", {}))

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        super().prepare_for_create(obj, ctx)
        drop_disabled_fields(_job(obj))

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        drop_disabled_fields(_job(obj), _job(old))

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_spec(obj["spec"], None, errs, CREATE)
        name = obj["metadata"].get("name", "")
        if len(name.encode()) > _NAME_LIMIT:
            errs.append(invalid("metadata.name", name, f"must be no more than {_NAME_LIMIT} characters"))
        _validate_declared(obj["spec"], errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        _validate_spec(obj["spec"], old["spec"], errs, pod_template_options(self.pod_template(old)))
        _validate_declared(obj["spec"], errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        return name_warning(obj["metadata"]["name"]) + job_warnings(_job(obj), "spec.jobTemplate.spec")

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        warnings = []
        if obj["spec"] != old["spec"]:
            warnings = job_warnings(_job(obj), "spec.jobTemplate.spec")
        if "TZ" in obj["spec"].get("schedule", ""):
            warnings.append(
                "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
                "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
            )
        return warnings

    columns = (
        NAME,
        Column("Schedule", lambda obj, now: (obj.get("spec") or {}).get("schedule", ""), description="When it runs."),
        Column(
            "Timezone",
            lambda obj, now: (obj.get("spec") or {}).get("timeZone", NONE),
            description="Time zone of the schedule.",
        ),
        Column(
            "Suspend", lambda obj, now: _suspended(obj), type="boolean", description="Whether new Jobs are suspended."
        ),
        Column(
            "Active",
            lambda obj, now: len((obj.get("status") or {}).get("active") or ()),
            type="integer",
            description="Jobs that are running.",
        ),
        Column("Last Schedule", lambda obj, now: _last(obj, now), description="Time since it last started a Job."),
        AGE,
        *container_columns(lambda obj: _template(obj)),
        Column(
            "Selector",
            lambda obj, now: format_labels(_job(obj).get("selector")),
            priority=1,
            description="Which Pods belong to its Jobs.",
        ),
    )


def _job(obj: ObjView) -> Obj:
    return ((obj.get("spec") or {}).get("jobTemplate") or {}).get("spec") or {}


def _template(obj: ObjView) -> Obj | None:
    template: Obj | None = _job(obj).get("template")
    return template


def _suspended(obj: Obj) -> str:
    suspended = (obj.get("spec") or {}).get("suspend")
    return UNSET if suspended is None else str(bool(suspended))


def _last(obj: Obj, now: datetime) -> str:
    last = (obj.get("status") or {}).get("lastScheduleTime")
    return since(last, now) if last else NONE


def _validate_spec(spec: Obj, old: Obj | None, errs: Errors, options: PodOptions) -> None:
    schedule, zone = spec.get("schedule", ""), spec.get("timeZone")
    if schedule:
        _validate_schedule(schedule, zone, errs, may_have_zone="TZ" in (old or {}).get("schedule", ""))
    non_negative_fields(spec, ("startingDeadlineSeconds",), "spec", errs)
    if zone is not None and (old is None or old.get("timeZone") != zone):
        _validate_zone(zone, errs)
    policy = spec.get("concurrencyPolicy", "")
    if not policy:
        errs.append(required("spec.concurrencyPolicy"))
    elif policy not in _CONCURRENCY:
        errs.append(not_supported("spec.concurrencyPolicy", policy, _CONCURRENCY))
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    validate_job_spec(job, "spec.jobTemplate.spec", errs, options=options)
    if job.get("selector") is not None:
        errs.append(invalid("spec.jobTemplate.spec.selector", job["selector"], "`selector` will be auto-generated"))
    if job.get("manualSelector"):
        errs.append(not_supported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false")))
    non_negative_fields(spec, ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"), "spec", errs)


def _validate_declared(spec: Obj, errs: Errors) -> None:
    """Validate the rules that upstream declares at the type and therefore reports last."""
    if not spec.get("schedule"):
        errs.append(required("spec.schedule"))


def _validate_schedule(schedule: str, zone: str | None, errs: Errors, *, may_have_zone: bool) -> None:
    try:
        parse(schedule)
    except ValueError as error:
        errs.append(invalid("spec.schedule", schedule, str(error)))
    if "TZ" not in schedule:
        return
    if not may_have_zone:
        text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errs.append(invalid("spec.schedule", schedule, text))
    elif zone is not None:
        text = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        errs.append(invalid("spec.schedule", schedule, text))


def _validate_zone(zone: str, errs: Errors) -> None:
    path = "spec.timeZone"
    if not zone:
        errs.append(invalid(path, zone, "timeZone must be nil or non-empty string"))
        return
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not _ZONE_PART.fullmatch(part):
            errs.append(invalid(path, zone, f"unknown time zone {zone}"))
            return
    if zone.lower() == "local":
        text = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        errs.append(invalid(path, zone, text))
    try:
        load_zone(zone)
    except ValueError as error:
        errs.append(invalid(path, zone, str(error)))


class CronJobStatusStrategy(StatusStrategy):
    qualified_finalizers = False


STRATEGY = CronJobStrategy()
STRATEGY.subresources = {"status": CronJobStatusStrategy(STRATEGY)}
