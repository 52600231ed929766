"""The effects of a fault plan on the components of a copy: the values, as JSON and in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class InjectedFault(NamedTuple):
    """A fault of a plan, and what became of it."""

    component: str
    fault: str
    """Its text: `conflict:2`."""
    unit: str
    """The unit of its number: `write`, `event` or `seed`."""
    description: str
    at: float | None
    """When it occurred, in seconds after the change; None if it did not."""
    what: str
    """The write or the watch event at which it occurred; empty for a fault that began at once."""
    seen: int
    """The number of writes or events of the component, whichever the fault counts."""

    @property
    def text(self) -> str:
        """The sentence about it."""
        fault = f"{self.fault} of {'the ' if self.component != 'nodes' else ''}{self.component}"
        if self.at is None:
            counted = f"there was 1 {self.unit}" if self.seen == 1 else f"there were {self.seen} {self.unit}s"
            return f"{fault} did not occur: {counted}"
        where = f" ({self.what})" if self.what else ""
        return f"{time_text(self.at)} {fault}: {self.description}{where}"


class ReportedStep(NamedTuple):
    """A write by a component, or a watch event that it received."""

    component: str
    at: str
    """`write` or `event`."""
    nth: int
    when: float
    """Seconds after the change."""
    what: str
    fault: str
    """The kinds of the faults that occurred here, joined by `+`; empty if there were none."""
    answer: str
    """The error that a failed write was answered with; empty if it succeeded."""


@dataclass(slots=True)
class FaultReport:
    """The effects of the faults of one run."""

    faults: list[InjectedFault] = field(default_factory=list)
    steps: list[ReportedStep] = field(default_factory=list)
    """The writes and events of the components that had faults, of each in order."""
    more_steps: int = 0
    """The number of steps that are not listed."""
    differences: list[str] | None = None
    """The differences between the end and the end of the same run without faults, as lines; None if they were not
    compared, because a fixed time passed or a run did not settle."""
    seconds_without: float = 0.0
    """The time from the change to the last write without faults, if they were compared."""

    def to_json(self) -> dict[str, Any]:
        return {
            "faults": [{**each._asdict(), "text": each.text} for each in self.faults],
            "steps": [each._asdict() for each in self.steps],
            "moreSteps": self.more_steps,
            "differences": self.differences,
            "secondsWithout": round(self.seconds_without, 3),
        }


def time_text(seconds: float) -> str:
    """Return a time after the change: `+1.5s`, `+5m02s`."""
    if seconds < 60:
        return f"+{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"+{minutes}m{rest:02d}s"
