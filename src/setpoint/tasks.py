"""Task ownership: every asyncio task belongs to a task group or to one of the owners in this module.

Guarantees:

- When an owner's block or its `stop` ends, none of its tasks runs any more.
- No task is garbage-collected while it runs, because its owner refers to it.
- A failure reaches the owner's caller, or the log if the task is not awaited.

`tests/architecture/` rejects every other way to create a task. All packages except `meta` and `kinds` may import this
module.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Any, Final, TypeVar

from setpoint.meta.clock import Clock

T = TypeVar("T")

log = logging.getLogger("setpoint.tasks")

_CANCEL_TIMEOUT: Final = 5.0
"""Seconds that `TaskRegistry.stop` waits for cancelled tasks to end."""


class Flag:
    """An event that is set once, for places that have many of them: it takes a seventh of the memory of
    `asyncio.Event`."""

    __slots__ = ("_set", "_waiters")

    def __init__(self) -> None:
        self._set = False
        self._waiters: list[asyncio.Future[None]] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        """Wake all waiting tasks, and let later calls of `wait` return at once."""
        self._set = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Return when the flag is set."""
        if self._set:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)


@asynccontextmanager
async def child_tasks(*coroutines: Coroutine[Any, Any, T]) -> AsyncIterator[list[asyncio.Task[T]]]:
    """Run the coroutines as tasks while the block runs. At its end, cancel them and wait until they have ended.

    Unlike in a task group, a failed task cancels neither the block nor the other tasks: the block awaits the tasks that
    it depends on.
    """
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(each) for each in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def first_completed(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Run the coroutines until one of them completes, then cancel the others. Raises what any of them raised."""
    async with child_tasks(*coroutines) as tasks:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def run_all(*coroutines: Coroutine[Any, Any, T]) -> list[T]:
    """Run the coroutines concurrently and return their results in order. The first failure cancels the others."""
    async with child_tasks(*coroutines) as tasks:
        return await asyncio.gather(*tasks)


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. Raises TimeoutError, after cancelling it, if it takes longer than `seconds` on the
    injected clock."""
    async with child_tasks(work) as (working,), child_tasks(clock.sleep(seconds)) as (timer,):
        await asyncio.wait((working, timer), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise TimeoutError
        return working.result()


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, which must be short: if the caller is cancelled meanwhile, it is cancelled when
    `work` has ended."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()


class Workers:
    """Equal tasks that take work from a queue, started when there is work for them, at most `limit`."""

    __slots__ = ("_limit", "_start", "_work", "count")

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], limit: int) -> None:
        """Each worker runs `work()`, which ends by cancellation."""
        self._work = work
        self._limit = limit
        self._start: Callable[[], None] | None = None
        """Starts a task; None while the block of `running` does not run."""
        self.count = 0
        """The number of workers that were started."""

    def add(self, most: int = 1) -> None:
        """Start up to `most` workers, in the context of the block of `running`."""
        if self._start is not None:
            for _ in range(min(most, self._limit - self.count)):
                self.count += 1
                self._start()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let workers run until the block ends. The failure of a worker cancels the block and the others."""
        context, started = copy_context(), list[asyncio.Task[None]]()
        async with asyncio.TaskGroup() as tasks:
            self._start = lambda: started.append(tasks.create_task(self._work(), context=context.copy()))
            try:
                yield
            finally:
                self._start = None
                self.count = 0
                for task in started:
                    task.cancel()


class TaskRegistry:
    """Owns tasks that start and end independently of each other, such as one for each connection. A task that fails
    ends alone; the error is logged."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(tuple(self._tasks))

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a background task failed: %s", error, exc_info=error)

    def cancel(self) -> None:
        """Request cancellation of all tasks."""
        for task in self._tasks:
            task.cancel()

    async def wait(self, timeout: float) -> None:
        """Return when all tasks have ended, or after `timeout` seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    async def stop(self, grace: float = 0.0) -> None:
        """Give the tasks `grace` seconds to end, then cancel those that still run and wait for them."""
        if grace:
            await self.wait(grace)
        self.cancel()
        await self.wait(_CANCEL_TIMEOUT)
        if self._tasks:
            log.error("%d tasks still run although they were cancelled", len(self._tasks))
