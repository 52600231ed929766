"""How long something held the event loop, apart from what it waited for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

from setpoint.meta.clock import Clock

T = TypeVar("T")


class Busy(Generic[T]):
    """`await Busy(awaitable, clock)` is `await awaitable`; `seconds` then says how long nobody else could run because
    of it. In virtual time that is never."""

    __slots__ = ("_awaitable", "_clock", "seconds")

    def __init__(self, awaitable: Awaitable[T], clock: Clock) -> None:
        self._awaitable = awaitable
        self._clock = clock
        self.seconds = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        inner = self._awaitable.__await__()
        go_on: Callable[[Any], Any] = inner.send
        argument: Any = None
        monotonic = self._clock.monotonic
        while True:
            began = monotonic()
            try:
                waiting = go_on(argument)
            except StopIteration as end:
                value: T = end.value
                return value
            finally:
                self.seconds += monotonic() - began
            try:
                argument, go_on = (yield waiting), inner.send
            except BaseException as error:
                argument, go_on = error, inner.throw
