"""Print tables: those that the server generated, with additional columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from setpoint.cli.escaping import cell as safe
from setpoint.cli.printing.interface import Printable, WatchEvent, list_items
from setpoint.cli.tabwriter import SteadyColumns
from setpoint.meta.goformat import plain
from setpoint.meta.objects import Obj

_TABLES = ("meta.k8s.io/v1", "meta.k8s.io/v1beta1")
_TYPES = {"ADDED": "ADDED   ", "MODIFIED": "MODIFIED", "DELETED": "DELETED ", "ERROR": "ERROR   "}
"""Event types padded to one width, so that the columns of a watch do not move."""


class TableOptions(NamedTuple):
    wide: bool = False
    no_headers: bool = False
    with_namespace: bool = False
    kind: str = ""
    """The prefix of the names, `pod` or `deployment.apps`; empty for none."""
    label_columns: tuple[str, ...] = ()
    show_labels: bool = False
    colour: bool = False


class _Table(NamedTuple):
    columns: list[Obj]
    rows: list[list[Any]]


def is_table(obj: Obj) -> bool:
    return obj.get("kind") == "Table" and obj.get("apiVersion") in _TABLES


class TablePrinter:
    """Buffers rows until `flush`.

    Headers are written above rows when the columns have changed; a table without column definitions (later events of a
    watch) has those of the previous one.
    """

    def __init__(self, options: TableOptions, now: Callable[[], datetime]) -> None:
        self._options = options
        self._now = now
        self._grid = SteadyColumns()
        self._lines: list[str] = []
        self._headers: dict[int, list[str]] = {}
        """The column names of buffered header lines, by line number."""
        self._names: list[str] = []
        self._last_columns: list[Obj] = []
        self._headers_written = False
        self._object_headers_written = False

    def print(self, obj: Printable) -> str:
        type_, obj = obj if isinstance(obj, WatchEvent) else ("", obj)
        if is_table(obj):
            self._table(obj, type_)
        else:
            self._object(obj, type_)
        return ""

    def flush(self) -> str:
        text = "".join(self._lines)
        if self._options.colour and text:
            from setpoint.cli.printing.colour import painter

            out = self._grid.align(text, painter(self._headers, self._names))
        else:
            out = self._grid.align(text)
        if self._headers:
            self._names = self._headers[max(self._headers)]
        self._lines.clear()
        self._headers.clear()
        return out

    def _table(self, obj: Obj, type_: str) -> None:
        columns = obj.get("columnDefinitions") or []
        rows = obj.get("rows") or []
        with_headers = not self._options.no_headers
        if self._headers_written and (not columns or columns == self._last_columns):
            with_headers = False
        if not columns:
            columns = self._last_columns
        elif columns != self._last_columns:
            self._last_columns = columns
            self._headers_written = False
        if rows:
            self._headers_written = True
        table = _decorated(columns, rows, self._options)
        if type_:
            table.columns.insert(0, {"name": "Event", "type": "string"})
            for cells in table.rows:
                cells.insert(0, _TYPES.get(type_, type_))
        shown = [at for at, column in enumerate(table.columns) if self._options.wide or not column.get("priority", 0)]
        if with_headers and rows:
            self._header([_shown(table.columns[at].get("name", "").upper()) for at in shown])
        for cells in table.rows:
            count = len(cells)
            self._lines.append("\t".join(_shown(cells[at]) for at in shown if at < count) + "\n")

    def _object(self, obj: Obj, type_: str) -> None:
        options = self._options
        if not options.no_headers and not self._object_headers_written:
            labels = [_label_header(label) for label in options.label_columns]
            self._header(
                ["EVENT"] * bool(type_)
                + ["NAMESPACE"] * options.with_namespace
                + ["NAME", "AGE", *labels]
                + ["LABELS"] * options.show_labels
            )
        self._object_headers_written = True
        items = list_items(obj)
        for one in [obj] if items is None else items:
            meta = one.get("metadata") or {}
            name = meta.get("name", "")
            cells = [_TYPES.get(type_, type_)] * bool(type_) + [meta.get("namespace", "")] * options.with_namespace
            cells += [f"{options.kind}/{name}" if options.kind else name, self._age(meta.get("creationTimestamp"))]
            cells += _label_cells(meta.get("labels"), options)
            self._lines.append("\t".join(map(_shown, cells)) + "\n")

    def _age(self, created: str | None) -> str:
        if not created:
            return "<unknown>"
        from setpoint.meta.times import human_duration, parse_time  # tables of the server contain ages already

        return human_duration((self._now() - parse_time(created)).total_seconds())

    def _header(self, names: list[str]) -> None:
        self._headers[len(self._lines)] = names
        self._lines.append("\t".join(names) + "\n")


def _shown(cell: Any) -> str:
    if cell is None:
        return ""
    return safe(cell if isinstance(cell, str) else plain(cell))


def _decorated(columns: list[Obj], rows: list[Obj], options: TableOptions) -> _Table:
    """Return a table with namespace, kind and label columns added; the original is not changed."""
    labelled = options.show_labels or bool(options.label_columns)
    width = len(columns) + len(options.label_columns) + options.with_namespace + options.show_labels
    name_column = -1
    if options.kind:
        name_column = next(
            (at for at, one in enumerate(columns) if one.get("format") == "name" and one.get("type") == "string"), -1
        )
    out: list[list[Any]] = []
    for row in rows:
        cells = list(row.get("cells") or ())
        obj = row.get("object")
        meta = (obj or {}).get("metadata") or {}
        if 0 <= name_column < len(cells):
            cells[name_column] = f"{options.kind}/{plain(cells[name_column])}"
        if options.with_namespace:
            cells.insert(0, None if obj is None else meta.get("namespace", ""))
        if labelled:
            # As in kubectl, rows without objects get half of the missing empty cells, which shows in trailing spaces.
            cells += _label_cells(meta.get("labels"), options) if obj else [None] * ((width - len(cells) + 1) // 2)
        out.append(cells)
    if width == len(columns):
        return _Table(list(columns), out)
    return _Table(
        [_column("Namespace")] * options.with_namespace
        + columns
        + [_column(_label_header(label)) for label in options.label_columns]
        + [_column("Labels")] * options.show_labels,
        out,
    )


def _column(name: str) -> Obj:
    return {"name": name, "type": "string"}


def _label_header(label: str) -> str:
    return label.rpartition("/")[2].upper()


def _label_cells(labels: dict[str, str] | None, options: TableOptions) -> list[str]:
    labels = labels or {}
    cells = [labels.get(label, "") for label in options.label_columns]
    if options.show_labels:
        cells.append(",".join(f"{key}={labels[key]}" for key in sorted(labels)) or "<none>")
    return cells
