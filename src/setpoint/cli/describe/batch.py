"""Jobs and CronJobs."""

from __future__ import annotations

from typing import Any

from setpoint.cli.describe.context import DescribeContext, meta, spec, status
from setpoint.cli.describe.events import write_events
from setpoint.cli.describe.metadata import (
    truth,
    write_annotations,
    write_controller,
    write_head,
    write_labels,
)
from setpoint.cli.describe.pod_template import write_pod_template
from setpoint.cli.describe.workloads import selector_text
from setpoint.cli.describe.writer import Writer
from setpoint.client.interface import Obj
from setpoint.kinds.columns import NONE, UNSET
from setpoint.meta.goformat import plain
from setpoint.meta.times import human_duration, parse_time

_SHOWN_INDEXES = 50


async def job(obj: Obj, ctx: DescribeContext) -> str:
    about, wanted, found = meta(obj), spec(obj), status(obj)
    w = Writer()
    w.field("Name", about.get("name", ""))
    w.field("Namespace", about.get("namespace", ""))
    w.field("Selector", selector_text(obj))
    write_labels(w, "Labels", about.get("labels"))
    write_annotations(w, "Annotations", about.get("annotations"))
    write_controller(w, obj)
    if wanted.get("parallelism") is not None:
        w.field("Parallelism", wanted["parallelism"])
    w.field("Completions", _or_unset(wanted.get("completions")))
    for title, key in (
        ("Completion Mode", "completionMode"),
        ("Suspend", "suspend"),
        ("Backoff Limit", "backoffLimit"),
        ("TTL Seconds After Finished", "ttlSecondsAfterFinished"),
    ):
        if wanted.get(key) is not None:
            w.field(title, plain(wanted[key]))
    _write_times(w, ctx, obj)
    ready = f" ({found['ready']} Ready)" if found.get("ready") is not None else ""
    w.field(
        "Pods Statuses",
        f"{found.get('active', 0)} Active{ready} / {found.get('succeeded', 0)} Succeeded / "
        f"{found.get('failed', 0)} Failed",
    )
    if wanted.get("completionMode") == "Indexed":
        w.field("Completed Indexes", _indexes(found.get("completedIndexes", "")))
    write_pod_template(w, ctx, wanted.get("template") or {})
    await write_events(w, ctx, obj, "Job")
    return w.text()


def _write_times(w: Writer, ctx: DescribeContext, obj: Obj) -> None:
    started, ended = status(obj).get("startTime"), status(obj).get("completionTime")
    if started:
        w.field("Start Time", ctx.moment(started))
    if ended:
        w.field("Completed At", ctx.moment(ended))
    if started and ended:
        w.field("Duration", human_duration((parse_time(ended) - parse_time(started)).total_seconds()))
    deadline = spec(obj).get("activeDeadlineSeconds")
    if deadline is not None:
        w.field("Active Deadline Seconds", f"{deadline}s")


def _indexes(text: str) -> str:
    """Truncate a list of indexes at a comma."""
    comma = text.find(",", _SHOWN_INDEXES)
    return text[: comma + 1] + "..." if comma >= 0 else text or NONE


def _or_unset(value: Any, unit: str = "") -> str:
    return UNSET if value is None else f"{value}{unit}"


async def cronjob(obj: Obj, ctx: DescribeContext) -> str:
    wanted, found = spec(obj), status(obj)
    w = Writer()
    write_head(w, obj)
    w.field("Schedule", wanted.get("schedule", ""))
    w.field("Concurrency Policy", wanted.get("concurrencyPolicy", ""))
    w.field("Suspend", truth(wanted.get("suspend")))
    if ctx.minor >= 36:
        w.field("Time Zone", _or_unset(wanted.get("timeZone")))
    w.field("Successful Job History Limit", _or_unset(wanted.get("successfulJobsHistoryLimit")))
    w.field("Failed Job History Limit", _or_unset(wanted.get("failedJobsHistoryLimit")))
    w.field("Starting Deadline Seconds", _or_unset(wanted.get("startingDeadlineSeconds"), "s"))
    template = wanted.get("jobTemplate") or {}
    made = spec(template)
    w.field("Selector", UNSET if made.get("selector") is None else selector_text(template))
    w.field("Parallelism", _or_unset(made.get("parallelism")))
    w.field("Completions", _or_unset(made.get("completions")))
    if made.get("activeDeadlineSeconds") is not None:
        w.field("Active Deadline Seconds", f"{made['activeDeadlineSeconds']}s")
    write_pod_template(w, ctx, made.get("template") or {})
    last = found.get("lastScheduleTime")
    w.field("Last Schedule Time", ctx.moment(last) if last else UNSET)
    w.field("Active Jobs", ", ".join(each.get("name", "") for each in found.get("active") or ()) or NONE)
    await write_events(w, ctx, obj, "CronJob")
    return w.text()
