"""A client that holds itself back. None does unless it is told to: the server has limits of its own."""

from __future__ import annotations

from typing import Protocol

from setpoint.meta.clock import Clock


class RateLimiter(Protocol):
    async def wait(self) -> None:
        """Returns when the next request may go."""
        ...


class TokenBucket:
    """`rate` requests a second in the long run, up to `burst` at once."""

    def __init__(self, clock: Clock, rate: float, burst: int) -> None:
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        """Below zero: that many requests already wait for a token that is yet to come."""
        self._at = clock.monotonic()

    async def wait(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - 1
        self._at = now
        if self._tokens < 0:
            await self._clock.sleep(-self._tokens / self._rate)
