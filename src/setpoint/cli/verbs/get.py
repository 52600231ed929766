"""`get`: print objects as tables, documents or other formats of `-o`; once, or as they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.flags import number, switch, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.output import AT, GET_OUTPUT, output_flags
from setpoint.cli.printing import Printer, as_list, make_get_printer
from setpoint.cli.printing.table import is_table
from setpoint.cli.resources import ALL_NAMESPACES, FILES, SELECTORS, Chosen, Selection, Target, choose
from setpoint.client import Resource
from setpoint.client.resources import query_of
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.objects import Obj

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_JSON = "application/json"
_TABLE = f"{_JSON};as=Table;v=v1;g=meta.k8s.io,{_JSON};as=Table;v=v1beta1;g=meta.k8s.io,{_JSON}"


class _Found(NamedTuple):
    """One response of the server: an object, a list, or a table of either."""

    resource: Resource
    document: Obj


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    _check(invocation)
    if flags.at:
        from setpoint.cli.past import read_at  # rarely needed

        read_at(invocation, flags.at)
    if flags.raw:
        await _raw(invocation)
        return
    chosen = await choose(invocation, lists=True)
    if flags.subresource and chosen.selections:
        raise Failed("subresource cannot be used when bulk resources are specified")
    if flags.watch or flags.watch_only:
        from setpoint.cli.verbs.get_watch import watch

        await watch(invocation, chosen)
    elif human(invocation):
        await _tables(invocation, chosen)
    else:
        await _documents(invocation, chosen)


def _check(invocation: Invocation) -> None:
    flags = invocation.flags
    if flags.raw:
        if flags.watch or flags.watch_only or flags.selector:
            raise Failed(
                "--raw may not be specified with other flags that filter the server request or alter the output"
            )
        if flags.output:
            raise Failed("--raw and --output are mutually exclusive")
        if not flags.raw.startswith("/"):
            raise Failed(f'--raw must be a valid URL path: parse "{flags.raw}": invalid URI for request')
        return
    output_flags(invocation).check()
    if flags.output_watch_events and not (flags.watch or flags.watch_only):
        raise Failed("--output-watch-events option can only be used with --watch or --watch-only")
    if flags.sort_by and flags.watch:
        invocation.print_err("warning: --watch requested, --sort-by will be ignored for watch events received")
    elif flags.sort_by and flags.watch_only:
        invocation.print_err("warning: --watch-only requested, --sort-by will be ignored")
    if not (invocation.args or flags.filename or flags.kustomize or flags.watch or flags.watch_only):
        invocation.print_err(
            'You must specify the type of resource to get. Use "setpoint api-resources" for a complete list of '
            "supported resources.\n"
        )
        invocation.usage(
            'Required resource not specified.\nUse "setpoint explain <resource>" for a detailed description of that '
            "resource (e.g. setpoint explain pods)."
        )


def human(invocation: Invocation) -> bool:
    """Return whether the output is a table, which the server generates."""
    return output_flags(invocation).for_people


async def _raw(invocation: Invocation) -> None:
    path, _, query = invocation.flags.raw.partition("?")
    reply = await invocation.client.sender.request("GET", path, query, accept="*/*")
    invocation.write(reply.body)


# -- requests ----------------------------------------------------------------------------------------------------------


def accepted(invocation: Invocation) -> str:
    return _TABLE if human(invocation) and invocation.flags.server_print else _JSON


async def read(invocation: Invocation, target: Target) -> Obj:
    path = target.path + (f"/{invocation.flags.subresource}" if invocation.flags.subresource else "")
    query = "includeObject=Object" if invocation.flags.sort_by and human(invocation) else ""
    return await invocation.client.sender.json("GET", path, query, accept=accepted(invocation))


async def pages(invocation: Invocation, selection: Selection) -> AsyncIterator[Obj]:
    """Yield the pages of a list; a single one if it is to be sorted."""
    options: dict[str, Any] = {
        "labelSelector": selection.label_selector,
        "fieldSelector": selection.field_selector,
        "includeObject": "Object" if invocation.flags.sort_by and human(invocation) else "",
        "limit": None if invocation.flags.sort_by else invocation.flags.chunk_size or None,
    }
    while True:
        page = await invocation.client.sender.json(
            "GET", selection.path, query_of(options), accept=accepted(invocation)
        )
        yield page
        options["continue"] = (page.get("metadata") or {}).get("continue") or ""
        if not options["continue"]:
            return


async def _found(invocation: Invocation, chosen: Chosen, errors: list[Exception]) -> list[_Found]:
    found: list[_Found] = []
    for one in chosen.all:
        try:
            if isinstance(one, Target):
                found.append(_Found(one.resource, await read(invocation, one)))
            else:
                found += [_Found(one.resource, page) async for page in pages(invocation, one)]
        except ApiError as error:
            if not (isinstance(error, NotFound) and invocation.flags.ignore_not_found):
                errors.append(error)
    return found


# -- output ------------------------------------------------------------------------------------------------------------


async def _tables(invocation: Invocation, chosen: Chosen) -> None:
    errors: list[Exception] = []
    found = await _found(invocation, chosen, errors)
    with_kind = len({one.resource for one in found}) > 1
    with_namespace = False
    if invocation.flags.sort_by:
        found = _together(found)
    written, between = False, ""
    printer: Printer | None = None
    last: Resource | None = None
    for resource, document in found:
        if printer is None or resource != last:
            if printer is not None:
                text = printer.flush()
                invocation.print(between + text if text else "", end="")
                written, between = written or bool(text), "" if text else between
                if written and not invocation.flags.no_headers:
                    between = "\n"
            # As in kubectl, cluster-scoped kinds have the namespace column too once there is one.
            with_namespace = with_namespace or (invocation.flags.all_namespaces and resource.namespaced)
            printer, last = printer_for(invocation, resource, with_kind, with_namespace), resource
        printer.print(document)
    text = printer.flush() if printer is not None else ""
    invocation.print(between + text if text else "", end="")
    if not (written or text or errors or invocation.flags.ignore_not_found):
        somewhere = invocation.flags.all_namespaces or any(not one.resource.namespaced for one in found)
        invocation.print_err(
            "No resources found" if somewhere else f"No resources found in {invocation.namespace} namespace."
        )
    raise_all(errors)


def _together(found: list[_Found]) -> list[_Found]:
    """Join the tables of single objects into one table, whose rows can be sorted."""
    out: list[_Found] = []
    for resource, document in found:
        last = out[-1] if out and out[-1].resource == resource else None
        if last is not None and is_table(document) and is_table(last.document):
            rows = [*(last.document.get("rows") or ()), *(document.get("rows") or ())]
            out[-1] = _Found(resource, {**last.document, "rows": rows})
        else:
            out.append(_Found(resource, document))
    return out


def printer_for(
    invocation: Invocation, resource: Resource, with_kind: bool = False, with_namespace: bool | None = None
) -> Printer:
    if with_namespace is None:
        with_namespace = invocation.flags.all_namespaces and resource.namespaced
    return make_get_printer(
        output_flags(invocation),
        invocation.io.clock.now,
        kind=resource.kind,
        group=resource.group,
        with_namespace=with_namespace,
        with_kind=with_kind,
        colour=invocation.io.colour,
    )


async def _documents(invocation: Invocation, chosen: Chosen) -> None:
    printer = make_get_printer(output_flags(invocation), invocation.io.clock.now)
    errors: list[Exception] = []
    found = await _found(invocation, chosen, errors)
    if errors and chosen.single:
        raise errors[0]
    objects: list[Obj] = []
    for resource, document in found:
        items = document.get("items")
        if isinstance(items, list) and str(document.get("kind", "")).endswith("List"):
            objects += [{"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in items]
        else:
            objects.append(document)
    if not objects and invocation.flags.ignore_not_found:
        raise_all(errors)
        return
    shown = objects[0] if chosen.single and len(objects) == 1 else as_list(objects)
    invocation.print(printer.print(shown) + printer.flush(), end="")
    raise_all(errors)


COMMAND = Command(
    "Display one or many resources",
    run,
    (
        *GET_OUTPUT,
        *FILES,
        *SELECTORS,
        *ALL_NAMESPACES,
        switch("watch", "w", help="After listing/getting the requested object, watch for changes."),
        switch("watch-only", help="Watch for changes to the requested object(s), without listing/getting first."),
        switch("output-watch-events", help="Output watch event objects when --watch or --watch-only is used."),
        switch("ignore-not-found", help="If set to true, suppresses NotFound error for specific objects."),
        number("chunk-size", default=500, help="Return large lists in chunks rather than all at once; 0 to disable."),
        text("raw", help="Raw URI to request from the server, with the rights of the kubeconfig."),
        text("subresource", help="If specified, gets the subresource of the requested object."),
        text("sort-by", help="Sort by the field that this JSONPath names, e.g. '{.metadata.name}'."),
        switch("no-headers", help="When using the default or custom-column output format, don't print headers."),
        switch("show-labels", help="When printing, show all labels as the last column."),
        switch("show-kind", help="If present, list the resource type for the requested object(s)."),
        texts("label-columns", "L", help="Labels that are going to be presented as columns."),
        AT,
        switch("server-print", default=True, help="If true, have the server return the appropriate table output."),
    ),
    usage="[(-o|--output=)FORM] (TYPE[.VERSION][.GROUP] [NAME | -l label] | TYPE[.VERSION][.GROUP]/NAME ...) [flags]",
    examples="""
    # All Pods of the namespace, and with more columns
    setpoint get pods
    setpoint get pods -o wide

    # One object, whole
    setpoint get deployment web -o yaml

    # Of several kinds, by label, as they change
    setpoint get pods -l app=web --watch
    setpoint get deploy,rs,pods -l app=web

    # One field
    setpoint get pod web -o jsonpath='{.status.phase}'

    # As it was five minutes ago
    setpoint get pods --at -5m
    """,
)
