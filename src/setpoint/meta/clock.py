"""Time as a dependency: everything that waits or stamps takes a Clock."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the current wall-clock time, timezone-aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    """A source of random identifiers, injected as a dependency."""

    def uid(self) -> str:
        """Return a fresh UUID, as text."""
        ...

    def suffix(self) -> str:
        """Return five characters for `generateName`, from bcdfghjklmnpqrstvwxz2456789."""
        ...

    def below(self, limit: int) -> int:
        """Return a uniform integer in [0, limit)."""
        ...
