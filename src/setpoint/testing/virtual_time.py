"""A loop on which time passes only when nobody has anything left to do, and then at once.

What waits an hour is there in a moment, in exactly the order in which it would have happened. Everything on the loop
runs in one thread and in a fixed order, so the same program with the same seed does the same again.
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
_PATIENCE = 10.0
"""Real seconds for a socket to answer when nothing else is left that could happen."""
_PATIENCE_WITH_THREADS = 60.0

_SHORTEST = 1e-6
_MANY_TURNS, _HARDLY_ANY = 300, 0.01


class NothingLeft(RuntimeError):
    """Everybody waits for something that cannot come."""


class _Selector(selectors.DefaultSelector):
    """Instead of waiting, time goes on."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            self.loop.turn()
            return ready
        if self.loop.threads:
            ready = super().select(_PATIENCE_WITH_THREADS)
            if not ready:
                raise NothingLeft(f"a thread has not come back within {_PATIENCE_WITH_THREADS:g} s")
            return ready
        if timeout is None:
            ready = super().select(_PATIENCE)
            if not ready:
                raise NothingLeft("nothing is left that could ever happen: everybody waits for somebody else")
            return ready
        self.loop.pass_time(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self._elapsed = 0.0
        self._turns = 0
        self._turns_since = 0.0
        self.worried: list[Callable[[], None]] = []
        """Called, each of them, when very much has happened and hardly any time has passed."""
        self.threads = 0
        """How many are at work for the loop. Time stands still until they are done: it would be over before them."""
        super().__init__(selector)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        found = super().run_in_executor(executor, func, *args)
        self.threads += 1
        found.add_done_callback(self._thread_done)
        return found

    def _thread_done(self, _: Any) -> None:
        self.threads -= 1

    def time(self) -> float:
        return self._elapsed

    def pass_time(self, seconds: float) -> None:
        self._elapsed += seconds

    def turn(self) -> None:
        """Something happened that takes no time."""
        self._turns += 1
        if self._turns >= _MANY_TURNS:
            if self._elapsed - self._turns_since < _HARDLY_ANY:
                for worry in tuple(self.worried):
                    worry()
            self._turns, self._turns_since = 0, self._elapsed


class VirtualClock:
    """The time of the loop that it is asked on. One that goes on from another's may be ahead of it."""

    def __init__(self, ahead: timedelta = timedelta()) -> None:
        self._begin = EPOCH + ahead

    @classmethod
    def going_on(cls, now: datetime) -> VirtualClock:
        """It is `now`, and time goes on from there."""
        return cls(now - EPOCH - timedelta(seconds=asyncio.get_running_loop().time()))

    def now(self) -> datetime:
        return self._begin + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        # A wait too short for the loop to tell it from none would be over at once and could go on for ever.
        await asyncio.sleep(max(seconds, _SHORTEST) if seconds > 0 else seconds)

    async def advance(self, time: str) -> None:
        """As `sleep`, in the words of Kubernetes: `5m`, `1h30m`."""
        await self.sleep(parse_duration(time) / 1e9)

    def freeze(self, seconds: float) -> None:
        """Let time pass while nothing runs, as if the process had been stopped or the lid closed: afterwards every
        timer of that time is due at once."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.pass_time(seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward, or back if it is negative. What waits for a number of seconds does not notice."""
        self._begin += timedelta(seconds=seconds)


def run_virtual(main: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> T:
    """Runs `main` to its end on a fresh virtual loop."""

    async def run() -> T:
        return await main(*args, **named)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())
