"""Evaluation of template nodes on data.

Upstream's evaluator tracks its position in nested ranges with counters, and the output for unbalanced `{range}` and
`{end}` follows from that. This evaluator counts in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from setpoint.meta.goformat import plain, type_name
from setpoint.meta.jsonpath.comparing import compare
from setpoint.meta.jsonpath.errors import JsonPathError
from setpoint.meta.jsonpath.nodes import (
    Descent,
    Field,
    Filter,
    Identifier,
    Literal,
    Node,
    Slice,
    Steps,
    Text,
    Union,
    Wildcard,
)
from setpoint.meta.jsonpath.path_text import path_text

Values = list[Any]

MAX_VALUES: Final = 2_000_000
"""Maximum number of intermediate values, because repeated descents multiply them."""
MAX_RANGE_DEPTH: Final = 64


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
                if not values:  # the way to the end of the range must be gone all the same
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
            return found  # upstream stops here, whatever else came in
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
