"""A table on a terminal that changes in place: what `get --watch` shows to people."""

from __future__ import annotations

from collections.abc import Callable

from setpoint.cli.printing import Obj, Printer


class LiveTable:
    """Takes the server's tables, of lists and of single events, and gives what to write so that the screen shows the
    rows as they are now. Rows keep the order in which they came; the age of rows that do not change stays as it was.
    """

    def __init__(self, make: Callable[[], Printer], height: int) -> None:
        """`make` gives a fresh printer for every frame; of a table that is higher than the screen only what changes is
        told, line by line, since nobody can move the cursor to what has scrolled away."""
        self._make = make
        self._height = height
        self._columns: list[Obj] = []
        self._rows: dict[str, Obj] = {}
        self._drawn = 0
        self._plain: Printer | None = None

    def see(self, table: Obj, *, gone: bool = False) -> str:
        self._columns = table.get("columnDefinitions") or self._columns
        for row in table.get("rows") or ():
            key = _key(row)
            if gone:
                self._rows.pop(key, None)
            else:
                self._rows[key] = row
        if self._plain is not None or len(self._rows) + 2 > self._height:
            return self._as_lines(table)
        return self._redrawn()

    def _redrawn(self) -> str:
        printer = self._make()
        whole = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": self._columns}
        text = printer.print({**whole, "rows": list(self._rows.values())}) + printer.flush()
        up = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        self._drawn = text.count("\n")
        return up + text

    def _as_lines(self, table: Obj) -> str:
        if self._plain is None:
            self._plain = self._make()
            self._drawn = 0
        return self._plain.print(table) + self._plain.flush()


def _key(row: Obj) -> str:
    meta = (row.get("object") or {}).get("metadata") or {}
    return meta.get("uid") or f"{meta.get('namespace', '')}/{meta.get('name') or row.get('cells')}"
