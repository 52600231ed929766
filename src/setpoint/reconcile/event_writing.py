"""Writes Events to the server at a lower priority than all other work, but with a bounded delay."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable

from setpoint.client import Unreachable
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError

log = logging.getLogger("setpoint.reconcile")

_BATCH_SIZE = 16
"""Events written concurrently in one batch. A batch occupies the loop for a few milliseconds, and the store commits it
in one transaction."""
_LATE_BATCH_SIZE = 32
"""Events written concurrently when they are late."""
_PAUSE_FACTOR = 3.0
"""The pause after a batch as a multiple of the time it took, so that in a burst objects are written before Events."""
_MAX_PAUSE = 1.0
_LATE_AFTER = 2.0
"""Seconds that an Event may wait before pauses are skipped and Events are written as fast as the server accepts them.
"""
_DROP_AFTER = 30.0
"""Seconds after which an Event that is still queued is dropped."""
_MAX_QUEUED = 4096

Write = Callable[[], Awaitable[None]]


class EventWriteQueue:
    """Queues writes of Events without blocking.

    Writes with the same key never run concurrently, and of several queued writes with one key only the last is made.
    Sources are served round-robin, so that one busy source does not delay the others. When the queue is full, the
    oldest write of the source with the most is dropped, and so is a write that has waited too long; `dropped` counts
    them.
    """

    def __init__(self, component: str, clock: Clock) -> None:
        self.component = component
        self.dropped = 0
        self._clock = clock
        self._queued: dict[str, dict[Hashable, tuple[float, Write]]] = {}
        """Queued writes by source, in round-robin order, then by key, with the time at which they were queued. A source
        without writes has no entry."""
        self._count = 0
        self._woken = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of queued writes."""
        return self._count

    def put(self, key: Hashable, write: Write, source: str = "") -> None:
        """Queue a write. `source` is the host of the Event where one component records for many hosts."""
        waiting = self._queued.get(source)
        if waiting is None:
            waiting = self._queued[source] = {}
        before = waiting.get(key)
        since = self._clock.monotonic() if before is None else before[0]
        waiting[key] = (since, write)
        if before is None:
            self._count += 1
            if self._count > _MAX_QUEUED:
                self._take(max(self._queued, key=lambda each: len(self._queued[each])))
                self.dropped += 1
        self._woken.set()

    async def run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._queued:
                began = self._clock.monotonic()
                batch, late = self._batch(began)
                if len(batch) == 1:
                    await self._attempt(batch[0])
                elif batch:
                    async with asyncio.TaskGroup() as tasks:
                        for number, write in enumerate(batch, 1):
                            tasks.create_task(self._attempt(write))
                            if number % _BATCH_SIZE == 0:
                                await asyncio.sleep(0)
                took = self._clock.monotonic() - began
                if took > 0 and not late:
                    await self._clock.sleep(min(_PAUSE_FACTOR * took, _MAX_PAUSE))

    def _batch(self, now: float) -> tuple[list[Write], bool]:
        """Return the next batch of writes, and whether any of them is late."""
        batch: list[Write] = []
        late = False
        while self._queued and len(batch) < (_LATE_BATCH_SIZE if late else _BATCH_SIZE):
            since, write = self._take(next(iter(self._queued)))
            if now - since > _DROP_AFTER:
                self.dropped += 1
                late = True
                continue
            late = late or now - since > _LATE_AFTER
            batch.append(write)
        return batch, late

    def _take(self, source: str) -> tuple[float, Write]:
        """Remove the oldest write of a source and move the source to the end of the round-robin order."""
        waiting = self._queued.pop(source)
        taken = waiting.pop(next(iter(waiting)))
        self._count -= 1
        if waiting:
            self._queued[source] = waiting
        return taken

    async def _attempt(self, write: Write) -> None:
        try:
            await write()
        except (ApiError, Unreachable) as error:
            log.info("%s: cannot write an Event, dropping it: %s", self.component, error)
        except Exception:  # one Event must not end the component
            log.exception("%s: writing an Event failed", self.component)
