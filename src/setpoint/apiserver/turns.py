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
_STRANGERS_SHARE: Final = 0.0003
"""And for what was put off of those of whom it is not known yet, or not to be known, who they are: however many they
are, they are not in the way of the others."""

Work = Callable[[], None]


class Turns:
    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._begun = False
        self._ends = 0.0
        self._first: list[Work] = []
        self._put_off: deque[tuple[Work, float]] = deque()
        self._strangers: deque[tuple[Work, float]] = deque()

    def long(self) -> bool:
        """Whether this turn has lasted long enough, as far as is known: it begins when somebody asks."""
        if self._begun:
            return self._monotonic() > self._ends
        self._begin()
        return False

    def has_time(self) -> bool:
        """Whether work that can wait need not: this turn is not long, and nobody waits already."""
        return not self._put_off and not self.long()

    def first(self, work: Work) -> None:
        """`work` is called in the next turn, before what was put off. It must be short, and not fail."""
        self._first.append(work)
        self._begin()

    def later(self, work: Work, cost: float = 0.0, *, stranger: bool = False) -> None:
        """`work` is called in one of the next turns; it must not fail. `cost`: seconds that it will take besides."""
        (self._strangers if stranger else self._put_off).append((work, cost))
        self._begin()

    async def wait(self, cost: float, *, stranger: bool = False) -> None:
        """Go on in this turn if there is time, or in one of the next."""
        if not (self._strangers if stranger else self._put_off) and not self.long():
            return
        turn = asyncio.get_running_loop().create_future()
        self.later(lambda: None if turn.done() else turn.set_result(None), cost, stranger=stranger)
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
            self._do_some(self._put_off, _SHARE)
            self._do_some(self._strangers, _STRANGERS_SHARE)
        finally:
            if self._put_off or self._strangers or self._first:
                self._begin()

    def _do_some(self, put_off: deque[tuple[Work, float]], share: float) -> None:
        """One at least."""
        if not put_off:
            return
        until = self._monotonic() + share
        while put_off:
            work, cost = put_off.popleft()
            work()
            until -= cost
            if self._monotonic() > until:
                break
