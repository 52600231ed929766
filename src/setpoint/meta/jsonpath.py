"""JSONPath in kubectl's dialect: `{.items[*].metadata.name}`, `{range .items[*]}{.kind}{", "}{end}`.

A `JsonPath` is read once and may be evaluated any number of times, also at the same time; neither text nor data is
changed. What does not fit raises `JsonPathError` with upstream's message. Values of a map come in the order of its
keys (upstream: in any order). Work and memory are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from setpoint.meta.goformat import plain, type_name
from setpoint.meta.gojson import compact, indented
from setpoint.meta.jsonpath_parsing import (
    Descent,
    Field,
    Filter,
    Identifier,
    JsonPathError,
    Literal,
    Node,
    Slice,
    Steps,
    Text,
    Union,
    Wildcard,
    parse,
    path_text,
)

__all__ = ["JsonPath", "JsonPathError", "relaxed"]
MAX_VALUES: Final = 2_000_000
"""Maximum number of intermediate values, because repeated descents multiply them."""
MAX_RANGE_DEPTH: Final = 64
_RELAXED = re.compile(r"\{\.?([^{}]+)\}|\.?([^{}]+)")


def compare(operator: str, left: Any, right: Any) -> bool:
    match operator:
        case "==":
            return _equal(left, right)
        case "!=":
            return not _equal(left, right)
        case "<":
            return _less(left, right)
        case "<=":
            return _less(left, right) or _equal(left, right)
        case ">":
            return not (_less(left, right) or _equal(left, right))
        case ">=":
            return not _less(left, right)
    raise JsonPathError(f"unrecognized filter operator {operator}")


def _equal(left: Any, right: Any) -> bool:
    if _sort(left) != _sort(right):
        raise JsonPathError("incompatible types for comparison")
    return bool(left == right)


def _less(left: Any, right: Any) -> bool:
    sort = _sort(left)
    if sort != _sort(right):
        raise JsonPathError("incompatible types for comparison")
    if sort is bool:
        raise JsonPathError("invalid type for comparison")
    return bool(left < right)


def _sort(value: Any) -> type:
    kind = type(value)
    if kind not in (bool, int, float, str):
        raise JsonPathError("invalid type for comparison")
    return float if kind is int and not -(2**63) <= value < 2**63 else kind


Values = list[Any]


class _Nothing:
    def __repr__(self) -> str:
        return "<no value>"


NOTHING: Final = _Nothing()
"""Value of `@` in a range over nothing or null."""


class Evaluation:
    """The evaluation of one template on one value."""

    def __init__(self, nodes: Sequence[Node], allow_missing_keys: bool) -> None:
        self._nodes = nodes
        self._allow_missing = allow_missing_keys
        self._begun = self._inside = self._ended = 0
        self._last_end = -1
        self._budget = MAX_VALUES

    def run(self, data: Any, start: int = 0) -> list[Values]:
        """Return the values of each node from `start` to the end of the range."""
        if self._inside > MAX_RANGE_DEPTH:
            raise JsonPathError(f"ranges are nested more than {MAX_RANGE_DEPTH} deep")
        current: Values = [NOTHING if data is None else data]
        found: list[Values] = []
        at = start
        while at < len(self._nodes):
            values = self._walk(current, self._nodes[at])
            if 0 < self._ended <= self._inside:
                self._ended -= 1
                self._last_end = at
                break
            if self._begun > 0:
                self._begun -= 1
                self._inside += 1
                for value in values:
                    found += self.run(value, at + 1)
                if not values:  # The nodes up to the end of the range must be skipped nevertheless.
                    self.run(None, at + 1)
                self._inside -= 1
                at = max(at, self._last_end)
            else:
                found.append(values)
            at += 1
        return found

    def _walk(self, values: Values, node: Node) -> Values:
        match node:
            case Field():
                found = self._field(values, node.name)
            case Text():
                found = [node.text]
            case Steps():
                return self._steps(values, node)
            case Slice():
                found = _slice(values, node)
            case Literal():
                found = [node.value] * len(values)
            case Wildcard():
                found = [one for value in values for one in _content(value)]
            case Descent():
                found = self._descend(values)
            case Filter():
                found = self._filter(values, node)
            case Union():
                found = self._union(values, node)
            case Identifier():
                found = self._identifier(values, node.name)
        self._spend(len(found))
        return found

    def _spend(self, count: int) -> None:
        self._budget -= count + 1
        if self._budget < 0:
            raise JsonPathError(f"the template finds more than {MAX_VALUES} values")

    def _steps(self, values: Values, steps: Steps) -> Values:
        at = 0
        try:
            for at, node in enumerate(steps.nodes):  # noqa: B007
                values = self._walk(values, node)
        except JsonPathError as problem:
            problem.path = path_text(steps.nodes[: at + 1])
            raise
        return values

    def _identifier(self, values: Values, name: str) -> Values:
        if name == "range":
            self._begun += 1
            return values
        if name != "end":
            raise JsonPathError(f"unrecognized identifier {name}", values)
        if self._inside == 0:
            raise JsonPathError("not in range, nothing to end")
        self._ended += 1
        return []

    def _field(self, values: Values, name: str) -> Values:
        found = [value[name] for value in values if isinstance(value, dict) and name in value]
        if values and not found and not self._allow_missing:
            known = {key for value in values if isinstance(value, dict) for key in value}
            raise JsonPathError(f"{name} is not found", known=sorted(known))
        return found

    def _union(self, values: Values, union: Union) -> Values:
        found: Values = []
        for member in union.members:
            try:
                found += self._steps(values, member)
            except JsonPathError as problem:
                raise JsonPathError(str(problem), values, problem.known) from None
        return found

    def _descend(self, values: Values) -> Values:
        found: Values = []
        waiting = values[::-1]
        while waiting:
            value = waiting.pop()
            content = _content(value)
            if content:
                found.append(value)
                self._spend(len(content))
                waiting.extend(reversed(content))
        return found

    def _filter(self, values: Values, node: Filter) -> Values:
        found: Values = []
        for value in values:
            if not isinstance(value, list):
                shown = "<invalid reflect.Value>" if value is NOTHING else plain(value)
                raise JsonPathError(f"{shown} is not array or slice and cannot be filtered", values)
            for one in value:
                if self._passes(one, node, values, found):
                    found.append(one)
        return found

    def _passes(self, one: Any, node: Filter, values: Values, found: Values) -> bool:
        if node.operator == "exists":
            try:
                return bool(self._steps([one], node.left))
            except JsonPathError as problem:
                return bool(problem.reached)
        try:
            sides: list[Any] = []
            for side in (node.left, node.right):
                reached = self._steps([one], side)
                if not reached:
                    return False
                if len(reached) > 1:
                    raise JsonPathError("can only compare one element at a time")
                sides += reached
        except JsonPathError as problem:
            raise JsonPathError(str(problem), values, problem.known) from None
        try:
            return compare(node.operator, *sides)
        except JsonPathError as problem:
            raise JsonPathError(str(problem), found) from None


def _content(value: Any) -> Values:
    """Return the elements of a value: those of a map in the order of its keys, those of a string as bytes."""
    if isinstance(value, dict):
        return [value[key] for key in sorted(value)]
    if isinstance(value, list):
        return value
    if isinstance(value, str):
        return list(value.encode("utf-8", "surrogateescape"))
    return []


def _slice(values: Values, node: Slice) -> Values:
    found: Values = []
    for value in values:
        if value is None:
            continue
        if not isinstance(value, list):
            kind = "<nil>" if value is NOTHING else type_name(value)
            raise JsonPathError(f"{kind} is not array or slice", values)
        length = len(value)
        start = node.start or 0
        start += length if start < 0 else 0
        end = length if node.end is None else node.end
        end += length if end < 0 or (end == 0 and node.single) else 0
        if start == end:
            return found  # Upstream stops here and ignores the remaining input.
        if not 0 <= start < length:
            raise JsonPathError(f"array index out of bounds: index {start}, length {length}", values)
        if not 0 <= end <= length:
            raise JsonPathError(f"array index out of bounds: index {end - 1}, length {length}", values)
        if start > end:
            raise JsonPathError(f"starting index {start} is greater than ending index {end}", values)
        if node.step is not None and node.step <= 0:
            raise JsonPathError("step must be > 0", values)
        found += value[start : end : node.step or 1]
    return found


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
