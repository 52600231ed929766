"""Functions on lists: the lists and sets extensions of CEL at the version that Kubernetes uses, and Kubernetes' own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.macros import MacroMisuse, expand_map, late_binding
from setpoint.meta.cel.operators import compare, equals, plus
from setpoint.meta.cel.syntax import Call, Comprehension, Expr, Ident, ListExpr, Select
from setpoint.meta.cel.values import CelError, Duration, Uint, is_list

MAX_RANGE = 1_000_000
_SORTABLE = {
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
        *((f"list_{name}_sort", f"list({kind})::sort() -> list({kind})", _sort) for kind, name in _SORTABLE.items()),
        *(
            (
                f"list_{name}_sortByAssociatedKeys",
                f"list(T)::@sortByAssociatedKeys(list({kind})) -> list(T)",
                _sort_by_keys,
            )
            for kind, name in _SORTABLE.items()
        ),
        ("lists_range", "lists.range(int) -> list(int)", _range),
        ("list_reverse", "list(T)::reverse() -> list(T)", _reverse),
        ("list_distinct", "list(T)::distinct() -> list(T)", _distinct),
    ),
    {("sortBy", 2, True): _sort_by},
)


def _contains_value(value: Any, values: Any) -> bool:
    return any(equals(value, other) for other in values)


def _contains_all(values: Any, wanted: Any) -> bool:
    return all(_contains_value(value, values) for value in wanted)


def _intersects(values: Any, others: Any) -> bool:
    return any(_contains_value(value, others) for value in values)


def _equivalent(values: Any, others: Any) -> bool:
    return _contains_all(values, others) and _contains_all(others, values)


SETS = Library(
    "cel.lib.ext.sets",
    (
        ("list_sets_contains_list", "sets.contains(list(T), list(T)) -> bool", _contains_all),
        ("list_sets_equivalent_list", "sets.equivalent(list(T), list(T)) -> bool", _equivalent),
        ("list_sets_intersects_list", "sets.intersects(list(T), list(T)) -> bool", _intersects),
    ),
)


_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_ZEROS: dict[str, Any] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}


def _is_sorted(values: Any) -> bool:
    elements = list(values)
    return all(compare(one, other, "") <= 0 for one, other in pairwise(elements))


def _sum(zero: Any) -> Callable[[Any], Any]:
    def total(values: Any) -> Any:
        result = zero
        for value in values:
            result = plus(result, value)
        return result

    return total


def _extreme(name: str, wanted: int) -> Callable[[Any], Any]:
    def find(values: Any) -> Any:
        elements = iter(values)
        try:
            best = next(elements)
        except StopIteration:
            raise CelError(f"{name} called on empty list") from None
        for element in elements:
            if compare(best, element, "") == wanted:
                best = element
        return best

    return find


def _index_of(values: Any, wanted: Any) -> int:
    return next((index for index, value in enumerate(values) if equals(value, wanted)), -1)


def _last_index_of(values: Any, wanted: Any) -> int:
    elements = list(values)
    return next((index for index in range(len(elements) - 1, -1, -1) if equals(elements[index], wanted)), -1)


def _includes(target: Any, wanted: Any) -> bool:
    if is_list(target):
        return any(equals(value, wanted) for value in target)
    return equals(target, wanted)


def _declared() -> tuple[tuple[str, str, Any], ...]:
    found: list[tuple[str, str, Any]] = []
    for kind in _COMPARABLE:
        found.append((f"list_{kind}_is_sorted_bool", f"list({kind})::isSorted() -> bool", _is_sorted))
        found.append((f"list_{kind}_max_{kind}", f"list({kind})::max() -> {kind}", _extreme("max", -1)))
        found.append((f"list_{kind}_min_{kind}", f"list({kind})::min() -> {kind}", _extreme("min", 1)))
    for kind, zero in _ZEROS.items():
        found.append((f"list_{kind}_sum_{kind}", f"list({kind})::sum() -> {kind}", _sum(zero)))
    found.append(("list_a_index_of_int", "list(A)::indexOf(A) -> int", _index_of))
    found.append(("list_a_last_index_of_int", "list(A)::lastIndexOf(A) -> int", _last_index_of))
    return tuple(found)


KUBERNETES_LISTS = Library("kubernetes.lists", _declared())
KUBERNETES_INCLUDES = Library(
    "kubernetes.lists.1", (("list_includes_dyn_dyn", "dyn::includes(dyn) -> bool", _includes),)
)
