"""A case in which a scenario came to something else, for people to read."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import Protocol

from setpoint.testing.plan import Plan

_BEFORE, _AFTER = 3, 8


class Diverged(AssertionError):
    """The end is another than in peace."""

    __module__ = "setpoint.testing"

    def __init__(self, text: str, seed: str) -> None:
        super().__init__(text)
        self.seed = seed
        """The plan by which it happens again."""


class Shown(Protocol):
    """See `disturbance.Step`."""

    at: str
    nth: int
    when: float
    what: str
    fault: str
    answer: str


def told(plan: Plan, differences: str, peace: Sequence[Shown], found: Sequence[Shown], tried: int, cases: int) -> str:
    parts = [f"{plan} changes what comes of it (case {tried} of {cases})."]
    parts += [f"{fault}: {fault.tells}." for fault in plan]
    parts += ["What was done in peace:", indent(_around(plan, peace), "  ")]
    parts += [f"And under {plan}:", indent(_around(plan, found), "  ")]
    parts += ["What it came to, seen from the end in peace:", indent(differences, "  ")]
    parts += [f'Again: explore(..., only="{plan}")']
    return "\n".join(parts)


def _around(plan: Plan, steps: Sequence[Shown]) -> str:
    """What happened just before the fault and in its wake. Of the many events only the one it is about."""
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
