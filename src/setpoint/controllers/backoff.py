"""How long something that fails again and again is left alone: doubling, and forgotten after a quiet time."""

from __future__ import annotations

from setpoint.meta.clock import Clock


class Backoff:
    def __init__(self, clock: Clock, first: float, longest: float) -> None:
        self._clock = clock
        self._first = first
        self._longest = longest
        self._entries: dict[str, tuple[float, float]] = {}
        """When it last failed, and how long to wait from then on. Oldest first."""

    def remaining(self, key: str) -> float:
        """Seconds until it may be tried again; zero if it may be."""
        at, wait = self._entries.get(key, (0.0, 0.0))
        return max(0.0, at + wait - self._clock.monotonic())

    def failed(self, key: str) -> None:
        now = self._clock.monotonic()
        self._forget_until(now - 2 * self._longest)
        _, wait = self._entries.pop(key, (0.0, 0.0))
        self._entries[key] = (now, min(self._longest, wait * 2) if wait else self._first)

    def _forget_until(self, then: float) -> None:
        while self._entries:
            oldest = next(iter(self._entries))
            if self._entries[oldest][0] >= then:
                return
            del self._entries[oldest]
