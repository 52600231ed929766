"""The values that describe a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from setpoint.meta.objects import ObjView


class Phase(StrEnum):
    """The phase of a loop. The page shows each with a symbol, a colour and this word."""

    SETTLED = "settled"
    """Desired and observed state agree."""
    ACTING = "acting"
    """They differ, and a controller is at work."""
    WAITING = "waiting"
    """They differ, and what has to happen next is known: a retry, a schedule, a person."""
    STUCK = "stuck"
    """They differ, and nothing is going to happen by itself."""
    LEAVING = "leaving"
    """The object is being deleted."""


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference between desired and observed state."""

    text: str
    """The difference in words: `1 Pod is missing`."""
    wanted: str = ""
    """The desired value; empty if the text says it all."""
    observed: str = ""


@dataclass(frozen=True, slots=True)
class Gauge:
    """Desired and observed state where both are counts of the same thing."""

    observed: int
    desired: int
    unit: str
    """The things that are counted: `Pods ready`."""


@dataclass(frozen=True, slots=True)
class Related:
    """Facts about an object that are not in the object itself."""

    now: datetime
    pods: Sequence[ObjView] | None = None
    """The Pods that belong to the object, or that it selects; None if they were not read."""


@dataclass(slots=True)
class Loop:
    desired: list[str]
    """The demands of the specification, one fact each: `3 replicas`, `image nginx:1.29`."""
    observed: list[str]
    """The reports of the status and of related objects, one fact each."""
    drift: list[Drift] = field(default_factory=list)
    """The differences; empty if the object is as desired."""
    phase: Phase = Phase.SETTLED
    action: str = ""
    """A sentence that says what happens next, and who does it."""
    gauge: Gauge | None = None
    """The gauge; None if desired and observed state are not counts."""

    @property
    def note(self) -> str:
        """The drift on one line; empty if there is none."""
        return "; ".join(each.text for each in self.drift)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def count(number: int, word: str, verb: tuple[str, str] | None = None) -> str:
    """Return a number with its noun, and its verb: `1 Pod is`, `2 Pods are`."""
    noun = word if number == 1 else f"{word}s"
    return f"{number} {noun}{f' {verb[number != 1]}' if verb is not None else ''}"


IS_ARE = ("is", "are")
