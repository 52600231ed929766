"""The report of a case whose end state differs from the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import Protocol

from setpoint.testing.plan import Plan

_BEFORE, _AFTER = 3, 8


class Diverged(AssertionError):
    """The end state differs from the run without faults."""

    __module__ = "setpoint.testing"

    def __init__(self, text: str, seed: str) -> None:
        super().__init__(text)
        self.seed = seed
        """The plan that reproduces the difference."""


class Shown(Protocol):
    """The parts of `fault_injection.Step` that a report shows."""

    at: str
    nth: int
    when: float
    what: str
    fault: str
    answer: str


def report(
    plan: Plan, differences: str, baseline: Sequence[Shown], found: Sequence[Shown], tried: int, cases: int
) -> str:
    """Return the report of a case: the faults, the steps with and without them, and the differences."""
    parts = [f"{plan} changes the end state (case {tried} of {cases})."]
    parts += [f"{fault}: {fault.description}." for fault in plan]
    parts += ["Steps without faults:", indent(_around(plan, baseline), "  ")]
    parts += [f"Steps under {plan}:", indent(_around(plan, found), "  ")]
    parts += ["Differences from the end state without faults:", indent(differences, "  ")]
    parts += [f'Reproduce it with: explore(..., only="{plan}")']
    return "\n".join(parts)


def _around(plan: Plan, steps: Sequence[Shown]) -> str:
    """Return the steps just before and after the faults; of the events, only those with a fault."""
    points = {(fault.at, fault.nth) for fault in plan}
    shown = [step for step in steps if step.at == "write" or (step.at, step.nth) in points]
    places = [place for place, step in enumerate(shown) if (step.at, step.nth) in points] or [0]
    first, last = max(min(places) - _BEFORE, 0), max(places) + _AFTER + 1
    lines = ["..."] if first else []
    lines += [_line(step) for step in shown[first:last]]
    lines += [f"... {len(shown) - last} more"] if len(shown) > last else []
    return "\n".join(lines) or "nothing"


def _line(step: Shown) -> str:
    line = f"{step.when:7.3f} s  {step.at} {step.nth}  {step.what}"
    line += f"  <- {step.fault}" if step.fault else ""
    return f"{line}  ({step.answer})" if step.answer else line
