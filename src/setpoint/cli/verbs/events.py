"""`events`: list events, the latest last."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.escaping import escaped
from setpoint.cli.failures import Failed
from setpoint.cli.flags import number, switch, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.printing.go_sort import sort
from setpoint.cli.resources import ALL_NAMESPACES, find_kind
from setpoint.cli.tabwriter import SteadyColumns, align
from setpoint.cli.writing import OUTPUT, Results
from setpoint.client.resources import builtin
from setpoint.kinds.cell_texts import since
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import escape_field


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    about = await _about(invocation)
    types = {one.lower() for one in flags.types}
    results = Results(invocation)
    if types - {"normal", "warning"}:
        raise Failed("valid --types are Normal or Warning")
    namespace = "" if flags.all_namespaces else invocation.namespace
    if flags.watch:
        await _watch(invocation, namespace, about, types, results)
        return
    listed = await invocation.client.list(
        builtin("events"), namespace, field_selector=about, page_size=flags.chunk_size
    )
    found = [event for event in listed.items if not types or str(event.get("type", "")).lower() in types]
    if not found:
        where = "" if flags.all_namespaces else f" in {invocation.namespace} namespace"
        invocation.print_err(f"No events found{where}.")
        return
    times = [_time(event) for event in found]
    found = [found[at] for at in sort(len(found), lambda left, right: times[left] < times[right])]
    if results.has_format:
        results.add({"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": found}, "", typed=True)
    else:
        invocation.print(
            align("\n".join([*_header(invocation), *(_row(invocation, event) for event in found)]), least=6, padding=3)
        )


async def _watch(invocation: Invocation, namespace: str, about: str, types: set[str], results: Results) -> None:
    """Print the current events, and then each new one, until the server ends the watch."""
    header = [] if results.has_format else _header(invocation)
    columns = SteadyColumns()
    async with invocation.client.watch(builtin("events"), namespace, field_selector=about, bookmarks=False) as watch:
        async for kind, event in watch:
            if kind in ("DELETED", "BOOKMARK") or (types and str(event.get("type", "")).lower() not in types):
                continue
            if results.has_format:
                results.add(event, "", typed=True)
            else:
                invocation.print(columns.align("\n".join([*header, _row(invocation, event)])))
                header = []
            invocation.flush()


async def _about(invocation: Invocation) -> str:
    """Return `--for` as a field selector."""
    typed_value = getattr(invocation.flags, "for")
    if not typed_value:
        return ""
    kind, slash, name = typed_value.partition("/")
    if not slash:
        raise Failed("--for must be in resource/name form")
    if "/" in name:
        raise Failed("arguments in resource/name form may not have more than one slash")
    resource = await find_kind(invocation, kind)
    return (
        f"involvedObject.kind={resource.kind},involvedObject.apiVersion={escape_field(resource.api_version)},"
        f"involvedObject.name={escape_field(name)}"
    )


def _time(event: Obj) -> str:
    """Return the time of the last occurrence; timestamps sort as text, except for their fractions."""
    series = event.get("series")
    found = (series or {}).get("lastObservedTime") if series else event.get("lastTimestamp") or event.get("eventTime")
    return str(found or "").removesuffix("Z")


def _header(invocation: Invocation) -> list[str]:
    if invocation.flags.no_headers:
        return []
    return ["NAMESPACE\t" * invocation.flags.all_namespaces + "LAST SEEN\tTYPE\tREASON\tOBJECT\tMESSAGE"]


def _row(invocation: Invocation, event: Obj) -> str:
    involved = event.get("involvedObject") or {}
    cells = [
        _interval(invocation, event),
        escaped(event.get("type", "")),
        escaped(event.get("reason", "")),
        f"{escaped(involved.get('kind', ''))}/{escaped(involved.get('name', ''))}",
        escaped(event.get("message", "").strip()),
    ]
    if invocation.flags.all_namespaces:
        cells.insert(0, event["metadata"].get("namespace", ""))
    return "\t".join(cells)


def _interval(invocation: Invocation, event: Obj) -> str:
    now = invocation.io.clock.now()
    first = since(event.get("eventTime") or event.get("firstTimestamp"), now)
    series = event.get("series")
    if series is not None:
        return f"{since(series.get('lastObservedTime'), now)} (x{series.get('count', 0)} over {first})"
    if event.get("count", 0) > 1:
        return f"{since(event.get('lastTimestamp'), now)} (x{event['count']} over {first})"
    return first


COMMAND = Command(
    "List events",
    run,
    (
        *OUTPUT,
        *ALL_NAMESPACES,
        switch("watch", "w", help="After listing the requested events, watch for more events."),
        text("for", help="Only those about this object, as kind/name."),
        texts("types", help="Output only events of given types: Normal, Warning."),
        switch("no-headers", help="When using the default output format, don't print headers."),
        number("chunk-size", default=500, help="How many objects a page of a list has; 0 for all at once."),
    ),
    usage="[(-o|--output=)json|yaml|name|jsonpath|...] [--for TYPE/NAME] [--watch] [--types=Normal,Warning]",
    examples="""
    # What happened to a Pod
    setpoint events --for pod/web-0

    # Warnings, wherever, as they come
    setpoint events -A --types=Warning --watch
    """,
)
