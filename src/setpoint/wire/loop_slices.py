"""Divides the work of the event loop into short slices.

All requests share one thread. In each iteration the loop runs everything that is ready, and then polls the sockets: a
request that arrives meanwhile waits for the end of the iteration. Work that can be deferred (large responses, events
for hundreds of watchers, request heads of a megabyte, error responses) is therefore not done in an iteration that has
used its budget. It runs in one of the next iterations, a limited amount in each, in the order in which it was deferred.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from setpoint.meta.clock import Clock

_BUDGET: Final = 0.001
"""Duration of a slice in seconds, after which further work is deferred."""
_DEFERRED_SHARE: Final = 0.0005
"""Seconds of each slice that are spent on deferred work."""
_UNAUTHENTICATED_SHARE: Final = 0.0003
"""Seconds of each slice that are spent on deferred work for clients that are not authenticated. It is separate, so that
any number of such clients cannot delay the others."""

Work = Callable[[], None]


class LoopSlicer:
    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._started = False
        self._ends = 0.0
        self._next: list[Work] = []
        self._deferred: deque[tuple[Work, float]] = deque()
        self._unauthenticated: deque[tuple[Work, float]] = deque()

    def over_budget(self) -> bool:
        """Return whether the current slice has used its budget. A slice starts with the first call of a method."""
        if self._started:
            return self._monotonic() > self._ends
        self._start()
        return False

    def has_time(self) -> bool:
        """Return whether work may run now: no other work is deferred, and the slice is not over budget."""
        return not self._deferred and not self.over_budget()

    def run_next(self, work: Work) -> None:
        """Call `work` in the next slice, before deferred work. It must be short and must not raise."""
        self._next.append(work)
        self._start()

    def defer(self, work: Work, cost: float = 0.0, *, unauthenticated: bool = False) -> None:
        """Call `work` in one of the next slices; it must not raise.

        `cost` is the time in seconds that it causes elsewhere, in addition to the call itself."""
        (self._unauthenticated if unauthenticated else self._deferred).append((work, cost))
        self._start()

    async def wait(self, cost: float, *, unauthenticated: bool = False) -> None:
        """Return at once if the slice has time for work of `cost` seconds, or in one of the next slices."""
        if not (self._unauthenticated if unauthenticated else self._deferred) and not self.over_budget():
            return
        resumed = asyncio.get_running_loop().create_future()
        self.defer(lambda: None if resumed.done() else resumed.set_result(None), cost, unauthenticated=unauthenticated)
        await resumed

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._ends = self._monotonic() + _BUDGET
            asyncio.get_running_loop().call_soon(self._finish)

    def _finish(self) -> None:
        self._started = False
        work_now, self._next = self._next, []
        try:
            for work in work_now:
                work()
            self._run_deferred(self._deferred, _DEFERRED_SHARE)
            self._run_deferred(self._unauthenticated, _UNAUTHENTICATED_SHARE)
        finally:
            if self._deferred or self._unauthenticated or self._next:
                self._start()

    def _run_deferred(self, deferred: deque[tuple[Work, float]], share: float) -> None:
        """Run deferred work for `share` seconds, but at least one item."""
        if not deferred:
            return
        until = self._monotonic() + share
        while deferred:
            work, cost = deferred.popleft()
            work()
            until -= cost
            if self._monotonic() > until:
                break
