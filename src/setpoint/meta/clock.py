"""Time as a dependency: everything that waits or stamps takes a Clock."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Wall-clock time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    """Randomness as a dependency."""

    def uid(self) -> str:
        """Return a fresh UUID, as text."""
        ...

    def suffix(self) -> str:
        """Five characters for `generateName`, from bcdfghjklmnpqrstvwxz2456789."""
        ...

    def below(self, limit: int) -> int:
        """Return a uniform integer in [0, limit)."""
        ...
