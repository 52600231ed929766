"""The events about an object: found by reference, in order of their last occurrence."""

from __future__ import annotations

from typing import NamedTuple

from setpoint.cli.describe.context import DescribeContext, Writer, meta
from setpoint.cli.printing.go_sort import sort
from setpoint.client.interface import ResourceRef
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import escape_field

EVENTS: ResourceRef = builtin("events")
_NEVER = "0001-01-01T00:00:00Z"


class Reference(NamedTuple):
    name: str
    namespace: str
    kind: str
    uid: str


def reference_to(obj: Obj, kind: str) -> Reference:
    about = meta(obj)
    return Reference(about.get("name", ""), about.get("namespace", ""), kind, about.get("uid", ""))


async def find_events(ctx: DescribeContext, about: Reference) -> list[Obj]:
    """Return the events about an object. Raise ApiError."""
    wanted = {"name": about.name, "namespace": about.namespace}
    if about.kind:
        wanted["kind"] = about.kind
    if about.uid:
        wanted["uid"] = about.uid
    selector = ",".join(f"involvedObject.{key}={escape_field(wanted[key])}" for key in sorted(wanted))
    return await ctx.all(EVENTS, about.namespace, field_selector=selector)


async def visible_events(ctx: DescribeContext, about: Reference) -> list[Obj]:
    """Return the events about an object; none if the user may not list them."""
    try:
        return await find_events(ctx, about)
    except ApiError:
        return []


async def write_events(w: Writer, ctx: DescribeContext, obj: Obj, kind: str) -> None:
    if ctx.show_events:
        write_found_events(w, ctx, await visible_events(ctx, reference_to(obj, kind)))


def write_found_events(w: Writer, ctx: DescribeContext, events: list[Obj]) -> None:
    if not events:
        w.field("Events", "<none>")
        return
    w.flush()
    w.write(0, "Events:\n  Type\tReason\tAge\tFrom\tMessage\n")
    w.row(1, "----", "------", "----", "----", "-------")
    for event in _in_order(events):
        source = (event.get("source") or {}).get("component") or event.get("reportingComponent", "")
        w.row(1, event.get("type", ""), event.get("reason", ""), _age(ctx, event), source, _message(ctx, event))


def _in_order(events: list[Obj]) -> list[Obj]:
    """Sort by last occurrence, with kubectl's sort algorithm for events of the same second."""
    last = [str(event.get("lastTimestamp") or _NEVER) for event in events]
    return [events[at] for at in sort(len(events), lambda left, right: last[left] < last[right])]


def _age(ctx: DescribeContext, event: Obj) -> str:
    first = ctx.since(event.get("eventTime") or event.get("firstTimestamp"))
    series = event.get("series")
    if series is not None:
        return f"{ctx.since(series.get('lastObservedTime'))} (x{series.get('count', 0)} over {first})"
    if event.get("count", 0) > 1:
        return f"{ctx.since(event.get('lastTimestamp'))} (x{event['count']} over {first})"
    return first


def _message(ctx: DescribeContext, event: Obj) -> str:
    message: str = event.get("message", "").strip()
    path = (event.get("involvedObject") or {}).get("fieldPath", "")
    return f"{path}: {message}" if path and ctx.minor >= 35 else message
