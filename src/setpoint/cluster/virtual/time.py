"""An event loop on which time advances only when no task is ready, and then immediately.

A timer of an hour fires at once, in exactly the order of real time. Everything on the loop runs in one thread and in a
fixed order, so the same program with the same seed does the same again.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, TypeVarTuple

from setpoint.meta.times import parse_duration

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_SOCKET_TIMEOUT = 10.0
"""Real seconds to wait for a socket when no task and no timer is left."""
_THREAD_TIMEOUT = 300.0
"""Real seconds to wait for a thread."""

_SHORTEST = 1e-6
_MANY_ITERATIONS, _HARDLY_ANY = 300, 0.01


class VirtualDeadlock(RuntimeError):
    """No task can ever run again: all of them wait for each other."""


class _Selector(selectors.DefaultSelector):
    """Advances the virtual time instead of blocking."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            self.loop.count_iteration()
            return ready
        if self.loop.threads:
            ready = super().select(_THREAD_TIMEOUT)
            if not ready:
                raise VirtualDeadlock(f"a thread has not finished within {_THREAD_TIMEOUT:g} s")
            return ready
        if timeout is None:
            ready = super().select(_SOCKET_TIMEOUT)
            if not ready:
                raise VirtualDeadlock("deadlock: no task is ready and no timer is pending")
            return ready
        self.loop.pass_time(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self._elapsed = 0.0
        self._iterations = 0
        self._counting_since = 0.0
        self.livelock_callbacks: list[Callable[[], None]] = []
        """Callbacks for many loop iterations in which hardly any time passed."""
        self.threads = 0
        """Number of threads at work for the loop. Time stands still until they are done, as it would otherwise run
        ahead of them."""
        super().__init__(selector)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        found = super().run_in_executor(executor, func, *args)
        self.threads += 1
        found.add_done_callback(self._thread_done)
        return found

    def _thread_done(self, _: Any) -> None:
        self.threads -= 1

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the threads of the executor, without the timeout of Python 3.13: virtual time would reach it at
        once."""
        self.threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self.threads -= 1

    def time(self) -> float:
        return self._elapsed

    def pass_time(self, seconds: float) -> None:
        self._elapsed += seconds

    def count_iteration(self) -> None:
        """Count an iteration in which no time passed."""
        self._iterations += 1
        if self._iterations >= _MANY_ITERATIONS:
            if self._elapsed - self._counting_since < _HARDLY_ANY:
                for callback in tuple(self.livelock_callbacks):
                    callback()
            self._iterations, self._counting_since = 0, self._elapsed


class VirtualClock:
    """A clock that reads the virtual time of the running loop, with an offset if it continues another clock."""

    def __init__(self, ahead: timedelta = timedelta()) -> None:
        self._begin = EPOCH + ahead

    @classmethod
    def going_on(cls, now: datetime) -> VirtualClock:
        """Return a clock that shows `now` and continues from there."""
        return cls(now - EPOCH - timedelta(seconds=asyncio.get_running_loop().time()))

    def now(self) -> datetime:
        return self._begin + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        # A delay below the resolution of the loop's clock would end at once, and could repeat forever.
        await asyncio.sleep(max(seconds, _SHORTEST) if seconds > 0 else seconds)

    async def advance(self, time: str) -> None:
        """Sleep for a Kubernetes duration: `5m`, `1h30m`."""
        await self.sleep(parse_duration(time) / 1e9)

    def freeze(self, seconds: float) -> None:
        """Let time pass while nothing runs, as if the process or the machine had been suspended: all timers of that
        time are due at once afterwards."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.pass_time(seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward, or back if `seconds` is negative. Timers are not affected."""
        self._begin += timedelta(seconds=seconds)


def run_virtual(main: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> T:
    """Run `main` to its end on a fresh virtual loop."""

    async def run() -> T:
        return await main(*args, **named)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())
