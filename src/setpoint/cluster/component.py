"""A part of a cluster that can be stopped and started while the rest goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

from setpoint.cluster.supervisor import Restarts

T = TypeVar("T")

speaking: ContextVar[str] = ContextVar("speaking", default="")
"""To which component the current task belongs."""


class Component(Generic[T]):
    """Every start is a fresh one, as of a process that was restarted: nothing is remembered but what is stored."""

    def __init__(
        self, name: str, open_one: Callable[[], AbstractAsyncContextManager[T]], restarts: Restarts | None = None
    ) -> None:
        """`open_one` enters when it is ready and ends with the block. With `restarts`, one that fails after it was
        ready begins anew; without, its failure ends the task group."""
        self.name = name
        self.restarts = restarts
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

    async def start(self, tasks: asyncio.TaskGroup, *, patient: bool = False) -> None:
        """Returns when it is ready. A failure before that ends the task group, unless the caller is patient and it is
        one that is restarted."""
        if self._task is not None:
            raise RuntimeError(f"{self.name} runs already")
        stop, ready = asyncio.Event(), asyncio.Event()

        self._stop = stop
        self._task = tasks.create_task(self._live(stop, ready, patient))
        await ready.wait()

    async def _live(self, stop: asyncio.Event, ready: asyncio.Event, patient: bool) -> None:
        speaking.set(self.name)
        restarts = self.restarts
        while not stop.is_set():
            if restarts is not None:
                restarts.begun()
            try:
                async with self._open() as made:
                    self._running = made
                    if restarts is not None:
                        restarts.ready()
                    ready.set()
                    await stop.wait()
            except Exception as error:
                if restarts is None or not (patient or ready.is_set()):
                    raise
                self._running = None
                await restarts.pause(restarts.failed(error), stop)

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
