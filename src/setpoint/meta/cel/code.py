"""The compiled form of a node: a Python function over a frame, and its cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.meta.cel.values import CelError

Frame = list[Any]
"""State of one evaluation: [cost so far, cost limit, variables ...]."""
Run = Callable[[Frame], Any]

COST, LIMIT, FIRST_VARIABLE = 0, 1, 2


class Code:
    """A compiled node. `cost` is its constant cost, charged by the caller; `run` charges what depends on values."""

    __slots__ = ("attribute", "constant", "cost", "run", "value")

    def __init__(
        self, run: Run, cost: int = 0, *, constant: bool = False, value: Any = None, attribute: int | None = None
    ) -> None:
        self.run = run
        self.cost = cost
        self.constant = constant  # known at compile time, in `value`
        self.value = value
        self.attribute = attribute
        """Cost of a variable with its fields and indexes, without reading the variable itself; a branch of `?:` and an
        index pay this cost."""

    @property
    def bare(self) -> int:
        """Return the cost as a branch of a conditional or as an index."""
        return self.cost if self.attribute is None else self.attribute

    def qualified(self, run: Run, more: int) -> Code:
        """Return a field or index of this value.

        Reading from anything but a variable costs one more; from a conditional, nothing."""
        base = self.bare + more
        overhead = 1 if self.attribute is None else self.cost - self.attribute
        return Code(run, base + overhead, attribute=base)


def constant(value: Any) -> Code:
    return Code(lambda frame: value, constant=True, value=value)


def outcome_of(run: Run, frame: Frame) -> Any:
    """Return the value or the error: for operands that are evaluated although another one failed."""
    try:
        return run(frame)
    except CelError as error:
        return error


def refunding(run: Run, charged: int) -> Run:
    """Return code that, if it fails, refunds the cost charged in advance for dependent code."""

    def attempt(frame: Frame) -> Any:
        try:
            return run(frame)
        except CelError:
            frame[0] -= charged
            raise

    return attempt
