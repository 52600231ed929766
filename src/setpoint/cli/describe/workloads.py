"""Workloads: Deployments, ReplicaSets, DaemonSets, StatefulSets, ReplicationControllers, Jobs and CronJobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from setpoint.cli.describe.claims import write_claim_templates
from setpoint.cli.describe.context import DescribeContext, Writer, meta, spec, status
from setpoint.cli.describe.events import write_events
from setpoint.cli.describe.metadata import (
    controller,
    truth,
    write_annotations,
    write_controller,
    write_head,
    write_labels,
)
from setpoint.cli.describe.pods import write_pod_template
from setpoint.client.resources import builtin
from setpoint.kinds.cell_texts import NONE, UNSET, labels_text
from setpoint.meta.errors import ApiError
from setpoint.meta.goformat import plain
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import format_labels
from setpoint.meta.times import human_duration, parse_time

HASH_LABEL = "pod-template-hash"
_SHOWN_INDEXES = 50


async def replica_sets_of(ctx: DescribeContext, deployment: Obj) -> tuple[list[Obj], list[Obj]]:
    """Return (old, new), both sorted by age; both are empty if the user may not list ReplicaSets."""
    try:
        found = await ctx.all(
            builtin("replicasets", "apps"),
            meta(deployment).get("namespace", ""),
            label_selector=format_labels(spec(deployment).get("selector")).removeprefix(NONE),
        )
    except ApiError:
        return [], []
    uid = meta(deployment).get("uid")
    owned = [each for each in found if (controller(each) or {}).get("uid") == uid]
    owned.sort(key=lambda each: (str(meta(each).get("creationTimestamp", "")), str(meta(each).get("name", ""))))
    wanted = _template(deployment)
    new = next((each for each in owned if _template(each) == wanted), None)
    return [each for each in owned if each is not new], [] if new is None else [new]


def _template(workload: Obj) -> Any:
    """Return the template without the label that the Deployment adds to it."""
    template = spec(workload).get("template") or {}
    labels = {key: value for key, value in (meta(template).get("labels") or {}).items() if key != HASH_LABEL}
    about = {key: value for key, value in {**meta(template), "labels": labels}.items() if value}
    return _filled({**template, "metadata": about})


def _filled(value: Any) -> Any:
    """Return a value without empty lists, which are equal to missing ones."""
    if isinstance(value, dict):
        return {key: _filled(each) for key, each in value.items() if each is not None and each != []}
    return [_filled(each) for each in value] if isinstance(value, list) else value


def replica_sets_text(sets: Sequence[Obj]) -> str:
    return (
        ", ".join(
            f"{meta(each).get('name', '')} ({status(each).get('replicas', 0)}/{spec(each).get('replicas', 0)} "
            "replicas created)"
            for each in sets
        )
        or NONE
    )


def selector_text(obj: Obj) -> str:
    """Return the selector as text; empty where a table would have `<none>`."""
    text = format_labels(spec(obj).get("selector"))
    return "" if text == NONE else text


async def _pods_status(ctx: DescribeContext, obj: Obj, selector: str) -> str:
    """Return the number of Pods in each phase. Raise ApiError."""
    uid = meta(obj).get("uid")
    phases = Counter(
        status(pod).get("phase")
        for pod in await ctx.pods(meta(obj).get("namespace", ""), label_selector=selector)
        if (controller(pod) or {}).get("uid") == uid
    )
    return (
        f"{phases['Running']} Running / {phases['Pending']} Waiting / {phases['Succeeded']} Succeeded / "
        f"{phases['Failed']} Failed"
    )


def _write_conditions(w: Writer, obj: Obj) -> None:
    conditions = status(obj).get("conditions")
    if conditions:
        w.write(0, "Conditions:\n  Type\tStatus\tReason\n")
        w.row(1, "----", "------", "------")
        for each in conditions:
            w.row(1, f"{each.get('type', '')} ", each.get("status", ""), each.get("reason", ""))


async def replicationcontroller(obj: Obj, ctx: DescribeContext) -> str:
    labels = spec(obj).get("selector") or {}
    counts = await _pods_status(ctx, obj, ",".join(f"{key}={labels[key]}" for key in sorted(labels)))
    w = Writer()
    _write_replicas(w, obj, labels_text(labels), controlled=False)
    w.field("Pods Status", counts)
    write_pod_template(w, ctx, spec(obj).get("template"))
    _write_conditions(w, obj)
    await write_events(w, ctx, obj, "ReplicationController")
    return w.text()


async def replicaset(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    _write_replicas(w, obj, format_labels(spec(obj).get("selector")), controlled=True)
    try:
        w.field("Pods Status", await _pods_status(ctx, obj, selector_text(obj)))
    except ApiError as error:
        w.field("Pods Status", f"error in fetching pods: {error.message}")
    write_pod_template(w, ctx, spec(obj).get("template") or {})
    _write_conditions(w, obj)
    await write_events(w, ctx, obj, "ReplicaSet")
    return w.text()


def _write_replicas(w: Writer, obj: Obj, selector: str, *, controlled: bool) -> None:
    about = meta(obj)
    w.field("Name", about.get("name", ""))
    w.field("Namespace", about.get("namespace", ""))
    w.field("Selector", selector)
    write_labels(w, "Labels", about.get("labels"))
    write_annotations(w, "Annotations", about.get("annotations"))
    if controlled:
        write_controller(w, obj)
    w.field("Replicas", f"{status(obj).get('replicas', 0)} current / {spec(obj).get('replicas', 0)} desired")


async def daemonset(obj: Obj, ctx: DescribeContext) -> str:
    about, found = meta(obj), status(obj)
    counts = await _pods_status(ctx, obj, selector_text(obj))
    template = spec(obj).get("template") or {}
    w = Writer()
    w.field("Name", about.get("name", ""))
    w.field("Namespace", about.get("namespace", ""))
    w.field("Selector", selector_text(obj))
    w.field("Node-Selector", labels_text(spec(template).get("nodeSelector")))
    write_labels(w, "Labels", about.get("labels"))
    write_annotations(w, "Annotations", about.get("annotations"))
    for title, key in (
        ("Desired Number of Nodes Scheduled", "desiredNumberScheduled"),
        ("Current Number of Nodes Scheduled", "currentNumberScheduled"),
        ("Number of Nodes Scheduled with Up-to-date Pods", "updatedNumberScheduled"),
        ("Number of Nodes Scheduled with Available Pods", "numberAvailable"),
        ("Number of Nodes Misscheduled", "numberMisscheduled"),
    ):
        w.write(0, f"{title}: {found.get(key, 0)}\n")
    w.field("Pods Status", counts)
    write_pod_template(w, ctx, template)
    await write_events(w, ctx, obj, "DaemonSet")
    return w.text()


async def statefulset(obj: Obj, ctx: DescribeContext) -> str:
    about, wanted = meta(obj), spec(obj)
    counts = await _pods_status(ctx, obj, selector_text(obj))
    w = Writer()
    w.field("Name", about.get("name", ""))
    w.field("Namespace", about.get("namespace", ""))
    w.field("CreationTimestamp", ctx.moment(about.get("creationTimestamp")))
    w.field("Selector", selector_text(obj))
    write_labels(w, "Labels", about.get("labels"))
    write_annotations(w, "Annotations", about.get("annotations"))
    newer = ctx.minor >= 37
    if newer and wanted.get("serviceName"):
        w.field("Service Name", wanted["serviceName"])
    if newer and wanted.get("podManagementPolicy"):
        w.field("Pod Management Policy", wanted["podManagementPolicy"])
    w.field("Replicas", f"{wanted.get('replicas', 0)} desired | {status(obj).get('replicas', 0)} total")
    strategy = wanted.get("updateStrategy") or {}
    w.field("Update Strategy", strategy.get("type", ""))
    rolling = strategy.get("rollingUpdate") or {}
    if rolling.get("partition") is not None:
        w.field("Partition", rolling["partition"], 1)
        if rolling.get("maxUnavailable") is not None:
            w.field("MaxUnavailable", rolling["maxUnavailable"], 1)
    retention = wanted.get("persistentVolumeClaimRetentionPolicy")
    if newer and retention is not None:
        w.write(0, "Persistent Volume Claim Retention Policy:\n")
        w.field("WhenDeleted", retention.get("whenDeleted", ""), 1)
        w.field("WhenScaled", retention.get("whenScaled", ""), 1)
    w.field("Pods Status", counts)
    write_pod_template(w, ctx, wanted.get("template") or {})
    write_claim_templates(w, wanted.get("volumeClaimTemplates") or ())
    await write_events(w, ctx, obj, "StatefulSet")
    return w.text()


async def deployment(obj: Obj, ctx: DescribeContext) -> str:
    about, wanted, found = meta(obj), spec(obj), status(obj)
    w = Writer()
    w.field("Name", about.get("name", ""))
    w.field("Namespace", about.get("namespace", ""))
    w.field("CreationTimestamp", ctx.moment(about.get("creationTimestamp")))
    write_labels(w, "Labels", about.get("labels"))
    write_annotations(w, "Annotations", about.get("annotations"))
    w.field("Selector", selector_text(obj))
    counts = (
        (wanted.get("replicas", 0), "desired"),
        (found.get("updatedReplicas", 0), "updated"),
        (found.get("replicas", 0), "total"),
        (found.get("availableReplicas", 0), "available"),
        (found.get("unavailableReplicas", 0), "unavailable"),
    )
    w.field("Replicas", " | ".join(f"{count} {what}" for count, what in counts))
    strategy = wanted.get("strategy") or {}
    w.field("StrategyType", strategy.get("type", ""))
    w.field("MinReadySeconds", wanted.get("minReadySeconds", 0))
    rolling = strategy.get("rollingUpdate")
    if rolling is not None:
        unavailable, surge = rolling.get("maxUnavailable", "<nil>"), rolling.get("maxSurge", "<nil>")
        w.field("RollingUpdateStrategy", f"{unavailable} max unavailable, {surge} max surge")
    write_pod_template(w, ctx, wanted.get("template") or {})
    _write_conditions(w, obj)
    old, new = await replica_sets_of(ctx, obj)
    if old or new:
        w.field("OldReplicaSets", replica_sets_text(old))
        w.field("NewReplicaSet", replica_sets_text(new))
    await write_events(w, ctx, obj, "Deployment")
    return w.text()


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
