"""Operators. On types that are known they become the Python operation itself."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from setpoint.meta.cel import operators as ops
from setpoint.meta.cel.code import Code, Frame, Run, constant, outcome_of
from setpoint.meta.cel.runtime_cost import CallCost, equality_cost
from setpoint.meta.cel.types import Kind, Type
from setpoint.meta.cel.values import CelError, CostExceeded, Uint

_SCALARS = frozenset({Kind.BOOL, Kind.INT, Kind.UINT, Kind.DOUBLE})
_TEXTS = frozenset({Kind.STRING, Kind.BYTES})
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "_<_": ops.less,
    "_<=_": ops.less_equal,
    "_>_": ops.greater,
    "_>=_": ops.greater_equal,
    "_+_": ops.plus,
    "_-_": ops.minus,
    "_*_": ops.times,
    "_/_": ops.divided,
    "_%_": ops.modulo,
    "@in": ops.contains,
}


def _applied(left: Run, right: Run, apply: Callable[[Any, Any], Any]) -> Run:
    """Compile an operator. Both operands are evaluated and charged even if the first fails."""

    def run(frame: Frame) -> Any:
        try:
            one = left(frame)
        except CelError:
            outcome_of(right, frame)
            raise
        return apply(one, right(frame))

    return run


def _charged(left: Run, right: Run, apply: Callable[[Any, Any], Any], charge: Callable[[Any, Any], int]) -> Run:
    """Return the same, with a cost that depends on the operands."""

    def run(frame: Frame) -> Any:
        try:
            one = left(frame)
        except CelError as error:
            other = outcome_of(right, frame)  # which charges by itself, so before this is added
            frame[0] += charge(error, other)
            raise
        try:
            other = right(frame)
        except CelError as error:
            frame[0] += charge(one, error)
            raise
        frame[0] += charge(one, other)
        if frame[0] > frame[1]:
            raise CostExceeded
        return apply(one, other)

    return run


def compile_equality(arguments: list[Code], types: list[Type], negate: bool) -> Code:
    left, right = arguments[0].run, arguments[1].run
    total = arguments[0].cost + arguments[1].cost
    kind = types[0].kind
    same = kind is types[1].kind and not types[0].nullable and not types[1].nullable
    if same and kind in _SCALARS:
        return Code(_applied(left, right, operator.ne if negate else operator.eq), total + 1)
    if same and kind in _TEXTS:
        return Code(_charged(left, right, operator.ne if negate else operator.eq, _text_cost), total)
    apply = _different if negate else ops.equals
    return Code(_charged(left, right, apply, equality_cost), total)


def _text_cost(one: Any, other: Any) -> int:
    if isinstance(one, CelError) or isinstance(other, CelError):
        return equality_cost(one, other)
    return (min(len(one), len(other)) + 9) // 10


def _different(one: Any, other: Any) -> bool:
    try:
        return not ops.equals(one, other)
    except CelError:
        return True  # what cannot be compared is not equal


def compile_operator(name: str, overload: str, arguments: list[Code], types: list[Type], cost: CallCost) -> Code:
    left, right = arguments[0].run, arguments[1].run
    total = arguments[0].cost + arguments[1].cost
    apply = OPERATORS[name]
    if name == "@in" and overload == "in_list" and arguments[1].constant:
        members = _constant_members(arguments[1].value)
        if members is not None:
            return _membership(arguments[0], members)
    if not isinstance(cost, int):
        rule = cost
        return Code(_charged(left, right, apply, lambda one, other: rule((one, other), None)), total)
    if types[0].kind is types[1].kind is Kind.INT:
        if name in _ORDER:
            return Code(_applied(left, right, _ORDER[name]), total + cost)
        if name == "_+_":
            return Code(_applied(left, right, lambda one, other: ops.checked_int(one + other)), total + cost)
        if name == "_-_":
            return Code(_applied(left, right, lambda one, other: ops.checked_int(one - other)), total + cost)
    return Code(_applied(left, right, apply), total + cost)


def _constant_members(values: Any) -> frozenset[Any] | None:
    """Return the elements of a constant list as a set, when they are simple enough. Numbers of all types are one
    kind."""
    if not all(type(value) in (str, int, float, Uint, bool) for value in values):
        return None
    return frozenset((type(value) is bool, value) for value in values)


def _membership(element: Code, members: frozenset[Any]) -> Code:
    if not members:
        return constant(False)
    read = element.run
    if all(type(value) is str for _, value in members):
        texts = frozenset(value for _, value in members)
        return Code(lambda frame: _text_in(read(frame), texts), element.cost)

    def run(frame: Frame) -> bool:
        value = read(frame)
        return type(value) in (str, int, float, Uint, bool) and (type(value) is bool, value) in members

    return Code(run, element.cost)


def _text_in(value: Any, texts: frozenset[Any]) -> bool:
    return type(value) is str and value in texts
