"""Comparisons in filters: numbers with numbers of the same sort, texts with texts, nothing else."""

from __future__ import annotations

from typing import Any

from setpoint.meta.jsonpath.errors import JsonPathError


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
