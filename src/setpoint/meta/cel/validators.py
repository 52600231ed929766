"""Validation of constants beyond their types: invalid durations, timestamps and patterns."""

from __future__ import annotations

from collections.abc import Callable

from setpoint.meta.cel.libraries.conversions import string_to_duration, string_to_timestamp
from setpoint.meta.cel.libraries.regular import compiled
from setpoint.meta.cel.libraries.string_format import bad_format
from setpoint.meta.cel.source import Issue
from setpoint.meta.cel.syntax import Call, Expr, ListExpr, Literal, MapExpr, walk
from setpoint.meta.cel.types import Type
from setpoint.meta.cel.values import CelError

_LITERALS: dict[str, Callable[[str], object]] = {
    "duration": string_to_duration,
    "timestamp": string_to_timestamp,
    "matches": compiled,
}


def validate(tree: Expr, homogeneous: bool) -> list[Issue]:
    """Return the issues. `homogeneous` requires one type for list elements, except in arguments of `format`."""
    issues: list[Issue] = []
    exempt: set[int] = set()
    for node in walk(tree):
        if isinstance(node, Call):
            _literal_argument(node, issues)
            if node.function == "format":
                exempt.update(id(inner) for inner in walk(node))
                if node.target is not None:
                    issues.extend(bad_format(node))
        elif homogeneous and id(node) not in exempt:
            if isinstance(node, ListExpr):
                _same_elements(node, issues)
            elif isinstance(node, MapExpr):
                _same_entries(node, issues)
    return issues


def _literal_argument(call: Call, issues: list[Issue]) -> None:
    read = _LITERALS.get(call.function)
    if read is None or not call.arguments:
        return
    literal = call.arguments[0]
    if not isinstance(literal, Literal) or not isinstance(literal.value, str):
        return
    try:
        read(literal.value)
    except CelError:
        issues.append(Issue(f"invalid {call.function} argument", literal.position))


def _brought(expr: Expr, optional: bool) -> Type:
    return expr.type.parameters[0] if optional and expr.type.is_optional else expr.type


def _mismatch(expr: Expr, expected: Type, found: Type) -> Issue:
    return Issue(f"expected type '{expected}' but found '{found}'", expr.position)


def _same_elements(expr: ListExpr, issues: list[Issue]) -> None:
    first: Type | None = None
    for index, element in enumerate(expr.elements):
        found = _brought(element, index in expr.optional)
        if first is None:
            first = found
        elif found != first:
            issues.append(_mismatch(element, first, found))
            return


def _same_entries(expr: MapExpr, issues: list[Issue]) -> None:
    keys: Type | None = None
    values: Type | None = None
    for entry in expr.entries:
        key, value = entry.key.type, _brought(entry.value, entry.optional)
        if keys is None or values is None:
            keys, values = key, value
            continue
        if key != keys:
            issues.append(_mismatch(entry.key, keys, key))
        if value != values:
            issues.append(_mismatch(entry.value, values, value))
