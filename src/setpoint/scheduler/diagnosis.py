"""Why a Pod fits nowhere, in the words that people know."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from setpoint.scheduler.arrays import Mask
from setpoint.scheduler.diagnosis_text import NO_NODES


class NoNodes(Exception):
    """There is no node at all."""

    def __init__(self) -> None:
        super().__init__(NO_NODES)


@dataclass(slots=True)
class Diagnosis:
    nodes: int
    """How many there are."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why, and for how many of them."""
    plugins: dict[str, None] = field(default_factory=dict)
    """Which plugins have refused, each once."""
    rejected: str = ""
    """Why no node was looked at."""
    helpless: Mask | None = None
    """The nodes on which taking Pods off would not help; None: all."""
    preemption: str = ""
    """What became of making room."""
    nominate: str | None = ""
    """What becomes of the node that was set aside for the Pod: empty if it is no longer, None if it is still."""

    def message(self) -> str:
        text = summary(self.nodes, self.reasons, self.rejected)
        return f"{text} {self.preemption}" if self.preemption else text


def summary(nodes: int, reasons: Counter[str], rejected: str = "") -> str:
    text = f"0/{nodes} nodes are available:"
    if rejected:
        return f"{text} {rejected}."
    told = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"{text} {', '.join(told)}." if told else text


class Unfit(Exception):
    """No node will do as things are."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.message())
        self.diagnosis = diagnosis
