"""Turns of the event loop, kept short.

One thread does everything. In each turn the loop does all that is there to be done and then looks who has sent
something: whoever asks meanwhile waits until the turn is over. So work that can wait (long answers, events for hundreds
of watchers, heads of a megabyte, refusals) is not done in a turn that has lasted long enough, but in one of the next: a
little in each, in the order in which it was put off.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from setpoint.meta.clock import Clock

_LONG: Final = 0.001
"""Seconds after which a turn has lasted long enough."""
_SHARE: Final = 0.0005
"""Seconds of each turn for what was put off."""


class Turns:
    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._begun = False
        self._ends = 0.0
        self._first: list[Callable[[], None]] = []
        self._put_off: deque[tuple[Callable[[], None], float]] = deque()

    def long(self) -> bool:
        """Whether this turn has lasted long enough, as far as is known: it begins when somebody asks."""
        if self._begun:
            return self._monotonic() > self._ends
        self._begin()
        return False

    def has_time(self) -> bool:
        """Whether work that can wait need not: this turn is not long, and nobody waits already."""
        return not self._put_off and not self.long()

    def first(self, work: Callable[[], None]) -> None:
        """`work` is called in the next turn, before what was put off. It must be short, and not fail."""
        self._first.append(work)
        self._begin()

    def later(self, work: Callable[[], None], cost: float = 0.0) -> None:
        """`work` is called in one of the next turns; it must not fail. `cost`: seconds that it will take besides."""
        self._put_off.append((work, cost))
        self._begin()

    async def wait(self, cost: float) -> None:
        """Go on in this turn if there is time, or in one of the next."""
        if self.has_time():
            return
        turn = asyncio.get_running_loop().create_future()
        self.later(lambda: None if turn.done() else turn.set_result(None), cost)
        await turn

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._ends = self._monotonic() + _LONG
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._begun = False
        first, self._first = self._first, []
        try:
            for work in first:
                work()
            until = self._monotonic() + _SHARE
            while self._put_off:
                work, cost = self._put_off.popleft()
                work()
                until -= cost
                if self._monotonic() > until:
                    break
        finally:
            if self._put_off or self._first:
                self._begin()
