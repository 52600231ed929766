"""So many a second in the long run, and so many at once."""

from __future__ import annotations

from setpoint.meta.clock import Clock


class TokenBucket:
    def __init__(self, clock: Clock, rate: float, burst: int) -> None:
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        """Below zero: that many are promised for later."""
        self._at = clock.monotonic()

    def take(self) -> float:
        """One more; in how many seconds its time has come."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - 1
        self._at = now
        return max(0.0, -self._tokens / self._rate)
