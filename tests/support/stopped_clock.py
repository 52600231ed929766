"""A clock for tests: it goes on only when told to."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

import store_choice


class StoppedClock:
    def __init__(self) -> None:
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        self._count += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._sleepers, (self._elapsed + seconds, self._count, future))
        await future

    async def advance(self, seconds: float) -> None:
        """Everybody whose time has come has run when this returns."""
        target = self._elapsed + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            at, _, future = heappop(self._sleepers)
            self._elapsed = max(self._elapsed, at)
            if not future.done():
                future.set_result(None)
            await settle()
        self._elapsed = target
        await settle()

    def advance_at_once(self, seconds: float) -> None:
        """Advance, and wake all who sleep until then at the same moment; they run when the caller awaits something."""
        self._elapsed += seconds
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            _, _, future = heappop(self._sleepers)
            if not future.done():
                future.set_result(None)

    @property
    def sleeping(self) -> int:
        return sum(not future.done() for _, _, future in self._sleepers)


async def settle() -> None:
    """Everybody who can run has run."""
    await store_choice.settle(20)
