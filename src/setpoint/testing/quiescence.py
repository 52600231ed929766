"""Detect whether the control loops of a cluster are quiescent and, if not, which writer is active on which object.

There are three kinds of activity that never ends: continued writes, continued reconciles without writes, and so many of
either at one instant that virtual time cannot advance (a livelock). Continued writes are described: conflicts of two
writers over a field, endless loops, and others.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import orjson

from setpoint.cluster.write_log import LoggedWrite, WriteLog
from setpoint.meta.clock import Clock
from setpoint.meta.objects import ObjView
from setpoint.reconcile import Controller, Manager
from setpoint.testing.virtual_time import VirtualLoop
from setpoint.view.changes import (
    ABSENT,
    FieldChange,
    Path,
    WriteConflict,
    changes,
    path_text,
    value_text,
    write_conflicts,
)

_MIN_ALTERNATIONS = 3
"""Alternating changes of a field by two writers, from this number on, are a conflict."""
_MAX_LINES, _MAX_FIELDS = 8, 2
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


def diagnosis(written: Sequence[LoggedWrite], operators: Collection[str] = ()) -> str:
    """Return a line for each active writer, the most active first.

    Operators under test come before the cluster's own controllers, which mostly react to an operator's changes.
    """
    changed = [(each, changes_of(each)) for each in written]
    conflicts = write_conflicts((each.key, each.writer, fields) for each, fields in changed)
    lines = [_Line({who for who, _ in each.values}, math.inf, _conflict_line(each, operators)) for each in conflicts]
    again = recreations(written)
    lines += [_Line({who}, count, _recreation_line(who, key, count, operators)) for (who, key), count in again.items()]
    explained = {(who, each.key) for each in conflicts for who, _ in each.values} | {*again}
    lines += _loop_lines(changed, explained, operators)
    lines.sort(key=lambda line: (line.who.isdisjoint(operators), -line.writes))
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES:] = [_Line(set(), 0, f"and {len(lines) - _MAX_LINES} more")]
    return "\n".join("  " + line.text for line in lines)


class _Line(NamedTuple):
    who: set[str]
    writes: float
    text: str


def _named(who: str, operators: Collection[str]) -> str:
    return f"operator {who}" if who in operators else who


# -- recreations ------------------------------------------------------------------------------------------------------


def recreations(written: Sequence[LoggedWrite], at_least: int = _MIN_ALTERNATIONS) -> dict[tuple[str, str], int]:
    """Return how often each (writer, key) was deleted and created again by the same writer, at least `at_least`
    times."""
    deleted: Counter[tuple[str, str]] = Counter()
    created: Counter[tuple[str, str]] = Counter()
    for each in written:
        if each.now is None:
            deleted[each.writer, each.key] += 1
        elif each.before is None:
            created[each.writer, each.key] += 1
    both = {which: min(count, created[which]) for which, count in deleted.items()}
    return {which: count for which, count in both.items() if count >= at_least}


def _recreation_line(who: str, key: str, count: int, operators: Collection[str]) -> str:
    return f"{_named(who, operators)} deletes and recreates {shown(key)}, {_times(count)}"


# -- conflicts ---------------------------------------------------------------------------------------------------------


def _conflict_line(conflict: WriteConflict, operators: Collection[str]) -> str:
    if not conflict.path:
        values = ", ".join(
            f"{_named(who, operators)} {'deletes' if value is ABSENT else 'creates'} it"
            for who, value in conflict.values
        )
        return f"fight over {shown(conflict.key)}: {values}; {conflict.alternations} times in turn"
    values = ", ".join(
        f"{_named(who, operators)} {'removes it' if value is ABSENT else f'writes {value_text(value)}'}"
        for who, value in conflict.values
    )
    field = path_text(conflict.path)
    return f"fight over {field} of {shown(conflict.key)}: {values}; {conflict.alternations} times in turn"


# -- loops ------------------------------------------------------------------------------------------------------------


def _loop_lines(
    written_fields: Sequence[tuple[LoggedWrite, Sequence[FieldChange]]],
    explained: Collection[tuple[str, str]],
    operators: Collection[str],
) -> list[_Line]:
    """Describe the writes of the (writer, key) pairs that are not `explained` already."""
    updates: dict[tuple[str, str], list[Sequence[FieldChange]]] = {}
    others: dict[tuple[str, str, str], list[str]] = {}
    for written, changed in written_fields:
        if (written.writer, written.key) in explained:
            continue
        if written.before is not None and written.now is not None:
            updates.setdefault((written.writer, written.key), []).append(changed)
        else:
            verb, folder = "creates" if written.before is None else "deletes", written.key.rpartition("/")[0]
            others.setdefault((written.writer, verb, folder), []).append(written.key)
    lines = [
        _Line({who}, len(each), _update_line(_named(who, operators), key, each)) for (who, key), each in updates.items()
    ]
    lines += [
        _Line({who}, len(each), _other_line(_named(who, operators), verb, each))
        for (who, verb, _), each in others.items()
    ]
    return lines


def _update_line(who: str, key: str, all_changes: Sequence[Sequence[FieldChange]]) -> str:
    often: Counter[Path] = Counter(change.path for fields in all_changes for change in fields)
    last = {change.path: change for fields in all_changes for change in fields}
    fields = [
        f"{path_text(path)} from {value_text(last[path].old)} to {value_text(last[path].new)}"
        for path, _ in often.most_common(_MAX_FIELDS)
    ]
    return f"{who} writes {shown(key)}, {_times(len(all_changes))}: {', '.join(fields) or 'managedFields alone'}"


def _other_line(who: str, verb: str, keys: Sequence[str]) -> str:
    more = "" if len(keys) == 1 else f" and {len(keys) - 1} more of these"
    return f"{who} {verb} {shown(keys[-1])}{more}"


def changes_of(written: LoggedWrite) -> list[FieldChange]:
    return changes(_decoded(written.before), _decoded(written.now))


def _decoded(value: bytes | None) -> ObjView | None:
    return None if value is None else orjson.loads(value)


# -- formatting --------------------------------------------------------------------------------------------------------


def shown(key: str) -> str:
    """Format a store key: `deployments.apps default/web`."""
    group, plural, *rest = key.split("/")
    return f"{plural if group == 'core' else f'{plural}.{group}'} {'/'.join(rest)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


Managers = Callable[[], list[tuple[str, Manager]]]
"""Returns the running managers, each with the name of its operator; the name is empty for the cluster's own
components."""
Counters = list[tuple[str, Counter[str]]]
"""The number of reconciles by object key, for each named controller."""


class QuiescenceMonitor:
    def __init__(self, write_log: WriteLog, clock: Clock, managers: Managers) -> None:
        self._write_log = write_log
        self._clock = clock
        self._managers = managers

    async def settle(self, quiet: float, within: float) -> None:
        """Return when nothing was written for `quiet` seconds; see `VirtualCluster.settle`."""
        start = self._clock.monotonic()
        while True:
            before, done = self._write_log.change_count, self._reconciles()
            await self.pass_time(quiet)
            if self._write_log.change_count == before and self._reconciles() - done > _LOOP_RATE * quiet:
                # Distinguish one reconcile each of many objects from repeated reconciles of one.
                with self._counting() as counters:
                    await self.pass_time(quiet)
                    if self._write_log.change_count == before:
                        _check_reconciles(counters, _LOOP_RATE * quiet)
            if self._write_log.change_count == before:
                return
            passed = self._clock.monotonic() - start
            if self.is_endless(since := self._since(start)):
                raise AssertionError(f"the cluster did not settle after {passed:g} s:\n{self.diagnose(since)}")
            if passed > within:
                # The first writes may have been needed; those of the second half are not.
                recent = self._since(start + within / 2)
                raise AssertionError(f"the cluster did not settle within {within:g} s:\n{self.diagnose(recent)}")

    async def assert_quiescent(self, seconds: float) -> None:
        """Fail if anything is written within `seconds`; see `VirtualCluster.at_rest`."""
        start, before = self._clock.monotonic(), self._write_log.change_count
        with self._counting() as counters:
            for _ in range(2):
                for operator, manager in self._managers():
                    if operator:
                        manager.resync()
                await self.pass_time(seconds / 2)
                if self._write_log.change_count != before:
                    raise AssertionError(f"the cluster is not quiescent:\n{self.diagnose(self._since(start))}")
            _check_reconciles(counters, _LOOP_RATE + seconds)

    async def pass_time(self, seconds: float) -> None:
        """Sleep for `seconds`; raise AssertionError on a livelock."""
        loop = asyncio.get_running_loop()
        if seconds <= 0 or not isinstance(loop, VirtualLoop):
            await self._clock.sleep(seconds)
            return
        done: asyncio.Future[None] = loop.create_future()
        detector = _LivelockDetector(self, done)
        timer = loop.call_later(seconds, detector.end)
        loop.livelock_callbacks.append(detector)
        try:
            await done
        finally:
            timer.cancel()
            loop.livelock_callbacks.remove(detector)
            detector.close()

    # -- observed activity ---------------------------------------------------------------------------------------------

    def _since(self, start: float) -> list[LoggedWrite]:
        return [each for each in self._write_log.writes if each.at >= start]

    def recent(self) -> list[LoggedWrite]:
        """Return the writes of the current instant."""
        return self._since(self._clock.monotonic() - _RECENT_SECONDS)

    def diagnose(self, written: Sequence[LoggedWrite]) -> str:
        """Return a line for each active writer, operators first."""
        return diagnosis(written, {operator for operator, _ in self._managers() if operator})

    def is_endless(self, written: Sequence[LoggedWrite]) -> bool:
        """Return whether one object is written so often that waiting longer is pointless."""
        if recreations(written, _ENDLESS_RECREATIONS):
            return True
        operators = {operator for operator, _ in self._managers() if operator}
        often = Counter((each.writer, each.key) for each in written if each.writer in operators)
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

    def __init__(self, quiescence: QuiescenceMonitor, done: asyncio.Future[None]) -> None:
        self._quiescence = quiescence
        self._done = done
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
        if (culprits or self._times >= _MAX_CHECKS) and not self._done.done():
            self._done.set_exception(AssertionError(f"livelock, virtual time cannot advance:\n{culprits}"))

    def end(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def close(self) -> None:
        stop_counting(self._counted)


def stop_counting(counted: Sequence[Controller]) -> None:
    for each in counted:
        each.by_key = None


def _is_livelock(recent: Sequence[LoggedWrite]) -> bool:
    """Return whether most writes are of one object by one writer, or two writers revert each other."""
    if len(recent) < _LOOP_WRITES:
        return False
    most = max(Counter((each.writer, each.key) for each in recent).values())
    if most >= max(_LOOP_WRITES, _LOOP_SHARE * len(recent)):
        return True
    last = recent[-_INSPECTED_WRITES:]
    often = Counter(each.key for each in last)
    changed = ((each.key, each.writer, changes_of(each)) for each in last if often[each.key] > _MANY_ALTERNATIONS)
    return bool(write_conflicts(changed, _MANY_ALTERNATIONS))


def _check_reconciles(counters: Counters, most: float) -> None:
    if busiest := _busiest(counters, most):
        raise AssertionError(f"endless reconciles although nothing is written:\n{busiest}")


def _busiest(counters: Counters, most: float) -> str:
    found = [(times, loop, key) for loop, counter in counters for key, times in counter.items() if times > most]
    return "\n".join(
        f"  {loop} reconciles {key}, {times} times" for times, loop, key in sorted(found, reverse=True)[:5]
    )
