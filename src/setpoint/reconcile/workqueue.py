"""A queue of keys for workers that must not trip over each other.

Fair (first in, first out), stingy (a key that is added again before it is taken is there once), and exclusive (a key
that is being worked on is handed to nobody else; added meanwhile, it comes back when it is done).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from setpoint.meta.exposition import Histogram, exponential

_SECONDS = exponential(1e-8, 10, 12)


class ShutDown(Exception):
    """The queue is empty and nothing will come any more."""


class WorkQueue:
    def __init__(self, monotonic: Callable[[], float] | None = None) -> None:
        """With a clock it measures how long keys wait."""
        self._queue: deque[str] = deque()
        """The order of work. Every key in it is in `_dirty` and not in `_processing`."""
        self._dirty: set[str] = set()
        """All that needs work, whether in `_queue` or to be queued as soon as it is done."""
        self._processing: set[str] = set()
        """Taken and not done."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.added = 0
        """How many keys came in, those apart that were there already."""
        self.waited = Histogram(_SECONDS)
        """Seconds from when a key came in until it was taken."""
        self._monotonic = monotonic
        self._since: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, key: str) -> None:
        if self._closed or key in self._dirty:
            return
        self._dirty.add(key)
        self.added += 1
        if self._monotonic is not None:
            self._since[key] = self._monotonic()
        if key not in self._processing:
            self._queue.append(key)
            self._wake()

    async def get(self) -> str:
        """The key that has waited longest; the caller says `done` when the work is over. Raises ShutDown."""
        while not self._queue:
            if self._closed:
                raise ShutDown
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except BaseException:
                # The one who was woken goes away: the key is for the next.
                if waiter.done() and not waiter.cancelled() and self._queue:
                    self._wake()
                raise
        key = self._queue.popleft()
        self._dirty.discard(key)
        self._processing.add(key)
        if self._monotonic is not None:
            self.waited.observe(self._monotonic() - self._since.pop(key))
        return key

    def done(self, key: str) -> None:
        self._processing.discard(key)
        if key in self._dirty:
            self._queue.append(key)
            self._wake()

    def _take_out(self, key: str) -> bool:
        """A key that waits to be handed out waits no longer. Whether it did."""
        if key not in self._dirty or key in self._processing:
            return False
        self._dirty.discard(key)
        self._queue.remove(key)
        self._since.pop(key, None)
        return True

    def shut_down(self) -> None:
        """No more keys are taken in; those that are there are still handed out."""
        self._closed = True
        while self._waiting:
            self._wake()

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
