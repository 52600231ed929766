"""A queue of keys for concurrent workers.

It is fair (first in, first out), stingy (a key that is added several times before it is dequeued is processed once) and
exclusive (a key that is being processed is not given to a second worker; if it is added meanwhile, it is queued again
when it is done).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from setpoint.meta.exposition import Histogram, exponential

_SECONDS = exponential(1e-8, 10, 12)


class ShutDown(Exception):
    """The queue is empty and was shut down."""


class WorkQueue:
    """A queue of keys with the guarantees that the module describes."""

    def __init__(self, monotonic: Callable[[], float] | None = None) -> None:
        """Create a queue. With a clock, it measures how long keys wait."""
        self._queue: deque[str] = deque()
        """Keys in the order of processing. Every key in it is in `_dirty` and not in `_processing`."""
        self._dirty: set[str] = set()
        """Keys that need processing: those in `_queue`, and those to be queued when their current processing is
        done."""
        self._processing: set[str] = set()
        """Keys that were dequeued and are not done."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.added = 0
        """Keys that were added, not counting those that were queued already."""
        self.waited = Histogram(_SECONDS)
        """Seconds from when a key was added until it was dequeued."""
        self._monotonic = monotonic
        self._since: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, key: str) -> None:
        """Add the key, unless it is queued already."""
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
        """Dequeue the oldest key; the caller calls `done` when it has processed it. Raise ShutDown when the queue is
        shut down."""
        while not self._queue:
            if self._closed:
                raise ShutDown
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                # The waiter that was woken is cancelled: wake the next one for the key.
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
        """Mark the key as processed, and queue it again if it was added meanwhile."""
        self._processing.discard(key)
        if key in self._dirty:
            self._queue.append(key)
            self._wake()

    def _remove_queued(self, key: str) -> bool:
        """Remove a key that is queued and not being processed. Return whether it was."""
        if key not in self._dirty or key in self._processing:
            return False
        self._dirty.discard(key)
        self._queue.remove(key)
        self._since.pop(key, None)
        return True

    def shut_down(self) -> None:
        """Accept no more keys; those that are queued can still be dequeued."""
        self._closed = True
        while self._waiters:
            self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
