"""The lists extension of CEL, at the version that Kubernetes uses."""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.macros import MacroMisuse, expand_map, late_binding
from setpoint.meta.cel.operators import compare, equals
from setpoint.meta.cel.syntax import Call, Comprehension, Expr, Ident, ListExpr, Select
from setpoint.meta.cel.values import CelError, is_list

MAX_RANGE = 1_000_000
_COMPARABLE = {
    "int": "int",
    "uint": "uint",
    "double": "double",
    "bool": "bool",
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
    "string": "string",
    "bytes": "bytes",
}
_INPUT = "@__sortBy_input__"


def _slice(values: Any, start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(values) < end:
        raise CelError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return [values[index] for index in range(start, end)]


def _flatten(values: Any, depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    result: list[Any] = []
    for value in values:
        if depth > 0 and is_list(value):
            result.extend(_flatten(value, depth - 1))
        else:
            result.append(value)
    return result


def _sort(values: Any) -> Any:
    return _sort_by_keys(values, values)


def _sort_by_keys(values: Any, keys: Any) -> Any:
    if len(values) != len(keys):
        raise CelError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got "
            f"{len(values)} and {len(keys)} elements respectively"
        )
    if len(values) == 0:
        return values
    order = list(keys)
    if len({type(key) for key in order}) > 1:
        raise CelError("list elements must have the same type")
    if order[0] is None or is_list(order[0]):
        raise CelError("list elements must be comparable")
    by = cmp_to_key(lambda one, other: compare(one, other, ""))
    return [values[index] for index in sorted(range(len(order)), key=lambda index: by(order[index]))]


def _range(count: int) -> list[int]:
    if count < 0:
        raise CelError(f"lists.range: size must be non-negative, got {count}")
    if count > MAX_RANGE:
        raise CelError(f"lists.range: size {count} exceeds maximum allowed ({MAX_RANGE})")
    return list(range(count))


def _reverse(values: Any) -> list[Any]:
    return list(values)[::-1]


def _distinct(values: Any) -> list[Any]:
    result: list[Any] = []
    for value in values:
        if not any(equals(value, other) for other in result):
            result.append(value)
    return result


def _sort_by(at: int, target: Expr | None, arguments: list[Expr]) -> Expr:
    if not isinstance(target, ListExpr | Select | Ident | Comprehension | Call):
        position = target.position if target is not None else at
        message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        raise MacroMisuse(message, position)
    keys = expand_map(at, Ident(at, _INPUT), arguments)
    return late_binding(at, _INPUT, target, Call(at, "@sortByAssociatedKeys", [keys], Ident(at, _INPUT)))


LISTS = Library(
    "cel.lib.ext.lists",
    (
        ("list_slice", "list(T)::slice(int, int) -> list(T)", _slice),
        ("list_flatten", "list(list(T))::flatten() -> list(T)", _flatten),
        ("list_flatten_int", "list(dyn)::flatten(int) -> list(dyn)", _flatten),
        *((f"list_{name}_sort", f"list({kind})::sort() -> list({kind})", _sort) for kind, name in _COMPARABLE.items()),
        *(
            (
                f"list_{name}_sortByAssociatedKeys",
                f"list(T)::@sortByAssociatedKeys(list({kind})) -> list(T)",
                _sort_by_keys,
            )
            for kind, name in _COMPARABLE.items()
        ),
        ("lists_range", "lists.range(int) -> list(int)", _range),
        ("list_reverse", "list(T)::reverse() -> list(T)", _reverse),
        ("list_distinct", "list(T)::distinct() -> list(T)", _distinct),
    ),
    {("sortBy", 2, True): _sort_by},
)
