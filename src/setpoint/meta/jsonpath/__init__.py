"""JSONPath in kubectl's dialect: `{.items[*].metadata.name}`, `{range .items[*]}{.kind}{"\\n"}{end}`.

A `JsonPath` is read once and may be evaluated any number of times, also at the same time; neither text nor data is
changed. What does not fit raises `JsonPathError` with upstream's message. Values of a map come in the order of its
keys (upstream: in any order). Work and memory are bounded.
"""

from __future__ import annotations

import re
from typing import Any

from setpoint.meta.goformat import plain
from setpoint.meta.gojson import compact, indented
from setpoint.meta.jsonpath.errors import JsonPathError
from setpoint.meta.jsonpath.evaluation import NOTHING, Evaluation
from setpoint.meta.jsonpath.nodes import Node
from setpoint.meta.jsonpath.parsing import parse

__all__ = ["JsonPath", "JsonPathError", "relaxed"]

_RELAXED = re.compile(r"\{\.?([^{}]+)\}|\.?([^{}]+)")


class JsonPath:
    __slots__ = ("_nodes", "allow_missing_keys", "text")

    def __init__(self, text: str, nodes: tuple[Node, ...], allow_missing_keys: bool) -> None:
        self.text = text
        self.allow_missing_keys = allow_missing_keys
        self._nodes = nodes

    @classmethod
    def parse(cls, text: str, *, allow_missing_keys: bool = False) -> JsonPath:
        """Parse a template. With `allow_missing_keys` a field that is not there finds nothing instead of failing."""
        return cls(text, parse(text), allow_missing_keys)

    @classmethod
    def parse_relaxed(cls, text: str, *, allow_missing_keys: bool = False) -> JsonPath:
        """Parse a single path, with or without braces and leading dot."""
        return cls.parse(relaxed(text), allow_missing_keys=allow_missing_keys)

    def find(self, data: Any) -> list[Any]:
        """Return all values found, in order; the texts of a template are among them."""
        return [value for group in self.groups(data) for value in group]

    def groups(self, data: Any) -> list[list[Any]]:
        """Return the values that each text and action of the template produced."""
        found = Evaluation(self._nodes, self.allow_missing_keys).run(data)
        return [[None if value is NOTHING else value for value in group] for group in found]

    def render(self, data: Any) -> str:
        """Return the template filled in: texts bare, maps and lists as JSON, several values with a blank between them.

        Bytes that are no UTF-8 come as surrogates (`surrogateescape`).
        """
        found = Evaluation(self._nodes, self.allow_missing_keys).run(data)
        return "".join(" ".join(map(_text, group)) for group in found)

    def render_json(self, data: Any) -> str:
        """Return the values of each text and action as an indented JSON list."""
        return "".join(indented(group) + "\n" for group in self.groups(data))


def relaxed(text: str) -> str:
    """Return the template for a path that may lack braces and leading dot."""
    if not text:
        return text
    found = _RELAXED.fullmatch(text)
    if found is None:
        raise JsonPathError(
            "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or '{.name1.name2}'"
        )
    return "{." + (found[1] or found[2]) + "}"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, dict | list):
        return compact(value)
    if value is NOTHING:
        return "<no value>"
    return plain(value)
