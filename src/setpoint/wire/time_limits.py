"""Nested time limits of blocking calls: what `asyncio.timeout` is for tasks."""

from __future__ import annotations

from collections.abc import Callable


class LimitReached(BaseException):
    """A time limit was reached in a blocking call. Like a cancellation, it passes through everything up to the block of
    this limit, where it becomes a TimeoutError."""

    def __init__(self, limit: TimeLimit) -> None:
        super().__init__()
        self.limit = limit


class TimeLimits:
    """The limits of one thread of blocking calls."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self.entered: list[TimeLimit] = []

    def within(self, seconds: float) -> TimeLimit:
        """Return a block that raises TimeoutError if it takes longer."""
        return TimeLimit(self, seconds)

    def remaining(self) -> float | None:
        """Return the seconds, more than 0, that the next call may take; None if there is no limit. Raise
        LimitReached."""
        if not self.entered:
            return None
        left = self._first.end - self.monotonic()
        if left <= 0:
            raise self.reached()
        return left

    def reached(self) -> LimitReached:
        """Return the exception for a call that has taken all the time that remained."""
        return LimitReached(self._first)

    @property
    def _first(self) -> TimeLimit:
        return min(self.entered, key=lambda limit: limit.end)


class TimeLimit:
    def __init__(self, limits: TimeLimits, seconds: float) -> None:
        self._limits = limits
        self._seconds = seconds
        self.end = 0.0
        """When the limit is reached, in monotonic seconds."""

    async def __aenter__(self) -> TimeLimit:
        self.end = self._limits.monotonic() + self._seconds
        self._limits.entered.append(self)
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._limits.entered.remove(self)
        if isinstance(error, LimitReached) and error.limit is self:
            raise TimeoutError from None
