"""When somebody who was refused should come again: later, the more are refused."""

from __future__ import annotations

from collections import deque

_LONGEST = 32


class Dropped:
    """Of one level: how many were refused in each of the last seconds."""

    def __init__(self) -> None:
        self.retry_after = 1
        self._history: deque[tuple[int, int]] = deque(maxlen=_LONGEST + 1)
        self._second = 0
        self._count = 0
        self._doubled = 0

    def one_more(self, second: int) -> int:
        """Returns after how many seconds it may come again."""
        if second == self._second:
            self._count += 1
            return self.retry_after
        self._history.append((self._second, self._count))
        self._second, self._count = second, 1
        recent = sum(count for then, count in self._history if 0 < second - then <= self.retry_after)
        if second - self._doubled >= self.retry_after and recent >= 3 * self.retry_after:
            self.retry_after = min(2 * self.retry_after, _LONGEST)
            self._doubled = second
        elif recent < self.retry_after and self.retry_after > 1:
            self.retry_after -= 1
        return self.retry_after
