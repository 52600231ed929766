"""How long a container that failed, or an image that could not be pulled, waits for the next attempt."""

from __future__ import annotations

FIRST, _MOST_TIMES = 10.0, 30


class Backoff:
    """Doubles from 10 s to 5 min, and begins anew after twice the longest wait without a failure."""

    __slots__ = ("_first", "seconds", "updated")

    def __init__(self, first: float = FIRST) -> None:
        """`first` is the first wait, in seconds, and a thirtieth of the longest one."""
        self._first = first
        self.seconds = 0.0
        """Zero: nothing has failed so far."""
        self.updated = 0.0

    @property
    def _longest(self) -> float:
        return self._first * _MOST_TIMES

    def ends(self, since: float) -> float | None:
        """When the next attempt is due after a failure at `since`; None: at once."""
        if not self.seconds or since - self.updated > 2 * self._longest:
            return None
        return since + self.seconds

    def next(self, event: float, now: float) -> None:
        """One more attempt, because of what happened at `event`."""
        if not self.seconds or event - self.updated > 2 * self._longest:
            self.seconds = self._first
        else:
            self.seconds = min(self.seconds * 2, self._longest)
        self.updated = now
