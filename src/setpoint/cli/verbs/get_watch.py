"""`get --watch`: print the current objects, and then every change; on a terminal, update a table in place."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.printing import Printable, Printer, WatchEvent
from setpoint.cli.resources import Chosen, Selection, Target
from setpoint.cli.verbs.get import accepted, human, pages, printer_for, read
from setpoint.client.failures import failure_of
from setpoint.client.resources import query_of
from setpoint.meta.errors import NotFound
from setpoint.meta.objects import Obj
from setpoint.meta.times import human_duration, parse_time
from setpoint.tasks import child_tasks

if TYPE_CHECKING:
    from setpoint.client import Resource


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_AGE = "Age"


class LiveTable:
    """Converts the server's tables, of lists and of single events, to terminal output that shows the current rows.

    Rows stay in the order of arrival, and their ages are updated.
    """

    def __init__(self, make: Callable[[], Printer], size: tuple[int, int]) -> None:
        """Create a table; `make` returns a new printer for every frame.

        If the table is higher than the terminal of this size (columns, lines), only changes are printed line by line,
        because the cursor cannot reach lines that have scrolled away.
        """
        self._make = make
        self._width, self._height = size
        self._columns: list[Obj] = []
        self._rows: dict[str, Obj] = {}
        self._drawn = 0
        self._shown = ""
        self._plain: Printer | None = None

    def see(self, table: Obj, *, gone: bool = False) -> str:
        """Return the output for a table that the server sent."""
        self._columns = table.get("columnDefinitions") or self._columns
        for row in table.get("rows") or ():
            key = _key(row)
            if gone:
                self._rows.pop(key, None)
            else:
                self._rows[key] = row
        text = self._text()
        if self._plain is not None or self._lines(text) + 1 > self._height:
            return self._as_lines(table)
        return self._redrawn(text)

    def grow_older(self, now: datetime) -> str:
        """Return the output that updates the ages to `now`; empty if nothing changed."""
        at = next((index for index, column in enumerate(self._columns) if column.get("name") == _AGE), None)
        if at is None or self._plain is not None:
            return ""
        self._rows = {key: _aged(row, at, now) for key, row in self._rows.items()}
        text = self._text()
        return self._redrawn(text) if text != self._shown else ""

    def _text(self) -> str:
        printer = self._make()
        whole = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": self._columns}
        return printer.print({**whole, "rows": list(self._rows.values())}) + printer.flush()

    def _redrawn(self, text: str) -> str:
        up = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        self._drawn, self._shown = self._lines(text), text
        return up + text

    def _lines(self, text: str) -> int:
        """Return the number of terminal lines of a text, including wrapped ones."""
        plain = _COLOUR.sub("", text).splitlines()
        return sum(max(1, -(-len(line) // self._width)) for line in plain)

    def _as_lines(self, table: Obj) -> str:
        if self._plain is None:
            self._plain = self._make()
            self._drawn = 0
        return self._plain.print(table) + self._plain.flush()


def _key(row: Obj) -> str:
    meta = (row.get("object") or {}).get("metadata") or {}
    return meta.get("uid") or f"{meta.get('namespace', '')}/{meta.get('name') or row.get('cells')}"


def _aged(row: Obj, at: int, now: datetime) -> Obj:
    created = ((row.get("object") or {}).get("metadata") or {}).get("creationTimestamp")
    cells = row.get("cells") or []
    try:
        age = human_duration(max(0.0, (now - parse_time(created)).total_seconds())) if created else ""
    except ValueError:
        return row
    return {**row, "cells": [*cells[:at], age, *cells[at + 1 :]]} if age and at < len(cells) else row


_SECOND = 1.0
_USUAL_SIZE = (80, 24)
Show = Callable[[str, Obj], None]
"""Prints an event of an object."""


async def watch(invocation: Invocation, chosen: Chosen) -> None:
    """Watch until the server ends it or the user interrupts it."""
    one = _the_one(chosen)
    if not _on_screen(invocation):
        await _follow(invocation, one, _line_by_line(invocation, one.resource))
        return
    table = _live_table(invocation, one.resource)

    def show(kind: str, obj: Obj) -> None:
        invocation.print(table.see(obj, gone=kind == "DELETED"), end="")

    async with child_tasks(_age(invocation, table)):
        await _follow(invocation, one, show)


async def _age(invocation: Invocation, table: LiveTable) -> None:
    while True:
        await invocation.io.clock.sleep(_SECOND)
        if text := table.grow_older(invocation.io.clock.now()):
            invocation.print(text, end="")
            invocation.flush()


async def _follow(invocation: Invocation, one: Target | Selection, show: Show) -> None:
    begin, options = await (
        _named(invocation, one, show) if isinstance(one, Target) else _listed(invocation, one, show)
    )
    invocation.flush()
    skip = begin == "0"  # a watch of one object begins with its current state, which has been printed already
    path = one.path if isinstance(one, Selection) else Selection(one.resource, one.namespace).path
    query = query_of({"watch": True, "resourceVersion": begin, **options})
    stream = await invocation.client.sender.watch(path, query, accept=accepted(invocation))
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
            invocation.flush()
    finally:
        stream.close()


def _the_one(chosen: Chosen) -> Target | Selection:
    kinds: set[Resource] = {one.resource for one in chosen.all}
    if len(kinds) > 1:
        raise Failed("you may only specify a single resource type")
    if len(chosen.all) != 1:
        raise Failed("watch is only supported on individual resources and resource collections")
    return chosen.all[0]


async def _named(invocation: Invocation, target: Target, show: Show) -> tuple[str, dict[str, Any]]:
    try:
        found = await read(invocation, target)
    except NotFound:
        if invocation.flags.ignore_not_found:
            return "0", {"fieldSelector": f"metadata.name={target.name}"}
        raise
    if not invocation.flags.watch_only:
        show("ADDED", found)
    return "0", {"fieldSelector": f"metadata.name={target.name}"}


async def _listed(invocation: Invocation, selection: Selection, show: Show) -> tuple[str, dict[str, Any]]:
    revision = ""
    async for page in pages(invocation, selection):
        revision = (page.get("metadata") or {}).get("resourceVersion") or revision
        if not invocation.flags.watch_only:
            items = page.get("items") if not human(invocation) or page.get("kind") != "Table" else None
            for obj in items if isinstance(items, list) else [page]:
                one = {"apiVersion": selection.resource.api_version, "kind": selection.resource.kind, **obj}
                show("ADDED", one)
    return revision, {"labelSelector": selection.label_selector, "fieldSelector": selection.field_selector}


def _line_by_line(invocation: Invocation, resource: Resource) -> Show:
    printer = printer_for(invocation, resource)

    def show(kind: str, obj: Obj) -> None:
        shown: Printable = WatchEvent(kind, obj) if invocation.flags.output_watch_events else obj
        invocation.print(printer.print(shown) + printer.flush(), end="")

    return show


def _on_screen(invocation: Invocation) -> bool:
    """Return whether to update a table in place on a terminal."""
    return (
        invocation.io.colour
        and human(invocation)
        and invocation.flags.server_print
        and not invocation.flags.output_watch_events
    )


def _live_table(invocation: Invocation, resource: Resource) -> LiveTable:
    from setpoint.cli.terminal import size

    return LiveTable(lambda: printer_for(invocation, resource), size(invocation.io.stdout) or _USUAL_SIZE)
