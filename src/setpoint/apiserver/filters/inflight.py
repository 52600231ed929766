"""Not too many at once: a bound on requests in flight, reads and writes apart. Watches do not count."""

from __future__ import annotations

from setpoint.meta.errors import TooManyRequests

_READS = frozenset({"get", "list"})


class Overloaded(TooManyRequests):
    """Nobody has looked at the request: it may come again later. Said in plain text, as upstream does."""

    @classmethod
    def until(cls, seconds: int) -> Overloaded:
        return cls("Too many requests, please try again later.", details={"retryAfterSeconds": seconds})


class InFlight:
    def __init__(self, reads: int = 400, writes: int = 200) -> None:
        self.limits = {True: reads, False: writes}
        self.now = {True: 0, False: 0}

    def enter(self, verb: str) -> bool | None:
        """Whether it counts as a read (to be given back to `leave`); None: it does not count. Raises when full."""
        if verb == "watch":
            return None
        reading = verb in _READS
        limit = self.limits[reading]
        if limit and self.now[reading] >= limit:
            raise Overloaded.until(1)
        self.now[reading] += 1
        return reading

    def leave(self, reading: bool | None) -> None:
        if reading is not None:
            self.now[reading] -= 1
