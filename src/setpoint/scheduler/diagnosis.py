"""Why a Pod fits nowhere, in upstream's words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from setpoint.scheduler.arrays import Mask
from setpoint.scheduler.diagnosis_text import NO_NODES


class NoNodes(Exception):
    """The cluster has no nodes."""

    def __init__(self) -> None:
        super().__init__(NO_NODES)


@dataclass(slots=True)
class Diagnosis:
    nodes: int
    """The number of nodes."""
    reasons: Counter[str] = field(default_factory=Counter)
    """The number of nodes by reason."""
    plugins: dict[str, None] = field(default_factory=dict)
    """The plugins that rejected nodes, without duplicates, in order."""
    rejected: str = ""
    """Why no node was considered; empty if they were."""
    unresolvable: Mask | None = None
    """Nodes on which preemption would not help; None means all."""
    preemption: str = ""
    """The result of preemption, for the message."""
    nominate: str | None = ""
    """The node to nominate: empty clears the nomination, None leaves it unchanged."""

    def message(self) -> str:
        text = summary(self.nodes, self.reasons, self.rejected)
        return f"{text} {self.preemption}" if self.preemption else text


def summary(nodes: int, reasons: Counter[str], rejected: str = "") -> str:
    text = f"0/{nodes} nodes are available:"
    if rejected:
        return f"{text} {rejected}."
    lines = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"{text} {', '.join(lines)}." if lines else text


class FitError(Exception):
    """No node fits the Pod at present."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.message())
        self.diagnosis = diagnosis
