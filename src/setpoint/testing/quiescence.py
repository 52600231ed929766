"""Detect whether the control loops of a cluster are quiescent and, if not, which writer is active on which object.

There are three kinds of activity that never ends: continued writes, continued reconciles without writes, and so many of
either at one instant that virtual time cannot advance (a livelock).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from setpoint.cluster.journal import Journal, Written
from setpoint.meta.clock import Clock
from setpoint.reconcile import Controller, Manager
from setpoint.testing.virtual_time import VirtualLoop
from setpoint.testing.write_conflicts import changes_of, diagnosis, recreations, write_conflicts

_LOOP_RATE = 100
"""Reconciles of one object per second that count as a loop if nothing is written meanwhile."""
_RECENT_SECONDS = 0.01
_LOOP_WRITES, _LOOP_SHARE = 100, 0.4
"""Minimum number and share of recent writes by one writer to one object that count as a loop. (A ReplicaSet whose Pods
all start at once has a much smaller share.)"""
_INSPECTED_WRITES, _MANY_ALTERNATIONS = 300, 50
"""Number of recent writes to inspect, and the number of alternations among them that counts as a conflict."""
_ENDLESS_RECREATIONS = 20
"""Recreations of one object by one writer that count as endless."""
_ENDLESS_UPDATES = 1000
"""Updates of one object by one operator, while the cluster settles, that count as endless."""
_ENDLESS_RECONCILES = 1000
_MAX_CHECKS = 5000

Managers = Callable[[], list[tuple[str, Manager]]]
"""Returns the running managers, each with the name of its operator; the name is empty for the cluster's own
components."""
Counters = list[tuple[str, Counter[str]]]
"""The number of reconciles by object key, for each named controller."""


class QuiescenceMonitor:
    def __init__(self, journal: Journal, clock: Clock, managers: Managers) -> None:
        self._journal = journal
        self._clock = clock
        self._managers = managers

    async def settle(self, quiet: float, within: float) -> None:
        """Return when nothing was written for `quiet` seconds; see `VirtualCluster.settle`."""
        begun = self._clock.monotonic()
        while True:
            before, done = self._journal.news, self._reconciles()
            await self.pass_time(quiet)
            if self._journal.news == before and self._reconciles() - done > _LOOP_RATE * quiet:
                # Distinguish one reconcile each of many objects from repeated reconciles of one.
                with self._counting() as counters:
                    await self.pass_time(quiet)
                    if self._journal.news == before:
                        _check_reconciles(counters, _LOOP_RATE * quiet)
            if self._journal.news == before:
                return
            passed = self._clock.monotonic() - begun
            if self.is_endless(since := self._since(begun)):
                raise AssertionError(f"the cluster did not settle after {passed:g} s:\n{self.diagnose(since)}")
            if passed > within:
                # The first writes may have been needed; those of the second half are not.
                recent = self._since(begun + within / 2)
                raise AssertionError(f"the cluster did not settle within {within:g} s:\n{self.diagnose(recent)}")

    async def assert_quiescent(self, seconds: float) -> None:
        """Fail if anything is written within `seconds`; see `VirtualCluster.at_rest`."""
        begun, before = self._clock.monotonic(), self._journal.news
        with self._counting() as counters:
            for _ in range(2):
                for operator, manager in self._managers():
                    if operator:
                        manager.resync()
                await self.pass_time(seconds / 2)
                if self._journal.news != before:
                    raise AssertionError(f"the cluster is not quiescent:\n{self.diagnose(self._since(begun))}")
            _check_reconciles(counters, _LOOP_RATE + seconds)

    async def pass_time(self, seconds: float) -> None:
        """Sleep for `seconds`; raise AssertionError on a livelock."""
        loop = asyncio.get_running_loop()
        if seconds <= 0 or not isinstance(loop, VirtualLoop):
            await self._clock.sleep(seconds)
            return
        over: asyncio.Future[None] = loop.create_future()
        detector = _LivelockDetector(self, over)
        timer = loop.call_later(seconds, detector.end)
        loop.livelock_callbacks.append(detector)
        try:
            await over
        finally:
            timer.cancel()
            loop.livelock_callbacks.remove(detector)
            detector.close()

    # -- observed activity ---------------------------------------------------------------------------------------------

    def _since(self, begun: float) -> list[Written]:
        return [each for each in self._journal.written if each.at >= begun]

    def recent(self) -> list[Written]:
        """Return the writes of the current instant."""
        return self._since(self._clock.monotonic() - _RECENT_SECONDS)

    def diagnose(self, written: Sequence[Written]) -> str:
        """Return a line for each active writer, operators first."""
        return diagnosis(written, {operator for operator, _ in self._managers() if operator})

    def is_endless(self, written: Sequence[Written]) -> bool:
        """Return whether one object is written so often that waiting longer is pointless."""
        if recreations(written, _ENDLESS_RECREATIONS):
            return True
        operators = {operator for operator, _ in self._managers() if operator}
        often = Counter((each.who, each.key) for each in written if each.who in operators)
        return max(often.values(), default=0) >= _ENDLESS_UPDATES

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


class _LivelockDetector:
    """Called while a sleep does not end: distinguishes much work from a livelock."""

    def __init__(self, rest: QuiescenceMonitor, over: asyncio.Future[None]) -> None:
        self._quiescence = rest
        self._over = over
        self._times = 0
        self._counters: Counters = []
        self._counted: Sequence[Controller] = ()

    def __call__(self) -> None:
        self._times += 1
        recent = self._quiescence.recent()
        endless = self._quiescence.is_endless(recent) or _is_livelock(recent) or self._times >= _MAX_CHECKS
        culprits = self._quiescence.diagnose(recent) if endless else ""
        if not culprits and (busiest := _busiest(self._counters, _ENDLESS_RECONCILES)):
            culprits = busiest
        if not self._counted:
            self._counters, self._counted = self._quiescence.count()
        if (culprits or self._times >= _MAX_CHECKS) and not self._over.done():
            self._over.set_exception(AssertionError(f"livelock, virtual time cannot advance:\n{culprits}"))

    def end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def close(self) -> None:
        stop_counting(self._counted)


def stop_counting(counted: Sequence[Controller]) -> None:
    for each in counted:
        each.by_key = None


def _is_livelock(recent: Sequence[Written]) -> bool:
    """Return whether most writes are of one object by one writer, or two writers revert each other."""
    if len(recent) < _LOOP_WRITES:
        return False
    most = max(Counter((each.who, each.key) for each in recent).values())
    if most >= max(_LOOP_WRITES, _LOOP_SHARE * len(recent)):
        return True
    last = recent[-_INSPECTED_WRITES:]
    often = Counter(each.key for each in last)
    changes = [(each, changes_of(each)) for each in last if often[each.key] > _MANY_ALTERNATIONS]
    return bool(write_conflicts(changes, _MANY_ALTERNATIONS))


def _check_reconciles(counters: Counters, most: float) -> None:
    if busiest := _busiest(counters, most):
        raise AssertionError(f"endless reconciles although nothing is written:\n{busiest}")


def _busiest(counters: Counters, most: float) -> str:
    found = [(times, who, key) for who, counter in counters for key, times in counter.items() if times > most]
    return "\n".join(f"  {who} reconciles {key}, {times} times" for times, who, key in sorted(found, reverse=True)[:5])
