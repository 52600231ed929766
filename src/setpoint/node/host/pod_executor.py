"""Executes the operations of Pods as tasks: those of one Pod in order, those of different Pods concurrently.

Guarantees:

- The ordered operations of a Pod run one after the other, in the order in which they were requested.
- At most `starts` operations that start something run at the same time, over all Pods.
- When an operation ends, `on_change` is called with the uid of its Pod, except if the operation was cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Generic, TypeVar

from setpoint.tasks import TaskRegistry

T = TypeVar("T")

_STARTS_PER_CORE, _MAX_STARTS = 10, 40
"""A start mostly waits: for the disk, the network of the Pod, and the programs that the container runtime runs."""
log = logging.getLogger("setpoint.node")


def concurrent_starts(cores: int) -> int:
    """Return how many sandboxes and containers are started at once on a machine with so many cores."""
    return max(1, min(_STARTS_PER_CORE * cores, _MAX_STARTS))


class KeyedLocks:
    """A fair lock for each key. Only keys that are in use take memory."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        """The locks, with the number of tasks that hold them or wait for them."""

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        lock, users = self._locks.get(key) or (asyncio.Lock(), 0)
        self._locks[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            users = self._locks[key][1] - 1
            if users:
                self._locks[key] = lock, users
            else:
                del self._locks[key]


class TaskOperation(Generic[T]):
    """An Operation that a task executes."""

    __slots__ = ("_begun", "_interruptible", "_result", "_task", "cancelled")

    def __init__(self, *, interruptible: bool) -> None:
        """Create the operation. One that is not interruptible runs to its end after it has begun, because it changes
        something step by step."""
        self.cancelled = False
        """Whether the result is not needed any more."""
        self._interruptible = interruptible
        self._begun = False
        self._result: T | None = None
        self._task: asyncio.Task[None] | None = None

    def result(self, now: float) -> T | None:
        return self._result

    @property
    def ready_at(self) -> float | None:
        return None

    def cancel(self) -> None:
        self.cancelled = True
        if self._task is not None and (self._interruptible or not self._begun):
            self._task.cancel()

    def start(
        self,
        tasks: TaskRegistry,
        work: Callable[[], Coroutine[Any, Any, T]],
        failed: Callable[[Exception], T],
        bound: AbstractAsyncContextManager[None],
        ended: Callable[[], None],
    ) -> None:
        """Run the work within `bound`, and call `ended` when it has ended. `failed` makes the result of work that
        raises."""
        self._task = tasks.start(self._run(work, failed, bound, ended))

    async def _run(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        failed: Callable[[Exception], T],
        bound: AbstractAsyncContextManager[None],
        ended: Callable[[], None],
    ) -> None:
        async with bound:
            self._begun = True
            try:
                self._result = await work()
            except Exception as error:
                log.debug("an operation failed", exc_info=error)
                self._result = failed(error)
        self._task = None
        if not self.cancelled:
            ended()


class PodExecutor:
    """Starts operations as tasks, which it owns."""

    def __init__(self, starts: int) -> None:
        """Create an executor that starts at most `starts` sandboxes and containers at once."""
        self.on_change: Callable[[str], None] = lambda uid: None
        self._starts = asyncio.Semaphore(starts)
        self._locks = KeyedLocks()
        self._tasks = TaskRegistry()

    @property
    def busy_pods(self) -> int:
        """Return the number of Pods with ordered operations in progress."""
        return len(self._locks)

    def run_in_order(
        self,
        uid: str,
        work: Callable[[], Coroutine[Any, Any, T]],
        failed: Callable[[Exception], T],
        *,
        is_start: bool = False,
    ) -> TaskOperation[T]:
        """Run an operation after all earlier ones of the Pod. `failed` makes the result of one that raises. The limit
        on concurrent starts applies if `is_start` is set."""
        operation = TaskOperation[T](interruptible=False)
        bound = self._start_slot(uid) if is_start else self._locks.hold(uid)
        operation.start(self._tasks, work, failed, bound, lambda: self.on_change(uid))
        return operation

    def run(
        self, uid: str, work: Callable[[], Coroutine[Any, Any, T]], failed: Callable[[Exception], T]
    ) -> TaskOperation[T]:
        """Run an operation at once, independently of the others of the Pod. It ends when it is cancelled."""
        operation = TaskOperation[T](interruptible=True)
        operation.start(self._tasks, work, failed, nullcontext(), lambda: self.on_change(uid))
        return operation

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that has no result until it ends or the executor stops."""
        self._tasks.start(work)

    def in_order(self, uid: str) -> AbstractAsyncContextManager[None]:
        """Return a context in which no other ordered operation of the Pod runs."""
        return self._locks.hold(uid)

    async def stop(self) -> None:
        """Cancel all operations, whatever they are doing: the runtime's state is observed again at the next start."""
        await self._tasks.stop()

    @asynccontextmanager
    async def _start_slot(self, uid: str) -> AsyncIterator[None]:
        async with self._locks.hold(uid), self._starts:
            yield
