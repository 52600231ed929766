"""A limit of the CPU time of control loops, for processes that run clusters of several users."""

from __future__ import annotations

from setpoint.meta.clock import Clock

_LEAST_PAUSE = 1.0
"""Seconds that loops rest at least, so that closing and opening their gates costs little compared to their work."""
_RECENTLY = 30.0


class CpuLimit:
    """A token bucket of seconds of CPU time, for the loops of one or several clusters.

    It is charged after the work is done, and may then be in debt: the more the loops have used, the longer they rest.
    `Gates` close while they do.
    """

    def __init__(self, clock: Clock, share: float, burst: float) -> None:
        """`share` is the number of cores that the loops use on average, and `burst` the seconds that they may use at
        once."""
        self.share = share
        self._clock = clock
        self._burst = burst
        self._left = burst
        """Seconds that may be used now; a negative number is a debt."""
        self._at = clock.monotonic()
        self._exceeded_at: float | None = None
        """When the loops had used their time last, in seconds of the monotonic clock; None if they never had."""

    def charge(self, seconds: float) -> float:
        """Charge this much CPU time, and return for how many seconds the loops must rest now."""
        now = self._clock.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self.share) - seconds
        self._at = now
        if self._left > 0:
            return 0.0
        self._exceeded_at = now
        return _LEAST_PAUSE - self._left / self.share

    @property
    def was_exceeded(self) -> bool:
        """Whether the loops had used all their time within the last half minute."""
        return self._exceeded_at is not None and self._clock.monotonic() - self._exceeded_at < _RECENTLY
