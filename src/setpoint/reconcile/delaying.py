"""A workqueue that takes keys for later."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush

from setpoint.meta.clock import Clock
from setpoint.reconcile.workqueue import WorkQueue


class DelayingQueue(WorkQueue):
    """Keys for later come in while `run` runs. A key that is asked for at two times comes at the earlier one."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._due: dict[str, float] = {}
        """When each key is to come; what the heap says beyond that is out of date."""
        self._heap: list[tuple[float, str]] = []
        self._woken = asyncio.Event()

    def add_after(self, key: str, seconds: float) -> None:
        if self._closed:
            return
        if seconds <= 0:
            self.add(key)
            return
        at = self._clock.monotonic() + seconds
        if at >= self._due.get(key, float("inf")):
            return
        self._due[key] = at
        heappush(self._heap, (at, key))
        if self._heap[0] == (at, key):
            self._woken.set()

    @property
    def delayed(self) -> int:
        return len(self._due)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._woken.clear()
                now = self._clock.monotonic()
                self._release(now)
                sleeper = tasks.create_task(self._sleep(self._heap[0][0] - now)) if self._heap else None
                try:
                    await self._woken.wait()
                finally:
                    if sleeper is not None:
                        sleeper.cancel()

    def _release(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            at, key = heappop(self._heap)
            if self._due.get(key) == at:
                del self._due[key]
                self.add(key)

    async def _sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._woken.set()
