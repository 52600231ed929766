"""Operators. For operands of known types they compile to the Python operation itself.

`&&`, `||`, `!` and `?:` are the only operators that may skip an operand, and the only ones that absorb errors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from setpoint.meta.cel import operators as ops
from setpoint.meta.cel.code import Code, Frame, Run, constant, outcome_of
from setpoint.meta.cel.runtime_cost import CallCost, equality_cost
from setpoint.meta.cel.types import Kind, Type
from setpoint.meta.cel.values import CelError, CostExceeded, Uint, no_such_overload


def compile_and(left: Code, right: Code) -> Code:
    return _short_circuit(left, right, decisive=False)


def compile_or(left: Code, right: Code) -> Code:
    return _short_circuit(left, right, decisive=True)


def _short_circuit(left: Code, right: Code, *, decisive: bool) -> Code:
    """Compile `&&` or `||`; an operand that is `decisive` is the result regardless of the other one."""
    first, second, more = left.run, right.run, right.cost
    neutral = not decisive

    def run(frame: Frame) -> Any:
        try:
            value = first(frame)
        except CelError as error:
            return _other(frame, second, more, error, decisive)
        if value is decisive:
            return decisive
        if value is not neutral:
            return _other(frame, second, more, no_such_overload(), decisive)
        frame[0] += more
        value = second(frame)
        if value is True or value is False:
            return value
        raise no_such_overload()

    return Code(run, left.cost)


def _other(frame: Frame, second: Run, more: int, error: CelError, decisive: bool) -> bool:
    """Evaluate the second operand after the first failed: it may decide alone, otherwise the error is raised."""
    frame[0] += more
    try:
        value = second(frame)
    except CelError:
        raise error from None
    if value is decisive:
        return bool(value)
    raise error


def compile_not(operand: Code) -> Code:
    read = operand.run

    def run(frame: Frame) -> bool:
        value = read(frame)
        if value is True:
            return False
        if value is False:
            return True
        raise no_such_overload("!_") if value is None else no_such_overload()

    return Code(run, operand.cost + 1)


def compile_conditional(condition: Code, yes: Code, no: Code) -> Code:
    decide, on_true, on_false = condition.run, yes.run, no.run
    true_cost, false_cost = yes.bare, no.bare

    def run(frame: Frame) -> Any:
        value = decide(frame)
        if value is True:
            frame[0] += true_cost
            return on_true(frame)
        if value is False:
            frame[0] += false_cost
            return on_false(frame)
        raise no_such_overload()

    return Code(run, condition.cost, attribute=condition.cost)


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
            other = outcome_of(
                right, frame
            )  # The operation charges its own cost, so it runs before this cost is added.
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
        return True  # Values that cannot be compared are not equal.


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
