"""Measures how long an awaitable occupies the event loop, excluding the time it is suspended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

from setpoint.meta.clock import Clock

T = TypeVar("T")


class LoopTimer(Generic[T]):
    """Awaits an awaitable and measures its time on the event loop.

    `await LoopTimer(awaitable, clock)` returns what `await awaitable` returns. Afterwards `seconds` holds the time
    during which no other task could run because of it; in virtual time that is 0.
    """

    __slots__ = ("_awaitable", "_clock", "seconds")

    def __init__(self, awaitable: Awaitable[T], clock: Clock) -> None:
        self._awaitable = awaitable
        self._clock = clock
        self.seconds = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        inner = self._awaitable.__await__()
        resume: Callable[[Any], Any] = inner.send
        argument: Any = None
        monotonic = self._clock.monotonic
        while True:
            began = monotonic()
            try:
                waiting = resume(argument)
            except StopIteration as end:
                value: T = end.value
                return value
            finally:
                self.seconds += monotonic() - began
            try:
                argument, resume = (yield waiting), inner.send
            except BaseException as error:
                argument, resume = error, inner.throw
