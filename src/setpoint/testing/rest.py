"""Whether the loops of a cluster are quiet; and if they are not, who it is, and what about.

Three kinds of unrest: writes that go on; reconciles that go on without writing; and so much of either in one moment
that virtual time cannot pass.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from setpoint.cluster.journal import Journal, Written
from setpoint.meta.clock import Clock
from setpoint.reconcile import Controller, Manager
from setpoint.testing.unrest import changes_of, diagnosis, fights, recreations
from setpoint.testing.virtual_time import VirtualLoop

_BUSY = 100
"""Reconciles of one object in a second: with nothing written meanwhile, that is a loop."""
_MOMENT = 0.01
_MANY_WRITES, _LARGE_SHARE = 100, 0.4
"""Of one object by one writer in one moment. (A ReplicaSet whose Pods all come at once has much less of a share.)"""
_FIGHT_OF, _MANY_TURNS = 300, 50
"""Among so many writes, two that undo each other's so often."""
_MANY_RECREATIONS = 20
"""Of one object by one writer: nobody needs to delete and create the same object so often."""
_MANY_UPDATES = 1000
"""Of one object by one operator, while the cluster is to settle."""
_MANY_RECONCILES = 1000
_MOST_WORRIES = 5000

Managers = Callable[[], list[tuple[str, Manager]]]
"""Those that run now, and to which operator each belongs; to none: to the cluster itself."""
Counters = list[tuple[str, Counter[str]]]
"""How often each object was reconciled, and by whom."""


class Rest:
    def __init__(self, journal: Journal, clock: Clock, managers: Managers) -> None:
        self._journal = journal
        self._clock = clock
        self._managers = managers

    async def settle(self, quiet: float, within: float) -> None:
        """Returns when nothing was written for so long; see `VirtualCluster.settle`."""
        begun = self._clock.monotonic()
        while True:
            before, done = self._journal.news, self._reconciles()
            await self.pass_time(quiet)
            if self._journal.news == before and self._reconciles() - done > _BUSY * quiet:
                # Many objects once, or one again and again?
                with self._counting() as counters:
                    await self.pass_time(quiet)
                    if self._journal.news == before:
                        _check_reconciles(counters, _BUSY * quiet)
            if self._journal.news == before:
                return
            passed = self._clock.monotonic() - begun
            if self.is_endless(since := self._since(begun)):
                raise AssertionError(f"no rest after {passed:g} s:\n{self.diagnose(since)}")
            if passed > within:
                # What was written at first may have been needed; what still is, is not.
                lately = self._since(begun + within / 2)
                raise AssertionError(f"no rest within {within:g} s:\n{self.diagnose(lately)}")

    async def hold(self, seconds: float) -> None:
        """Fails unless nothing is written for so long; see `VirtualCluster.at_rest`."""
        begun, before = self._clock.monotonic(), self._journal.news
        with self._counting() as counters:
            for _ in range(2):
                for operator, manager in self._managers():
                    if operator:
                        manager.resync()
                await self.pass_time(seconds / 2)
                if self._journal.news != before:
                    raise AssertionError(f"not at rest:\n{self.diagnose(self._since(begun))}")
            _check_reconciles(counters, _BUSY + seconds)

    async def pass_time(self, seconds: float) -> None:
        """Fails when it cannot pass."""
        loop = asyncio.get_running_loop()
        if seconds <= 0 or not isinstance(loop, VirtualLoop):
            await self._clock.sleep(seconds)
            return
        over: asyncio.Future[None] = loop.create_future()
        worries = _Worries(self, over)
        timer = loop.call_later(seconds, worries.end)
        loop.worried.append(worries)
        try:
            await over
        finally:
            timer.cancel()
            loop.worried.remove(worries)
            worries.close()

    # -- what there is to know ----------------------------------------------------------------------------------------

    def _since(self, begun: float) -> list[Written]:
        return [each for each in self._journal.written if each.at >= begun]

    def lately(self) -> list[Written]:
        """In this very moment."""
        return self._since(self._clock.monotonic() - _MOMENT)

    def diagnose(self, written: Sequence[Written]) -> str:
        """Return a line for each culprit, operators first."""
        return diagnosis(written, {operator for operator, _ in self._managers() if operator})

    def is_endless(self, written: Sequence[Written]) -> bool:
        """Return whether one object is written so often that more virtual time would only cost real time."""
        if recreations(written, _MANY_RECREATIONS):
            return True
        operators = {operator for operator, _ in self._managers() if operator}
        often = Counter((each.who, each.key) for each in written if each.who in operators)
        return max(often.values(), default=0) >= _MANY_UPDATES

    def _reconciles(self) -> int:
        return sum(each.counts.done for _, manager in self._managers() for each in manager.controllers)

    @contextmanager
    def _counting(self) -> Iterator[Counters]:
        counters, counted = self.count()
        try:
            yield counters
        finally:
            stop_counting(counted)

    def count(self) -> tuple[Counters, Sequence[Controller]]:
        counters: Counters = []
        counted: list[Controller] = []
        for operator, manager in self._managers():
            for each in manager.controllers:
                each.by_key = Counter()
                counters.append((f"{operator} ({each.name})" if operator else each.name, each.by_key))
                counted.append(each)
        return counters, counted


class _Worries:
    """While somebody waits for time to pass, and it does not: is it only that there is much to do?"""

    def __init__(self, rest: Rest, over: asyncio.Future[None]) -> None:
        self._rest = rest
        self._over = over
        self._times = 0
        self._counters: Counters = []
        self._counted: Sequence[Controller] = ()

    def __call__(self) -> None:
        self._times += 1
        lately = self._rest.lately()
        endless = self._rest.is_endless(lately) or _is_one_object(lately) or self._times >= _MOST_WORRIES
        culprits = self._rest.diagnose(lately) if endless else ""
        if not culprits and (hot := _hottest(self._counters, _MANY_RECONCILES)):
            culprits = hot
        if not self._counted:
            self._counters, self._counted = self._rest.count()
        if (culprits or self._times >= _MOST_WORRIES) and not self._over.done():
            self._over.set_exception(AssertionError(f"time does not pass:\n{culprits}"))

    def end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def close(self) -> None:
        stop_counting(self._counted)


def stop_counting(counted: Sequence[Controller]) -> None:
    for each in counted:
        each.by_key = None


def _is_one_object(lately: Sequence[Written]) -> bool:
    """It is always the same that is written, or two undo what the other did."""
    if len(lately) < _MANY_WRITES:
        return False
    most = max(Counter((each.who, each.key) for each in lately).values())
    if most >= max(_MANY_WRITES, _LARGE_SHARE * len(lately)):
        return True
    last = lately[-_FIGHT_OF:]
    often = Counter(each.key for each in last)
    return bool(fights([(each, changes_of(each)) for each in last if often[each.key] > _MANY_TURNS], _MANY_TURNS))


def _check_reconciles(counters: Counters, most: float) -> None:
    if hot := _hottest(counters, most):
        raise AssertionError(f"no rest, although nothing is written:\n{hot}")


def _hottest(counters: Counters, most: float) -> str:
    found = [(times, who, key) for who, counter in counters for key, times in counter.items() if times > most]
    return "\n".join(f"  {who} reconciles {key}, {times} times" for times, who, key in sorted(found, reverse=True)[:5])
