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
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeVar

from setpoint.meta.clock import Clock

T = TypeVar("T")

log = logging.getLogger("setpoint.tasks")

_CANCEL_TIMEOUT: Final = 5.0
"""Seconds that `TaskRegistry.stop` waits for cancelled tasks to end."""
_CALLS_AT_ONCE: Final = 16
"""Calls that `Timers` makes in one iteration of the event loop."""


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


class Timer:
    """A call that `Timers` makes later."""

    __slots__ = ("call", "serial", "when")

    def __init__(self, when: float, serial: int, call: Callable[[], None]) -> None:
        self.when = when
        self.serial = serial
        self.call: Callable[[], None] | None = call
        """None after the call was made or cancelled."""

    def __lt__(self, other: Timer) -> bool:
        return (self.when, self.serial) < (other.when, other.serial)


class Timers:
    """Calls functions at times of the injected clock, from one task instead of one that sleeps for each call.

    The calls are made in the order of their times, and those of the same time in the order in which they were
    requested. They must be short. A call that fails is logged.
    """

    __slots__ = ("_cancelled", "_clock", "_heap", "_next_serial", "_task", "_tasks", "_wakes")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[Timer] = []
        self._cancelled = 0
        """The number of cancelled calls in the heap; at most half of it."""
        self._next_serial = 0
        self._tasks = TaskRegistry()
        self._task: asyncio.Task[None] | None = None
        """The task that sleeps until `_wakes`; None if there is no call to make."""
        self._wakes = 0.0

    def __len__(self) -> int:
        """Return the number of calls to be made."""
        return len(self._heap) - self._cancelled

    def call_at(self, when: float, call: Callable[[], None]) -> Timer:
        """Call `call` when the monotonic clock shows `when`. It runs in an empty context."""
        timer = Timer(when, self._next_serial, call)
        self._next_serial += 1
        heappush(self._heap, timer)
        if self._task is None or when < self._wakes:
            self._restart()
        return timer

    def cancel(self, timer: Timer) -> None:
        """Do not make a call. Has no effect if it was made or cancelled."""
        if timer.call is None:
            return
        timer.call = None
        self._cancelled += 1
        if self._cancelled * 2 > len(self._heap):
            self._heap = [each for each in self._heap if each.call is not None]
            heapify(self._heap)
            self._cancelled = 0
            if not self._heap and self._task is not None:
                self._task.cancel()
                self._task = None

    async def stop(self) -> None:
        """Drop all calls, and wait until the task has ended."""
        self._heap.clear()
        self._cancelled = 0
        self._task = None
        await self._tasks.stop()

    def _restart(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._wakes = self._heap[0].when
        self._task = Context().run(self._tasks.start, self._run())

    async def _run(self) -> None:
        task, made = self._task, 0
        while self._heap and self._task is task:
            first = self._heap[0]
            left = first.when - self._clock.monotonic()
            if left > 0:
                self._wakes = first.when
                await self._clock.sleep(left)
                continue
            heappop(self._heap)
            call, first.call = first.call, None
            if call is None:
                self._cancelled -= 1
                continue
            try:
                call()
            except Exception:  # a failed call must not prevent the others
                log.exception("a timer failed")
            made += 1
            if not made % _CALLS_AT_ONCE:
                await asyncio.sleep(0)  # let other tasks run
        if self._task is task:
            self._task = None


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
