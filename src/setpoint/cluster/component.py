"""A part of a cluster that can be stopped and started while the rest goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")

speaking: ContextVar[str] = ContextVar("speaking", default="")
"""To which component the current task belongs."""


class Component(Generic[T]):
    """Every start is a fresh one, as of a process that was restarted: nothing is remembered but what is stored."""

    def __init__(self, name: str, open_one: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        """`open_one` enters when it is ready and ends with the block."""
        self.name = name
        self._open = open_one
        self._stop: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._running: T | None = None

    @property
    def running(self) -> T:
        """What the last start made. Only while it runs."""
        if self._running is None:
            raise RuntimeError(f"{self.name} does not run")
        return self._running

    @property
    def current(self) -> T | None:
        """The same; None while it does not run."""
        return self._running

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Returns when it is ready. A failure of it ends the task group."""
        if self._task is not None:
            raise RuntimeError(f"{self.name} runs already")
        stop, ready = asyncio.Event(), asyncio.Event()

        async def live() -> None:
            speaking.set(self.name)
            async with self._open() as made:
                self._running = made
                ready.set()
                await stop.wait()

        self._stop = stop
        self._task = tasks.create_task(live())
        await ready.wait()

    async def stop(self) -> None:
        """Returns when nothing of it runs any more. Stopping what does not run is nothing."""
        task, stop = self._task, self._stop
        if task is None or stop is None:
            return
        if self._running is None:
            await self.kill()  # what is not ready yet has no order to end in
            return
        stop.set()
        await asyncio.wait([task])
        self._task = self._running = self._stop = None

    async def kill(self) -> None:
        """As `stop`, without letting it end in order."""
        task = self._task
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        self._task = self._running = self._stop = None


@asynccontextmanager
async def running(run: Callable[[], Awaitable[None]], ready: asyncio.Event) -> AsyncIterator[None]:
    """The block runs when it is ready; a failure of either ends both."""

    async def supervised() -> None:
        await run()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(supervised())
        await ready.wait()
        try:
            yield
        finally:
            task.cancel()
