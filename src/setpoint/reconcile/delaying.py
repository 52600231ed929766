"""A workqueue that adds keys after a delay."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush

from setpoint.meta.clock import Clock
from setpoint.reconcile.workqueue import WorkQueue

_PRUNE_THRESHOLD = 1000


class DelayingQueue(WorkQueue):
    """Adds delayed keys while `run` runs. A key that is scheduled twice is added at the earlier time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock.monotonic)
        self._clock = clock
        self._due: dict[str, float] = {}
        """The time at which each delayed key is added. A heap entry with another time is stale."""
        self._heap: list[tuple[float, str]] = []
        self._woken = asyncio.Event()
        self._throttled: dict[str, float] = {}
        """Throttled keys, and the time before which they are not dequeued."""

    def add(self, key: str) -> None:
        if self._throttled and key in self._throttled:
            left = self._throttled[key] - self._clock.monotonic()
            if left > 0:
                self.add_after(key, left)
                return
            del self._throttled[key]
        super().add(key)

    def throttle(self, key: str, seconds: float) -> None:
        """Do not dequeue the key for this many seconds; a key that is queued already is delayed as well."""
        now = self._clock.monotonic()
        if len(self._throttled) >= _PRUNE_THRESHOLD:
            self._throttled = {other: until for other, until in self._throttled.items() if until > now}
        self._throttled[key] = now + seconds
        if self._remove_queued(key):
            self.add_after(key, seconds)

    def add_after(self, key: str, seconds: float) -> None:
        """Add the key after this many seconds, unless it is scheduled earlier already."""
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
        """The number of delayed keys."""
        return len(self._due)

    @property
    def due_within(self) -> float:
        """Seconds until the last delayed key has been added; 0 if there is none."""
        return max(0.0, max(self._due.values()) - self._clock.monotonic()) if self._due else 0.0

    async def run(self) -> None:
        """Add delayed keys when they are due, until cancelled."""
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
                if self._throttled.get(key, now) > now:
                    self.add_after(key, self._throttled[key] - now)
                else:
                    super().add(key)

    async def _sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._woken.set()
