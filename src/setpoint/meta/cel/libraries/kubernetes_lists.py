"""Kubernetes' functions on lists."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.operators import compare, equals, plus
from setpoint.meta.cel.values import CelError, Duration, Uint, is_list

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
