"""How long things take on simulated nodes: nothing at all, as long as people can see them, or less than usual.

Timestamps are never changed. `fast` shortens the waits that a cluster's administrator can configure, so the five-minute
stories of Kubernetes take half a minute, and everything that is configured can be seen in the objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from setpoint.node.backoff import FIRST


class Span(NamedTuple):
    """From so many seconds to so many."""

    least: float = 0.0
    most: float = 0.0

    def of(self, key: str) -> float:
        """Return a time within the span, always the same one for the same key."""
        if self.most <= self.least:
            return self.least
        share = int.from_bytes(sha256(key.encode()).digest()[:4], "big") / (1 << 32)
        return round(self.least + share * (self.most - self.least), 3)


NO_TIME = Span()


@dataclass(frozen=True, slots=True)
class Pace:
    pull: Span = NO_TIME
    """How long an image takes to pull, if neither a rule nor an annotation says it."""
    start: Span = NO_TIME
    """From an image that is there to a container that runs."""
    stop: Span = NO_TIME
    """How long a server takes to end when it is asked to."""
    speed: int = 1
    """By how much the waits are divided that a cluster's administrator can configure."""

    @property
    def backoff(self) -> float:
        """Seconds after the first failure of a container or a pull."""
        return FIRST / self.speed


INSTANT = Pace()
REAL = Pace(Span(1.0, 2.5), Span(0.4, 1.0), Span(0.3, 0.8))
FAST = Pace(Span(0.5, 1.0), Span(0.2, 0.5), Span(0.2, 0.4), speed=10)
PACES = {"real": REAL, "fast": FAST, "instant": INSTANT}
