"""Namespaces with their quotas and limits, PodDisruptionBudgets and PriorityClasses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from setpoint.cli.describe.context import DescribeContext, Writer, meta, spec, status
from setpoint.cli.describe.events import write_events
from setpoint.cli.describe.metadata import write_head
from setpoint.cli.describe.networking import write_timed_conditions
from setpoint.client.resources import builtin
from setpoint.kinds.cell_texts import UNSET, labels_text
from setpoint.meta.errors import NotFound
from setpoint.meta.goformat import plain
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import canonical, of_value, parse
from setpoint.meta.selectors import format_labels

_SCOPES = {
    "Terminating": (
        "Matches all pods that have an active deadline. These pods have a limited lifespan on a node before being "
        "actively terminated by the system."
    ),
    "NotTerminating": (
        "Matches all pods that do not have an active deadline. These pods usually include long running pods whose "
        "container command is not expected to terminate."
    ),
    "BestEffort": (
        "Matches all pods that do not have resource requirements set. These pods have a best effort quality of service."
    ),
    "NotBestEffort": (
        "Matches all pods that have at least one resource requirement set. These pods have a burstable or guaranteed "
        "quality of service."
    ),
}
_LIMIT_TITLES = ("Type", "Resource", "Min", "Max", "Default Request", "Default Limit", "Max Limit/Request Ratio")
_LIMIT_KEYS = ("min", "max", "defaultRequest", "default", "maxLimitRequestRatio")


async def namespace(obj: Obj, ctx: DescribeContext) -> str:
    name = meta(obj).get("name", "")
    quotas, limits = await _held(ctx, "resourcequotas", name), await _held(ctx, "limitranges", name)
    w = Writer()
    write_head(w, obj, namespaced=False)
    w.field("Status", status(obj).get("phase", ""))
    write_timed_conditions(w, ctx, obj)
    if quotas is not None:
        w.write(0, "\n")
        _write_quotas(w, quotas)
    if limits is not None:
        w.write(0, "\n")
        _write_limits(w, limits)
    return w.text()


async def _held(ctx: DescribeContext, plural: str, name: str) -> list[Obj] | None:
    """Return the objects; None if the server does not have the resource."""
    try:
        return await ctx.all(builtin(plural), name)
    except NotFound:
        return None


def _write_quotas(w: Writer, quotas: Sequence[Obj]) -> None:
    if not quotas:
        w.write(0, "No resource quota.\n")
        return
    w.write(0, "Resource Quotas\n")
    for quota in sorted(quotas, key=lambda each: str(meta(each).get("name", ""))):
        w.field("Name", meta(quota).get("name", ""), 1)
        _write_scopes(w, quota, 1, "* ")
        w.row(1, "Resource", "Used", "Hard")
        w.row(1, "--------", "---", "---")
        hard, used = status(quota).get("hard") or {}, status(quota).get("used") or {}
        for name in sorted(hard):
            w.row(1, name, canonical(used.get(name, "0")), canonical(hard[name]))


def _write_scopes(w: Writer, quota: Obj, level: int, mark: str) -> None:
    scopes = sorted(spec(quota).get("scopes") or ())
    if scopes:
        w.field("Scopes", ", ".join(scopes), level)
        for scope in scopes:
            if scope in _SCOPES:
                w.write(level, f"{mark}{_SCOPES[scope]}\n")


async def resourcequota(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    w.field("Name", meta(obj).get("name", ""))
    w.field("Namespace", meta(obj).get("namespace", ""))
    _write_scopes(w, obj, 0, " * ")
    w.row(0, "Resource", "Used", "Hard")
    w.row(0, "--------", "----", "----")
    hard, used = status(obj).get("hard") or {}, status(obj).get("used") or {}
    for name in sorted(hard):
        most, amount = parse(hard[name]), parse(used.get(name, "0"))
        if most.format != amount.format or name not in used:
            amount = of_value(amount.value(), most.format)
        w.row(0, name, amount.text, most.text)
    return w.text()


def _write_limits(w: Writer, ranges: Sequence[Obj]) -> None:
    if not ranges:
        w.write(0, "No LimitRange resource.\n")
        return
    w.write(0, "Resource Limits\n")
    _write_limit_titles(w, " ")
    for each in ranges:
        _write_limit_rows(w, each, " ")


def _write_limit_titles(w: Writer, indent: str) -> None:
    w.write(0, indent + "\t".join(_LIMIT_TITLES) + "\n")
    w.write(0, indent + "\t".join("-" * len(title) for title in _LIMIT_TITLES) + "\n")


def _write_limit_rows(w: Writer, limits: Obj, indent: str) -> None:
    for item in spec(limits).get("limits") or ():
        columns: list[Mapping[str, str]] = [item.get(key) or {} for key in _LIMIT_KEYS]
        for name in sorted({name for column in columns for name in column}):
            cells = (canonical(column[name]) if name in column else "-" for column in columns)
            w.row(0, f"{indent}{item.get('type', '')}", name, *cells)


async def limitrange(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    w.field("Name", meta(obj).get("name", ""))
    w.field("Namespace", meta(obj).get("namespace", ""))
    _write_limit_titles(w, "")
    _write_limit_rows(w, obj, "")
    return w.text()


async def poddisruptionbudget(obj: Obj, ctx: DescribeContext) -> str:
    wanted, found = spec(obj), status(obj)
    w = Writer()
    w.field("Name", meta(obj).get("name", ""))
    w.field("Namespace", meta(obj).get("namespace", ""))
    if wanted.get("minAvailable") is not None:
        w.field("Min available", wanted["minAvailable"])
    elif wanted.get("maxUnavailable") is not None:
        w.field("Max unavailable", wanted["maxUnavailable"])
    selector = wanted.get("selector")
    w.field("Selector", UNSET if selector is None else format_labels(selector))
    w.write(0, "Status:\n")
    for title, key in (
        ("Allowed disruptions", "disruptionsAllowed"),
        ("Current", "currentHealthy"),
        ("Desired", "desiredHealthy"),
        ("Total", "expectedPods"),
    ):
        w.field(title, found.get(key, 0), 2)
    await write_events(w, ctx, obj, "PodDisruptionBudget")
    return w.text()


async def priorityclass(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    w.field("Name", meta(obj).get("name", ""))
    w.field("Value", obj.get("value", 0))
    w.field("GlobalDefault", plain(bool(obj.get("globalDefault"))))
    w.field("PreemptionPolicy", obj.get("preemptionPolicy", ""))
    w.field("Description", obj.get("description", ""))
    w.field("Annotations", labels_text(meta(obj).get("annotations")))
    await write_events(w, ctx, obj, "PriorityClass")
    return w.text()
