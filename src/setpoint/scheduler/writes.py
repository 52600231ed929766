"""What the scheduler writes, many at once, and for each Pod one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

log = logging.getLogger("setpoint.scheduler")

Write = Callable[[], Awaitable[None]]

AT_ONCE = 64
MOST_WAITING = 512


class Writes:
    def __init__(self) -> None:
        self._waiting: deque[tuple[str, Write]] = deque()
        self._behind: dict[str, deque[Write]] = {}
        """By key, what waits for an earlier write; a key is here while one of its writes runs."""
        self._woken: deque[asyncio.Future[None]] = deque()
        self._room: asyncio.Future[None] | None = None

    def submit(self, key: str, write: Write) -> None:
        """Never waits. What the write raises is logged."""
        self._waiting.append((key, write))
        while self._woken:
            waiter = self._woken.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    async def room(self) -> None:
        """Waits while too much is waiting."""
        while len(self._waiting) > MOST_WAITING:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._woken.append(waiter)
                await waiter
            key, write = self._waiting.popleft()
            if self._room is not None and not self._room.done() and len(self._waiting) <= MOST_WAITING // 2:
                self._room.set_result(None)
            if key in self._behind:
                self._behind[key].append(write)
                continue
            behind = self._behind[key] = deque((write,))
            try:
                while behind:
                    await self._do(behind.popleft())
            finally:
                del self._behind[key]

    async def _do(self, write: Write) -> None:
        try:
            await write()
        except Exception:  # one write must not end the others
            log.exception("a write failed")
