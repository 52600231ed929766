"""The way of Events to the server: behind all other work, but never far behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable

from setpoint.client import Unreachable
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError

log = logging.getLogger("setpoint.reconcile")

_AT_ONCE = 16
"""Events whose writes are begun in one turn of the loop, which takes a few milliseconds, and which the store commits
together."""
_AT_ONCE_LATE = 32
"""Events that are written concurrently when they are late."""
_REST = 3.0
"""After a batch there is a pause of so many times as long as it took, so that in a burst the objects come before the
Events about them."""
_LONGEST_REST = 1.0
_LATE = 2.0
"""Seconds that an Event may wait before the pauses end, and Events are written as fast as the server takes them."""
_TOO_LATE = 30.0
"""Seconds after which an Event that still waits is dropped."""
_MOST_WAITING = 4096

Write = Callable[[], Awaitable[None]]


class EventWriting:
    """Takes writes without waiting. Writes with the same key never run concurrently, and of those that wait with the
    same key only the last is carried out. The sources take turns, so that one that has much to say does not delay the
    others. Beyond a bound the oldest write of the source with the most is dropped, and so is one that waited for too
    long; `dropped` counts them."""

    def __init__(self, component: str, clock: Clock) -> None:
        self.component = component
        self.dropped = 0
        self._clock = clock
        self._waiting: dict[str, dict[Hashable, tuple[float, Write]]] = {}
        """By source, the one whose turn it is first; by key, with the time since when it waits. None is empty."""
        self._count = 0
        self._woken = asyncio.Event()

    def __len__(self) -> int:
        """Return how many writes wait."""
        return self._count

    def put(self, key: Hashable, write: Write, source: str = "") -> None:
        """`source` is the machine that an Event comes from, where one component speaks for many."""
        waiting = self._waiting.get(source)
        if waiting is None:
            waiting = self._waiting[source] = {}
        before = waiting.get(key)
        since = self._clock.monotonic() if before is None else before[0]
        waiting[key] = (since, write)
        if before is None:
            self._count += 1
            if self._count > _MOST_WAITING:
                self._take(max(self._waiting, key=lambda each: len(self._waiting[each])))
                self.dropped += 1
        self._woken.set()

    async def run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                began = self._clock.monotonic()
                batch, late = self._batch(began)
                if len(batch) == 1:
                    await self._attempt(batch[0])
                elif batch:
                    async with asyncio.TaskGroup() as tasks:
                        for number, write in enumerate(batch, 1):
                            tasks.create_task(self._attempt(write))
                            if number % _AT_ONCE == 0:
                                await asyncio.sleep(0)
                took = self._clock.monotonic() - began
                if took > 0 and not late:
                    await self._clock.sleep(min(_REST * took, _LONGEST_REST))

    def _batch(self, now: float) -> tuple[list[Write], bool]:
        """The writes whose turn it is, and whether any of them is late."""
        batch: list[Write] = []
        late = False
        while self._waiting and len(batch) < (_AT_ONCE_LATE if late else _AT_ONCE):
            since, write = self._take(next(iter(self._waiting)))
            if now - since > _TOO_LATE:
                self.dropped += 1
                late = True
                continue
            late = late or now - since > _LATE
            batch.append(write)
        return batch, late

    def _take(self, source: str) -> tuple[float, Write]:
        """Remove the oldest write of a source, whose next turn comes after that of all others."""
        waiting = self._waiting.pop(source)
        taken = waiting.pop(next(iter(waiting)))
        self._count -= 1
        if waiting:
            self._waiting[source] = waiting
        return taken

    async def _attempt(self, write: Write) -> None:
        try:
            await write()
        except (ApiError, Unreachable) as error:
            log.info("%s: cannot record an event: %s", self.component, error)
        except Exception:  # one event must not end the component
            log.exception("%s: recording an event failed", self.component)
