"""Concurrent writes of the scheduler, sequential for each Pod."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

log = logging.getLogger("setpoint.scheduler")

Write = Callable[[], Awaitable[None]]

CONCURRENCY = 64
MAX_QUEUED = 512


class WriteQueue:
    def __init__(self) -> None:
        self._queued: deque[tuple[str, Write]] = deque()
        self._queued_by_key: dict[str, deque[Write]] = {}
        """Queued writes by key behind a running one; a key has an entry while one of its writes runs."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._room: asyncio.Future[None] | None = None

    def submit(self, key: str, write: Write) -> None:
        """Queue a write without blocking. Exceptions of the write are logged."""
        self._queued.append((key, write))
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    async def room(self) -> None:
        """Wait until the queue has room."""
        while len(self._queued) > MAX_QUEUED:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CONCURRENCY):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            while not self._queued:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                await waiter
            key, write = self._queued.popleft()
            if self._room is not None and not self._room.done() and len(self._queued) <= MAX_QUEUED // 2:
                self._room.set_result(None)
            if key in self._queued_by_key:
                self._queued_by_key[key].append(write)
                continue
            behind = self._queued_by_key[key] = deque((write,))
            try:
                while behind:
                    await self._do(behind.popleft())
            finally:
                del self._queued_by_key[key]

    async def _do(self, write: Write) -> None:
        try:
            await write()
        except Exception:  # an exception in one write must not end the others
            log.exception("a write of the scheduler failed")
