"""`-o custom-columns`: a table whose columns are paths."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.cli.escaping import escaped
from setpoint.cli.printing.hints import path_hint
from setpoint.cli.printing.interface import Obj, Printable, PrintProblem, as_document, list_items
from setpoint.cli.tabwriter import SteadyColumns
from setpoint.meta.goformat import plain
from setpoint.meta.jsonpath import JsonPath, JsonPathError, relaxed

Column = tuple[str, str]
"""Header and evaluated path."""


def columns_of_spec(spec: str) -> list[Column]:
    """Parse `NAME:.metadata.name,NODE:.spec.nodeName`."""
    columns = []
    for part in spec.split(","):
        header, colon, path = part.partition(":")
        if not colon:
            raise PrintProblem(f"unexpected custom-columns spec: {part}, expected <header>:<json-path-expr>")
        columns.append((header, _path(path)))
    return columns


def columns_of_file(text: str) -> list[Column]:
    """Parse a line of headers and a line of paths."""
    lines = text.splitlines()
    for number, what in enumerate(("header", "spec")):
        if len(lines) <= number:
            raise PrintProblem(
                f"invalid template, missing {what} line. Expected format is one line of space separated headers, "
                "one line of space separated column specs."
            )
    headers, specs = lines[0].split(), lines[1].split()
    if len(headers) != len(specs):
        raise PrintProblem(f"number of headers ({len(headers)}) and field specifications ({len(specs)}) don't match")
    return list(zip(headers, map(_path, specs), strict=True))


def _path(text: str) -> str:
    try:
        return relaxed(text)
    except JsonPathError as problem:
        raise PrintProblem(str(problem)) from None


class ColumnsPrinter:
    def __init__(self, columns: Sequence[Column], no_headers: bool = False) -> None:
        self._headers = [] if no_headers else [header for header, _ in columns]
        self._columns = columns
        self._paths: list[JsonPath] | None = None
        self._grid = SteadyColumns()
        self._lines: list[str] = []

    def print(self, obj: Printable) -> str:
        if self._headers:
            self._lines.append("\t".join(self._headers) + "\n")
            self._headers = []
        document = as_document(obj)
        items = list_items(document)
        try:
            if self._paths is None:
                self._paths = [JsonPath.parse(path, allow_missing_keys=True) for _, path in self._columns]
            for one in [document] if items is None else items:
                self._lines.append("\t".join([_cell(path, one) for path in self._paths]) + "\n")
        except JsonPathError as problem:
            raise PrintProblem(str(problem), self.flush(), path_hint(problem)) from None
        return ""

    def flush(self) -> str:
        out = self._grid.align("".join(self._lines))
        self._lines.clear()
        return out


def _cell(path: JsonPath, obj: Obj) -> str:
    groups = path.groups(obj)
    texts = [] if groups and groups[0] else ["<none>"]
    texts += [escaped(plain(value)) for group in groups for value in group]
    return ",".join(texts)
