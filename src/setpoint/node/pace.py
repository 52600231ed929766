"""The durations of operations on simulated nodes: none, realistic, or shortened.

Timestamps are never changed. `fast` divides the periods and timeouts that an administrator can configure, so that a
scenario of five minutes takes half a minute; the configured values are visible in the objects. `learning` shows each
step long enough for a person to see it, and takes a minute for such a scenario."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from setpoint.node.container_state import INITIAL_BACKOFF


class DurationRange(NamedTuple):
    """A range of durations in seconds."""

    minimum: float = 0.0
    maximum: float = 0.0

    def sample(self, key: str) -> float:
        """Return a duration within the range, always the same one for the same key."""
        if self.maximum <= self.minimum:
            return self.minimum
        fraction = int.from_bytes(sha256(key.encode()).digest()[:4], "big") / (1 << 32)
        return round(self.minimum + fraction * (self.maximum - self.minimum), 3)


NO_DURATION = DurationRange()


@dataclass(frozen=True, slots=True)
class Pace:
    """The durations of operations on simulated nodes."""

    pull: DurationRange = NO_DURATION
    """The duration of an image pull, if neither a rule nor an annotation sets it."""
    start: DurationRange = NO_DURATION
    """The duration of a container's start once its image is present."""
    stop: DurationRange = NO_DURATION
    """The duration of a server's shutdown after SIGTERM."""
    speed: int = 1
    """The divisor of the periods and timeouts that an administrator can configure."""

    @property
    def backoff(self) -> float:
        """The delay in seconds after the first failure of a container or a pull."""
        return INITIAL_BACKOFF / self.speed


INSTANT = Pace()
REAL = Pace(DurationRange(1.0, 2.5), DurationRange(0.4, 1.0), DurationRange(0.3, 0.8))
FAST = Pace(DurationRange(0.5, 1.0), DurationRange(0.2, 0.5), DurationRange(0.2, 0.4), speed=10)
LEARNING = Pace(DurationRange(2.0, 4.0), DurationRange(1.0, 1.5), DurationRange(1.0, 1.5), speed=5)
PACES = {"real": REAL, "fast": FAST, "instant": INSTANT, "learning": LEARNING}
