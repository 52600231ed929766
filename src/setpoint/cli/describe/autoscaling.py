"""HorizontalPodAutoscalers."""

from __future__ import annotations

from setpoint.cli.describe.context import DescribeContext, Writer, meta, spec, status
from setpoint.cli.describe.events import write_events
from setpoint.cli.describe.metadata import write_head
from setpoint.client.resources import builtin
from setpoint.kinds.cell_texts import UNKNOWN, UNSET
from setpoint.meta.errors import ApiError
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.quantity import canonical


async def horizontalpodautoscaler(obj: Obj, ctx: DescribeContext) -> str:
    """Describe a HorizontalPodAutoscaler in v2 if the server has it: v1 does not contain all fields."""
    about = meta(obj)
    if obj.get("apiVersion") != "autoscaling/v2":
        resource = builtin("horizontalpodautoscalers", "autoscaling", "v2")
        try:
            obj = await ctx.reader.get(resource, about.get("name", ""), about.get("namespace", ""))
        except ApiError:
            return await _of_v1(obj, ctx)
    wanted, found = spec(obj), status(obj)
    w = Writer()
    _write_beginning(w, ctx, obj)
    w.field("Metrics", "( current / target )")
    current = found.get("currentMetrics") or []
    for at, metric in enumerate(wanted.get("metrics") or ()):
        _write_metric(w, metric, current[at] if at < len(current) else {})
    _write_bounds(w, wanted)
    behavior = wanted.get("behavior")
    if behavior is not None:
        w.write(0, "Behavior:\n")
        _write_rules(w, "Scale Up", behavior.get("scaleUp"))
        _write_rules(w, "Scale Down", behavior.get("scaleDown"))
    _write_replicas(w, obj)
    if found.get("conditions"):
        w.write(0, "Conditions:\n")
        w.row(1, "Type", "Status", "Reason", "Message")
        w.row(1, "----", "------", "------", "-------")
        for each in found["conditions"]:
            w.row(1, *(each.get(key, "") for key in ("type", "status", "reason", "message")))
    await write_events(w, ctx, obj, "HorizontalPodAutoscaler")
    return w.text()


async def _of_v1(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    _write_beginning(w, ctx, obj)
    target = spec(obj).get("targetCPUUtilizationPercentage")
    if target is not None:
        w.field("Target CPU utilization", f"{target}%")
        w.field("Current CPU utilization", f"{status(obj).get('currentCPUUtilizationPercentage', UNKNOWN)}%")
    _write_bounds(w, spec(obj))
    _write_replicas(w, obj)
    await write_events(w, ctx, obj, "HorizontalPodAutoscaler")
    return w.text()


def _write_beginning(w: Writer, ctx: DescribeContext, obj: Obj) -> None:
    write_head(w, obj)
    w.field("CreationTimestamp", ctx.moment(meta(obj).get("creationTimestamp")))
    target = spec(obj).get("scaleTargetRef") or {}
    w.field("Reference", f"{target.get('kind', '')}/{target.get('name', '')}")


def _write_bounds(w: Writer, wanted: ObjView) -> None:
    w.field("Min replicas", wanted.get("minReplicas", UNSET))
    w.field("Max replicas", wanted.get("maxReplicas", 0))


def _write_replicas(w: Writer, obj: Obj) -> None:
    kind, found = (spec(obj).get("scaleTargetRef") or {}).get("kind", ""), status(obj)
    w.field(f"{kind} pods", f"{found.get('currentReplicas', 0)} current / {found.get('desiredReplicas', 0)} desired")


def _write_metric(w: Writer, metric: ObjView, current: ObjView) -> None:
    kind = metric.get("type", "")
    key = kind[:1].lower() + kind[1:]
    if kind not in ("External", "Pods", "Object", "Resource", "ContainerResource"):
        w.write(1, f"<unknown metric type {quote(kind)}>\n")
        return
    source, seen = metric.get(key) or {}, current.get(key)
    target = source.get("target") or {}
    now: ObjView | None = None if seen is None else seen.get("current") or {}
    if kind in ("Resource", "ContainerResource"):
        _write_resource(w, source, target, now)
        return
    name = (source.get("metric") or {}).get("name", "")
    if kind == "External":
        average = target.get("averageValue") is not None
        title = f"{quote(name)} (target {'average ' * average}value)"
        if average and now is not None and now.get("averageValue") is None:
            now = None
    elif kind == "Pods":
        average, title = True, f"{quote(name)} on pods"
    else:
        about = source.get("describedObject") or {}
        average = target.get("type") == "AverageValue"
        title = f'"{name}" on {about.get("kind", "")}/{about.get("name", "")} (target {"average " * average}value)'
    which = "averageValue" if average else "value"
    w.field(title, f"{UNKNOWN if now is None else _amount(now, which)} / {_amount(target, which)}", 1)


def _write_resource(w: Writer, source: ObjView, target: ObjView, now: ObjView | None) -> None:
    container = f' of container "{source["container"]}"' if "container" in source else ""
    title = f"resource {source.get('name', '')}{container} on pods"
    if target.get("averageValue") is not None:
        current = UNKNOWN if now is None else _amount(now, "averageValue")
        w.field(title, f"{current} / {_amount(target, 'averageValue')}", 1)
        return
    current, wanted = UNKNOWN, "<auto>"
    if now is not None and now.get("averageUtilization") is not None:
        current = f"{now['averageUtilization']}% ({_amount(now, 'averageValue')})"
    if target.get("averageUtilization") is not None:
        wanted = f"{target['averageUtilization']}%"
    w.field(f"{title}  (as a percentage of request)", f"{current} / {wanted}", 1)


def _amount(holder: ObjView, key: str) -> str:
    return canonical(holder[key]) if holder.get(key) is not None else "<nil>"


def _write_rules(w: Writer, title: str, rules: ObjView | None) -> None:
    if rules is None:
        return
    w.write(1, f"{title}:\n")
    if rules.get("stabilizationWindowSeconds") is not None:
        w.write(2, f"Stabilization Window: {rules['stabilizationWindowSeconds']} seconds\n")
    if rules.get("policies"):
        w.write(2, f"Select Policy: {rules.get('selectPolicy', 'Max')}\n")
        w.write(2, "Policies:\n")
        for each in rules["policies"]:
            period = f"Period: {each.get('periodSeconds', 0)} seconds"
            w.row(3, f"- Type: {each.get('type', '')}", f"Value: {each.get('value', 0)}", period)
