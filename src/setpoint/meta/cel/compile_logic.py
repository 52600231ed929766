"""`&&`, `||`, `!` and `?:`: the only operators that may leave an operand out, and the only ones that absorb errors."""

from __future__ import annotations

from typing import Any

from setpoint.meta.cel.code import Code, Frame, Run
from setpoint.meta.cel.values import CelError, no_such_overload


def compile_and(left: Code, right: Code) -> Code:
    first, second, more = left.run, right.run, right.cost

    def run(frame: Frame) -> bool:
        try:
            value = first(frame)
        except CelError as error:
            return _other(frame, second, more, error, decisive=False)
        if value is False:
            return False
        if value is not True:
            return _other(frame, second, more, no_such_overload(), decisive=False)
        frame[0] += more
        value = second(frame)
        if value is True or value is False:
            return value
        raise no_such_overload()

    return Code(run, left.cost)


def compile_or(left: Code, right: Code) -> Code:
    first, second, more = left.run, right.run, right.cost

    def run(frame: Frame) -> bool:
        try:
            value = first(frame)
        except CelError as error:
            return _other(frame, second, more, error, decisive=True)
        if value is True:
            return True
        if value is not False:
            return _other(frame, second, more, no_such_overload(), decisive=True)
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
