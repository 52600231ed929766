"""`eq`, `ne`, `lt`, `le`, `gt`, `ge`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.cli.printing.go_template.formatting import sprintf
from setpoint.cli.printing.go_template.values import ABSENT, type_name, unboxed
from setpoint.meta.goformat import plain

_BAD_TYPE = "invalid type for comparison"
_INCOMPATIBLE = "incompatible types for comparison"


def equal(first: Any, *others: Any) -> bool:
    """Return whether the first value equals one of the others."""
    first = unboxed(first)
    if not others:
        raise ValueError("missing argument for comparison")
    for other in map(unboxed, others):
        sort = _sort(first)
        if sort != _sort(other):
            if first is not ABSENT and other is not ABSENT:
                raise ValueError(_INCOMPATIBLE)
        elif sort is not None:
            if first == other:
                return True
        elif first is ABSENT or other is ABSENT:
            if first is other:
                return True
        elif type(first) is not type(other):
            raise ValueError(
                f"non-comparable types {sprintf('%s', [first])}: {type_name(first)}, {type_name(other)}: {plain(other)}"
            )
        else:
            raise ValueError(f"non-comparable type {sprintf('%s', [other])}: {type_name(other)}")
    return False


def less(left: Any, right: Any) -> bool:
    left, right = unboxed(left), unboxed(right)
    sort = _sort(left)
    if sort is None or _sort(right) is None:
        raise ValueError(_BAD_TYPE)
    if sort != _sort(right):
        raise ValueError(_INCOMPATIBLE)
    if sort is bool:
        raise ValueError(_BAD_TYPE)
    return bool(left < right)


def _sort(value: Any) -> type | None:
    if isinstance(value, bool):
        return bool
    if isinstance(value, int):
        return int if -(2**63) <= value < 2**63 else float
    return next((sort for sort in (float, str) if isinstance(value, sort)), None)


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "ne": lambda left, right: not equal(left, right),
    "lt": less,
    "le": lambda left, right: less(left, right) or equal(left, right),
    "gt": lambda left, right: not (less(left, right) or equal(left, right)),
    "ge": lambda left, right: not less(left, right),
}
