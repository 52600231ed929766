"""Printers that evaluate paths and templates: JSONPath, Go templates and `-o custom-columns`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from setpoint.cli.escaping import escaped
from setpoint.cli.printing.interface import Printable, PrintProblem, as_document, list_items
from setpoint.cli.tabwriter import SteadyColumns
from setpoint.meta.goformat import plain, quote
from setpoint.meta.jsonpath import JsonPath, JsonPathError, relaxed
from setpoint.meta.objects import Obj

_MAX = 12


def path_hint(problem: JsonPathError) -> str:
    """Return where the path failed and which keys exist there."""
    if problem.at is not None:
        line_start = problem.template.rfind("\n", 0, problem.at) + 1
        line = problem.template[line_start:].partition("\n")[0]
        return f"  {line}\n  {' ' * max(0, problem.at - line_start - 1)}^"
    if not problem.path:
        return ""
    hint = f"  the path fails at {problem.path}"
    if not problem.known:
        return hint
    from difflib import get_close_matches  # only needed after an error

    missing = str(problem).removesuffix(" is not found")
    matches = get_close_matches(missing, problem.known, n=1)
    there = ", ".join(problem.known[:_MAX]) + (", ..." if len(problem.known) > _MAX else "")
    return f"{hint}; there are: {there}" + (f" (did you mean {matches[0]}?)" if matches else "")


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


class JsonPathPrinter:
    def __init__(self, template: str, allow_missing_keys: bool, as_json: bool = False) -> None:
        try:
            self._path = JsonPath.parse(template, allow_missing_keys=allow_missing_keys)
        except JsonPathError as problem:
            raise PrintProblem(f"error parsing jsonpath {template}, {problem}", hint=path_hint(problem)) from None
        self._as_json = as_json

    def print(self, obj: Printable) -> str:
        document = as_document(obj)
        try:
            return self._path.render_json(document) if self._as_json else self._path.render(document)
        except JsonPathError as problem:
            raise PrintProblem(
                f"error executing jsonpath {quote(self._path.text)}: Error executing template: {problem}. "
                "Printing more information for debugging the template:\n"
                f"\ttemplate was:\n\t\t{self._path.text}\n"
                f"\tobject given to jsonpath engine was:\n\t\t{go_syntax(document)}\n\n",
                hint=path_hint(problem),
            ) from None

    def flush(self) -> str:
        return ""


class GoTemplatePrinter:
    def __init__(self, template: str, allow_missing_keys: bool) -> None:
        # The engine is large, and Go templates are rare.
        from setpoint.cli.printing.go_template import GoTemplate, TemplateProblem

        try:
            self._template = GoTemplate.parse(template, allow_missing_keys=allow_missing_keys)
        except TemplateProblem as problem:
            raise PrintProblem(f"error parsing template {template}, {problem}") from None
        self._text = template
        self._problem = TemplateProblem

    def print(self, obj: Printable) -> str:
        from setpoint.meta.gojson import compact, go_round_trip

        document = go_round_trip(as_document(obj))
        try:
            return self._template.render(document)
        except self._problem as problem:
            raise PrintProblem(
                f"error executing template {quote(self._text)}: {problem}",
                f"{problem.output}Error executing template: {problem}. "
                "Printing more information for debugging the template:\n"
                f"\ttemplate was:\n\t\t{self._text}\n"
                f"\traw data was:\n\t\t{compact(document)}\n"
                f"\tobject given to template engine was:\n\t\t{plain(document)}\n\n",
            ) from None

    def flush(self) -> str:
        return ""


def go_syntax(value: Any) -> str:
    """Format a decoded JSON value as Go's %#v."""
    if isinstance(value, str):
        return quote(value)
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, dict):
        inner = ", ".join(f"{quote(key)}:{go_syntax(value[key])}" for key in sorted(value))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(go_syntax, value))}}}"
    return plain(value)
