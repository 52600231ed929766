"""A workqueue that takes keys for later."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush

from setpoint.meta.clock import Clock
from setpoint.reconcile.workqueue import WorkQueue

_MANY_RESTING = 1000


class DelayingQueue(WorkQueue):
    """Keys for later come in while `run` runs. A key that is asked for at two times comes at the earlier one."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock.monotonic)
        self._clock = clock
        self._due: dict[str, float] = {}
        """When each key is to come; what the heap says beyond that is out of date."""
        self._heap: list[tuple[float, str]] = []
        self._woken = asyncio.Event()
        self._resting: dict[str, float] = {}
        """Keys that are not to be handed out before their time."""

    def add(self, key: str) -> None:
        if self._resting and key in self._resting:
            left = self._resting[key] - self._clock.monotonic()
            if left > 0:
                self.add_after(key, left)
                return
            del self._resting[key]
        super().add(key)

    def rest(self, key: str, seconds: float) -> None:
        """Whoever adds the key before so much time has passed, or has added it already, gets it then."""
        now = self._clock.monotonic()
        if len(self._resting) >= _MANY_RESTING:
            self._resting = {other: until for other, until in self._resting.items() if until > now}
        self._resting[key] = now + seconds
        if self._take_out(key):
            self.add_after(key, seconds)

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

    @property
    def due_within(self) -> float:
        """In so many seconds the last of them will have come; 0 when none waits."""
        return max(0.0, max(self._due.values()) - self._clock.monotonic()) if self._due else 0.0

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
                if self._resting.get(key, now) > now:
                    self.add_after(key, self._resting[key] - now)
                else:
                    super().add(key)

    async def _sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._woken.set()
