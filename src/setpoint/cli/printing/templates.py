"""Printers for JSONPath and Go templates."""

from __future__ import annotations

from typing import Any

from setpoint.cli.printing.hints import path_hint
from setpoint.cli.printing.interface import Printable, PrintProblem, as_document
from setpoint.meta.goformat import plain, quote
from setpoint.meta.jsonpath import JsonPath, JsonPathError


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
