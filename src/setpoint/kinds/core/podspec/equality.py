"""Are two pod specs the same? Amounts are compared by what they are worth, not by how they are written."""

from __future__ import annotations

from typing import Any

from setpoint.meta.quantity import compare

_AMOUNTS = frozenset({"limits", "requests", "overhead", "allocatedResources", "capacity"})
_AMOUNT = frozenset({"sizeLimit", "divisor"})


def same(left: Any, right: Any) -> bool:
    if left == right:
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same_value(key, left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return False


def _same_value(key: str, left: Any, right: Any) -> bool:
    if left == right:
        return True
    if key in _AMOUNTS and isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(compare(left[name], right[name]) == 0 for name in left)
    if key in _AMOUNT and isinstance(left, str) and isinstance(right, str):
        return compare(left, right) == 0
    return same(left, right)
