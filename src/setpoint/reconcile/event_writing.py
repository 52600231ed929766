"""The way of events to the server: never in anybody's way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable

from setpoint.client import Unreachable
from setpoint.meta.errors import ApiError

log = logging.getLogger("setpoint.reconcile")

_MOST_WAITING = 1000
_AT_ONCE = 32
"""Writes in flight: a durable store shares one sync among them."""

Write = Callable[[], Awaitable[None]]


class EventWriting:
    """Takes writes without waiting. Those with the same key never run at once, and of those that wait with the same
    key only the last is carried out. Beyond a bound the oldest that waits is dropped."""

    def __init__(self, component: str) -> None:
        self._component = component
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
                now = [self._waiting.pop(key) for key in list(self._waiting)[:_AT_ONCE]]
                if len(now) == 1:
                    await self._attempt(now[0])
                    continue
                async with asyncio.TaskGroup() as tasks:
                    for write in now:
                        tasks.create_task(self._attempt(write))

    async def _attempt(self, write: Write) -> None:
        try:
            await write()
        except (ApiError, Unreachable) as error:
            log.info("%s: cannot record an event: %s", self._component, error)
