"""A table that is updated in place on a terminal, for `get --watch`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from setpoint.cli.printing import Obj, Printer
from setpoint.meta.times import human_duration, parse_time

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
