"""`get --watch`: print the current objects, and then every change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.printing import Obj, Printable, WatchEvent
from setpoint.cli.resources import Chosen, Selection, Target
from setpoint.cli.verbs.get import accepted, human, pages, printer_for, read
from setpoint.client.failures import failure_of
from setpoint.client.paths import query_of
from setpoint.meta.errors import NotFound

if TYPE_CHECKING:
    from setpoint.cli.live_table import LiveTable
    from setpoint.client import Resource

_SECOND = 1.0
_USUAL_SIZE = (80, 24)
Show = Callable[[str, Obj], None]
"""Prints an event of an object."""


async def watch(call: Invocation, chosen: Chosen) -> None:
    """Watch until the server ends it or the user interrupts it."""
    one = _the_one(chosen)
    if not _on_screen(call):
        await _follow(call, one, _line_by_line(call, one.resource))
        return
    table = _live_table(call, one.resource)

    def show(kind: str, obj: Obj) -> None:
        call.print(table.see(obj, gone=kind == "DELETED"), end="")

    ageing = asyncio.ensure_future(_age(call, table))
    try:
        await _follow(call, one, show)
    finally:
        ageing.cancel()
        await asyncio.wait((ageing,))


async def _age(call: Invocation, table: LiveTable) -> None:
    while True:
        await call.io.clock.sleep(_SECOND)
        if text := table.grow_older(call.io.clock.now()):
            call.print(text, end="")
            call.flush()


async def _follow(call: Invocation, one: Target | Selection, show: Show) -> None:
    begin, options = await (_named(call, one, show) if isinstance(one, Target) else _listed(call, one, show))
    call.flush()
    skip = begin == "0"  # a watch of one object begins with its current state, which has been printed already
    path = one.path if isinstance(one, Selection) else Selection(one.resource, one.namespace).path
    query = query_of({"watch": True, "resourceVersion": begin, **options})
    stream = await call.client.sender.watch(path, query, accept=accepted(call))
    try:
        while True:
            try:
                kind, obj = await anext(stream)
            except StopAsyncIteration:
                return
            if kind == "ERROR":
                raise failure_of(obj)
            if kind == "BOOKMARK":
                continue
            if skip:
                skip = False
                if obj.get("kind") == "Table":
                    show(kind, {**obj, "rows": []})  # the columns are sent only once
                continue
            show(kind, obj)
            call.flush()
    finally:
        stream.close()


def _the_one(chosen: Chosen) -> Target | Selection:
    kinds: set[Resource] = {one.resource for one in chosen.all}
    if len(kinds) > 1:
        raise Failed("you may only specify a single resource type")
    if len(chosen.all) != 1:
        raise Failed("watch is only supported on individual resources and resource collections")
    return chosen.all[0]


async def _named(call: Invocation, target: Target, show: Show) -> tuple[str, dict[str, Any]]:
    try:
        found = await read(call, target)
    except NotFound:
        if call.flags.ignore_not_found:
            return "0", {"fieldSelector": f"metadata.name={target.name}"}
        raise
    if not call.flags.watch_only:
        show("ADDED", found)
    return "0", {"fieldSelector": f"metadata.name={target.name}"}


async def _listed(call: Invocation, selection: Selection, show: Show) -> tuple[str, dict[str, Any]]:
    revision = ""
    async for page in pages(call, selection):
        revision = (page.get("metadata") or {}).get("resourceVersion") or revision
        if not call.flags.watch_only:
            items = page.get("items") if not human(call) or page.get("kind") != "Table" else None
            for obj in items if isinstance(items, list) else [page]:
                one = {"apiVersion": selection.resource.api_version, "kind": selection.resource.kind, **obj}
                show("ADDED", one)
    return revision, {"labelSelector": selection.label_selector, "fieldSelector": selection.field_selector}


def _line_by_line(call: Invocation, resource: Resource) -> Show:
    printer = printer_for(call, resource)

    def show(kind: str, obj: Obj) -> None:
        shown: Printable = WatchEvent(kind, obj) if call.flags.output_watch_events else obj
        call.print(printer.print(shown) + printer.flush(), end="")

    return show


def _on_screen(call: Invocation) -> bool:
    """Return whether to update a table in place on a terminal."""
    return call.io.colour and human(call) and call.flags.server_print and not call.flags.output_watch_events


def _live_table(call: Invocation, resource: Resource) -> LiveTable:
    from setpoint.cli.live_table import LiveTable
    from setpoint.cli.terminal import size

    return LiveTable(lambda: printer_for(call, resource), size(call.io.stdout) or _USUAL_SIZE)
