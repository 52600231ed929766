"""Exponential backoff per key, forgotten after a period without failures."""

from __future__ import annotations

from setpoint.meta.clock import Clock


class Backoff:
    def __init__(self, clock: Clock, first: float, longest: float) -> None:
        self._clock = clock
        self._first = first
        self._longest = longest
        self._entries: dict[str, tuple[float, float]] = {}
        """The time of the last failure and the delay from then on, by key; least recent first."""

    def remaining(self, key: str) -> float:
        """Return the seconds until the key may be retried; zero means now."""
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
