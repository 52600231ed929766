"""The sets extension: set operations on lists."""

from __future__ import annotations

from typing import Any

from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.operators import equals


def _in(value: Any, values: Any) -> bool:
    return any(equals(value, other) for other in values)


def _contains(values: Any, wanted: Any) -> bool:
    return all(_in(value, values) for value in wanted)


def _intersects(values: Any, others: Any) -> bool:
    return any(_in(value, others) for value in values)


def _equivalent(values: Any, others: Any) -> bool:
    return _contains(values, others) and _contains(others, values)


SETS = Library(
    "cel.lib.ext.sets",
    (
        ("list_sets_contains_list", "sets.contains(list(T), list(T)) -> bool", _contains),
        ("list_sets_equivalent_list", "sets.equivalent(list(T), list(T)) -> bool", _equivalent),
        ("list_sets_intersects_list", "sets.intersects(list(T), list(T)) -> bool", _intersects),
    ),
)
