"""The way of events to the server: never in anybody's way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from itertools import islice

from setpoint.client import Unreachable
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError

log = logging.getLogger("setpoint.reconcile")

_MOST_WAITING = 10_000
_AT_ONCE = 4
_REST = 3.0
_LONGEST_REST = 1.0
"""In a burst those come first whom the events tell of: few events are in flight at once, and then there is a rest that
is the longer the busier the server is. In the end they are all written."""

Write = Callable[[], Awaitable[None]]


class EventWriting:
    """Takes writes without waiting. Those with the same key never run at once, and of those that wait with the same
    key only the last is carried out. Beyond a bound the oldest that waits is dropped."""

    def __init__(self, component: str, clock: Clock) -> None:
        self._component = component
        self._clock = clock
        self._waiting: dict[Hashable, Write] = {}
        self._woken = asyncio.Event()

    def put(self, key: Hashable, write: Write) -> None:
        if key not in self._waiting and len(self._waiting) >= _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[key] = write
        self._woken.set()

    async def run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                now = [self._waiting.pop(key) for key in tuple(islice(self._waiting, _AT_ONCE))]
                began = self._clock.monotonic()
                if len(now) == 1:
                    await self._attempt(now[0])
                else:
                    async with asyncio.TaskGroup() as tasks:
                        for write in now:
                            tasks.create_task(self._attempt(write))
                if (took := self._clock.monotonic() - began) > 0:
                    await self._clock.sleep(min(_REST * took, _LONGEST_REST))

    async def _attempt(self, write: Write) -> None:
        try:
            await write()
        except (ApiError, Unreachable) as error:
            log.info("%s: cannot record an event: %s", self._component, error)
