"""A token bucket: a sustained rate and a burst."""

from __future__ import annotations

from setpoint.meta.clock import Clock


class TokenBucket:
    def __init__(self, clock: Clock, rate: float, burst: int) -> None:
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        """Available tokens; a negative number is reserved for later."""
        self._at = clock.monotonic()

    def take(self) -> float:
        """Reserve one token and return the seconds until it is available."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - 1
        self._at = now
        return max(0.0, -self._tokens / self._rate)

    def try_take(self) -> bool:
        """Take one token if there is one, and return whether there was."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
