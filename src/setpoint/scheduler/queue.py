"""The queue of unscheduled Pods.

The active queue holds Pods that are ready to be tried, by priority and then by waiting time. A Pod that fits nowhere
moves to the unschedulable pool until an event occurs that a plugin which rejected it is interested in, or five minutes
have passed. It is then ready again, but not before its backoff has ended (1 s, doubling to 10 s), unless no other Pod
is ready. A Pod that failed for another reason only backs off. Gated Pods stay in the pool until their gates are
removed.

A decision never suspends, so no event can occur while a Pod is between `pop` and `add_unschedulable` or `remove`:
events need not be recorded for Pods in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from math import floor
from typing import TYPE_CHECKING

from setpoint.meta.clock import Clock
from setpoint.meta.objects import ObjView
from setpoint.reconcile.gate import Gate
from setpoint.reconcile.keys import key_of
from setpoint.reconcile.run import Triggers, delivery
from setpoint.scheduler.cluster_events import (
    TARGET_POD,
    Action,
    ClusterEvent,
    QueueingHints,
    pod_changes,
)

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod


_ACTIVE, _BACKOFF, _ERROR_BACKOFF = "active", "backoff", "errorBackoff"
_UNSCHEDULABLE, _IN_FLIGHT = "unschedulable", "inFlight"
INITIAL_BACKOFF, MAX_BACKOFF = 1.0, 10.0
MAX_SECONDS_IN_POOL = 300.0
_WINDOW = 1.0
"""Seconds to which the ends of backoffs are rounded, so that Pods which end together are ordered by priority."""


class QueueEntry:
    __slots__ = (
        "added",
        "attempts",
        "bucket",
        "errors",
        "first_attempt",
        "flushed",
        "gated",
        "key",
        "message",
        "missed",
        "pod",
        "queued_priority",
        "rejections",
        "rejectors",
        "sequence",
        "since",
        "ticket",
        "triggers",
        "where",
    )

    def __init__(self, pod: Pod, key: str, now: float, sequence: int) -> None:
        self.pod = pod
        self.key = key
        self.added = self.since = now
        """`added` is when the Pod was first queued; `since` is when it entered its current state, from which backoffs
        count."""
        self.flushed = now
        """The time at which it last left the pool because of the maximum time there."""
        self.first_attempt: float | None = None
        self.sequence = sequence
        self.attempts = 0
        self.rejections = 0
        """The number of rejections by plugins."""
        self.errors = 0
        """The number of consecutive other failures."""
        self.rejectors: frozenset[str] = frozenset()
        self.gated = False
        self.missed = False
        """Whether the Pod became ready while it was held."""
        self.where = ""
        self.ticket = 0
        """Distinguishes its current heap entry from stale ones."""
        self.bucket: tuple[str, frozenset[str], bool] | None = None
        self.queued_priority = 0
        self.triggers = Triggers()
        """The triggers of the next attempt: the revision of the Pod and, if it was rejected before, the event that made
        it ready again."""
        self.message = ""
        """The result of the last attempt; empty before the first."""

    def note(self, besides: str = "") -> None:
        """Note that the change which an informer delivers now triggers the next attempt."""
        if (cause := delivery.cause) is not None:
            self.triggers.add(cause)
        self.triggers.besides = self.triggers.besides or besides

    @property
    def scheduler(self) -> str:
        return str(self.pod["spec"].get("schedulerName") or "")

    @property
    def priority(self) -> int:
        return int(self.pod["spec"].get("priority") or 0)

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    def order(self) -> tuple[int, float, int]:
        """The sort key of PrioritySort: priority, then time."""
        return (-self.priority, self.since, self.sequence)

    def enter(self, where: str, ticket: int) -> None:
        self.where = where
        self.ticket = ticket
        self.queued_priority = self.priority

    def leave(self) -> None:
        self.where = ""
        self.ticket = 0


def _own_trigger(entry: QueueEntry) -> Triggers:
    """Return the first trigger of an entry, without the events that made it ready again."""
    return Triggers(tuple(entry.triggers.revisions[:1]))


_Bucket = tuple[str, frozenset[str], bool]
_Heap = list[tuple[float, tuple[int, float, int], int, QueueEntry]]
"""The time at which the entry becomes ready, its order, its ticket, and the entry."""


class SchedulingQueue:
    def __init__(
        self,
        clock: Clock,
        queueing_hints: QueueingHints,
        *,
        initial_backoff: float = INITIAL_BACKOFF,
        max_backoff: float = MAX_BACKOFF,
        is_held: Callable[[Pod], bool] = lambda pod: False,
    ) -> None:
        """Create a queue. `is_held(pod)` returns whether a Pod must not be tried before `released` is called."""
        self._clock = clock
        self._queueing_hints = queueing_hints
        self._initial_backoff = initial_backoff
        self._max_backoff = max_backoff
        self._is_held = is_held
        self._entries: dict[str, QueueEntry] = {}
        """All unscheduled Pods by key, including those in flight."""
        self._active: _Heap = []
        self._backing_off: _Heap = []
        self._errors: _Heap = []
        self._pool: dict[_Bucket, dict[str, QueueEntry]] = {}
        """Unschedulable Pods by scheduler name, rejecting plugins, and whether they are gated."""
        self.gate: Gate | None = None
        """Decides which Pod is tried; None means the first, at once."""
        self.added = 0
        """The number of Pods that were added."""
        self._sequence = 0
        self._ready: asyncio.Future[None] | None = None
        self._timers = asyncio.Event()

    # -- add, update, remove --------------------------------------------------------------------------------------

    def add(self, pod: Pod) -> None:
        self.added += 1
        entry = QueueEntry(pod, key_of(pod), self._clock.monotonic(), self._next())
        self._entries[entry.key] = entry
        entry.note()
        self._to_active(entry)

    def update(self, old: Pod, new: Pod) -> None:
        entry = self._entries.get(key_of(new))
        if entry is None:
            self.add(new)
            return
        was = entry.where
        entry.pod = new
        if was == _ACTIVE:
            if entry.priority != entry.queued_priority:
                self._to_active(entry)
        elif was == _UNSCHEDULABLE:
            for action in pod_changes(old, new):
                if self._could_help(entry, ClusterEvent(TARGET_POD, action), old, new):
                    entry.note()
                    self._leave_pool(entry)
                    self._requeue(entry)
                    break

    def remove(self, key: str) -> None:
        """Remove a Pod that was deleted or bound."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._leave_pool(entry)
            entry.leave()

    def entry(self, key: str) -> QueueEntry | None:
        return self._entries.get(key)

    # -- dequeue --------------------------------------------------------------------------------------------------

    async def pop(self) -> QueueEntry:
        """Wait for the next Pod and return it; it is in flight until `add_unschedulable` or `remove`."""
        while True:
            entry = self.pop_nowait()
            if entry is not None:
                return entry
            self._ready = asyncio.get_running_loop().create_future()
            try:
                await self._ready
            finally:
                self._ready = None

    def pop_nowait(self) -> QueueEntry | None:
        """Return the next Pod, or the one that the gate admits; None if none is ready."""
        entry = self._head()
        if entry is not None and self.gate is not None:
            admitted = self.gate.admit(self)
            entry = None if admitted is None else self._entries[admitted]
        if entry is not None:
            entry.leave()
            entry.where = _IN_FLIGHT
            entry.attempts += 1
        return entry

    def _head(self) -> QueueEntry | None:
        for heap in (self._active, self._backing_off):
            while heap:
                _, _, ticket, entry = heap[0]
                if entry.ticket == ticket:
                    return entry
                heappop(heap)
        return None

    # -- the side of the gate (`reconcile/gate.py`) -----------------------------------------------------------------

    def next_key(self) -> str | None:
        entry = self._head()
        return None if entry is None else entry.key

    def waiting_since(self, key: str) -> float | None:
        entry = self._entries.get(key)
        return entry.since if entry is not None and entry.where in (_ACTIVE, _BACKOFF) else None

    def expedite(self, key: str) -> bool:
        entry = self._entries.get(key)
        if entry is not None and entry.where in (_UNSCHEDULABLE, _ERROR_BACKOFF):
            self._leave_pool(entry)
            self._to_active(entry)
        return self.waiting_since(key) is not None

    def wake(self) -> None:
        self._wake()

    def add_unschedulable(self, entry: QueueEntry, pod: Pod, rejectors: Iterable[str] | None) -> None:
        """Return an unschedulable Pod to the queue. `rejectors` are the plugins that rejected it, None if something
        else failed."""
        if self._entries.get(entry.key) is not entry:
            return
        entry.pod = pod
        entry.triggers = _own_trigger(entry)
        entry.rejectors = frozenset(rejectors or ())
        entry.since = self._clock.monotonic()
        if entry.rejectors:
            entry.rejections += 1
            entry.errors = 0
            self._to_pool(entry)
        else:
            entry.errors += 1
            entry.triggers.besides = f"retry:{entry.errors}"
            self._requeue(entry)

    # -- events ---------------------------------------------------------------------------------------------------

    def move_on_event(
        self, event: ClusterEvent, old: ObjView | None, new: ObjView | None, only: Callable[[Pod], bool] | None = None
    ) -> None:
        """Requeue the Pods that the event could make schedulable."""
        if not self._pool:
            return
        interested = self._queueing_hints.interested(event)
        if not interested:
            return
        for (scheduler, rejectors, gated), entries in list(self._pool.items()):
            if gated or (rejectors and not any((scheduler, name) in interested for name in rejectors)):
                continue
            for entry in list(entries.values()):
                if (only is None or only(entry.pod)) and self._could_help(entry, event, old, new):
                    entry.note(f"event:{event.label()}")
                    self._leave_pool(entry)
                    self._requeue(entry)

    def activate(self, key: str) -> None:
        """Make a Pod ready at once."""
        entry = self._entries.get(key)
        if entry is not None and entry.where in (_UNSCHEDULABLE, _BACKOFF, _ERROR_BACKOFF):
            entry.note("preemption")
            self._leave_pool(entry)
            self._to_active(entry)

    def released(self, key: str) -> None:
        """End the hold of a Pod."""
        entry = self._entries.get(key)
        if entry is not None and entry.missed:
            entry.missed = False
            entry.note("preemption")
            self._leave_pool(entry)
            self._requeue(entry)

    def _could_help(self, entry: QueueEntry, event: ClusterEvent, old: ObjView | None, new: ObjView | None) -> bool:
        if entry.gated:
            return event.resource == TARGET_POD and Action.POD_GATES_ELIMINATED in event.action
        if not entry.rejectors:
            return True
        return self._queueing_hints.could_help(entry.scheduler, entry.rejectors, entry.pod, event, old, new)

    # -- transitions ----------------------------------------------------------------------------------------------

    def _requeue(self, entry: QueueEntry) -> None:
        until = self._backoff_end(entry)
        if until is not None and until >= floor(self._clock.monotonic() / _WINDOW):
            self._to_backoff(entry, until)
        else:
            self._to_active(entry)

    def _backoff_end(self, entry: QueueEntry) -> float | None:
        times = entry.errors or entry.rejections
        if not times or not self._max_backoff:
            return None
        seconds = min(self._initial_backoff * 2.0 ** min(times - 1, 32), self._max_backoff)
        return float(floor((entry.since + seconds) / _WINDOW))

    def _may_enter(self, entry: QueueEntry) -> bool:
        entry.gated = bool(entry.pod["spec"].get("schedulingGates"))
        if entry.gated:
            self._to_pool(entry)
            return False
        if self._is_held(entry.pod):
            entry.missed = True
            self._to_pool(entry)
            return False
        return True

    def _to_active(self, entry: QueueEntry) -> None:
        if not self._may_enter(entry):
            return
        entry.enter(_ACTIVE, self._next())
        if entry.first_attempt is None:
            entry.first_attempt = self._clock.monotonic()
        heappush(self._active, (0.0, entry.order(), entry.ticket, entry))
        self._wake()

    def _to_backoff(self, entry: QueueEntry, until: float) -> None:
        if not self._may_enter(entry):
            return
        where, heap = (_BACKOFF, self._backing_off) if entry.rejectors else (_ERROR_BACKOFF, self._errors)
        entry.enter(where, self._next())
        heappush(heap, (until, entry.order(), entry.ticket, entry))
        self._timers.set()
        if where == _BACKOFF:
            self._wake()

    def _to_pool(self, entry: QueueEntry) -> None:
        self._leave_pool(entry)
        entry.enter(_UNSCHEDULABLE, self._next())
        bucket = (entry.scheduler, entry.rejectors, entry.gated)
        self._pool.setdefault(bucket, {})[entry.key] = entry
        entry.bucket = bucket
        self._timers.set()

    def _leave_pool(self, entry: QueueEntry) -> None:
        if entry.bucket is not None:
            bucket = self._pool[entry.bucket]
            del bucket[entry.key]
            if not bucket:
                del self._pool[entry.bucket]
            entry.bucket = None

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    # -- timers ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """End backoffs and flush the pool when due, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._timers.clear()
                due = self._flush()
                sleeper = tasks.create_task(self._sleep(due)) if due is not None else None
                try:
                    await self._timers.wait()
                finally:
                    if sleeper is not None:
                        sleeper.cancel()

    async def _sleep(self, until: float) -> None:
        await self._clock.sleep(max(0.0, until - self._clock.monotonic()))
        self._timers.set()

    def _flush(self) -> float | None:
        """Move due entries. Return the time of the next flush, or None."""
        now = self._clock.monotonic()
        due: list[float] = []
        for heap in (self._errors, self._backing_off):
            while heap:
                until, _, ticket, entry = heap[0]
                if entry.ticket == ticket and now < (until + 1) * _WINDOW:
                    due.append((until + 1) * _WINDOW)
                    break
                heappop(heap)
                if entry.ticket == ticket:
                    self._to_active(entry)
        for (_, _, gated), entries in list(self._pool.items()):
            for entry in () if gated else list(entries.values()):
                over = max(entry.since, entry.flushed) + MAX_SECONDS_IN_POOL
                if now >= over:
                    entry.flushed = now
                    entry.note(f"timer:{MAX_SECONDS_IN_POOL:g}")
                    self._leave_pool(entry)
                    self._requeue(entry)
                else:
                    due.append(over)
                    break  # the others in the bucket are younger
        return min(due) if due else None

    # -- inspection -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of Pods in all parts of the queue."""
        return len(self._entries)

    def sizes(self) -> dict[str, int]:
        """Return the number of Pods by part of the queue, as in the metric `scheduler_pending_pods`."""
        counts = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
        for entry in self._entries.values():
            if entry.where == _UNSCHEDULABLE:
                counts["gated" if entry.gated else "unschedulable"] += 1
            elif entry.where in (_BACKOFF, _ERROR_BACKOFF):
                counts["backoff"] += 1
            elif entry.where == _ACTIVE:
                counts["active"] += 1
        return counts

    def active(self) -> list[QueueEntry]:
        """Return the Pods that are ready, in the order in which they are tried."""
        return sorted((each for each in self._entries.values() if each.where == _ACTIVE), key=QueueEntry.order)

    def backing_off(self) -> list[tuple[float, QueueEntry]]:
        """Return the Pods that back off, each with the time at which it is ready; the next one first."""
        heaps = (*self._backing_off, *self._errors)
        found = [((until + 1) * _WINDOW, entry) for until, _, ticket, entry in heaps if entry.ticket == ticket]
        return sorted(found, key=lambda each: (each[0], each[1].sequence))

    def unschedulable(self) -> list[QueueEntry]:
        """Return the Pods that wait for an event, those with gates last."""
        found = (each for each in self._entries.values() if each.where == _UNSCHEDULABLE)
        return sorted(found, key=lambda each: (each.gated, each.sequence))
