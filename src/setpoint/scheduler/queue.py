"""The Pods that wait for a node.

Ready ones are in the active queue, the highest priority first, then the one that has waited longest. One that fits
nowhere goes to the unschedulable pool until something happens that one of the plugins which refused it says could help,
or five minutes have passed; then it is ready again, but not before its back-off is over (1 s, doubling to 10 s) unless
nobody else is ready. One that failed for another reason only backs off. Gated Pods stay in the pool until their gates
are gone.

A decision about a Pod is made without waiting for anything, so nothing can happen to the cluster while a Pod is between
`pop` and `back`, `done` or `gone`: there are no events to be kept for Pods in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from math import floor
from typing import Any

from setpoint.meta.clock import Clock
from setpoint.reconcile.keys import key_of
from setpoint.scheduler.cluster_events import TARGET_POD, Action, ClusterEvent, pod_changes
from setpoint.scheduler.queue_entry import ACTIVE, BACKOFF, ERROR_BACKOFF, IN_FLIGHT, UNSCHEDULABLE, Entry
from setpoint.scheduler.wakeups import Wakeups

Obj = dict[str, Any]
Bucket = tuple[str, frozenset[str], bool]
Heap = list[tuple[float, tuple[int, float, int], int, Entry]]
"""When it may leave, its order, its ticket, and it."""

FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 10.0
LONGEST_IN_POOL = 300.0
_WINDOW = 1.0
"""Back-offs end on whole seconds, so that those which end about the same time are ordered by priority."""


class SchedulingQueue:
    def __init__(
        self,
        clock: Clock,
        wakeups: Wakeups,
        *,
        first_backoff: float = FIRST_BACKOFF,
        longest_backoff: float = LONGEST_BACKOFF,
        is_held: Callable[[Obj], bool] = lambda pod: False,
    ) -> None:
        """`is_held(pod)`: something is under way for it, and it must not be tried before `released`."""
        self._clock = clock
        self._wakeups = wakeups
        self._first_backoff = first_backoff
        self._longest_backoff = longest_backoff
        self._is_held = is_held
        self._entries: dict[str, Entry] = {}
        """All Pods that wait, by key; those in flight among them."""
        self._active: Heap = []
        self._backing_off: Heap = []
        self._errors: Heap = []
        self._pool: dict[Bucket, dict[str, Entry]] = {}
        """The unschedulable ones by scheduler name, by which plugins refused them, and whether they are gated."""
        self._sequence = 0
        self._ready: asyncio.Future[None] | None = None
        self._timers = asyncio.Event()

    # -- coming and going -----------------------------------------------------------------------------------------

    def add(self, pod: Obj) -> None:
        entry = Entry(pod, key_of(pod), self._clock.monotonic(), self._next())
        self._entries[entry.key] = entry
        self._to_active(entry)

    def update(self, old: Obj, new: Obj) -> None:
        entry = self._entries.get(key_of(new))
        if entry is None:
            self.add(new)
            return
        was = entry.where
        entry.pod = new
        if was == ACTIVE:
            if entry.priority != entry.queued_priority:
                self._to_active(entry)
        elif was == UNSCHEDULABLE:
            for action in pod_changes(old, new):
                if self._could_help(entry, ClusterEvent(TARGET_POD, action), old, new):
                    self._leave_pool(entry)
                    self._requeue(entry)
                    break

    def remove(self, key: str) -> None:
        """The Pod is gone, or on a node."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._leave_pool(entry)
            entry.leave()

    def entry(self, key: str) -> Entry | None:
        return self._entries.get(key)

    # -- taking ---------------------------------------------------------------------------------------------------

    async def pop(self) -> Entry:
        """The next one to be decided about: it is in flight until `back` or `remove`."""
        while True:
            entry = self.take()
            if entry is not None:
                return entry
            self._ready = asyncio.get_running_loop().create_future()
            try:
                await self._ready
            finally:
                self._ready = None

    def take(self) -> Entry | None:
        """As `pop`; None if nobody waits."""
        for heap in (self._active, self._backing_off):
            while heap:
                _, _, ticket, entry = heappop(heap)
                if entry.ticket == ticket:
                    entry.leave()
                    entry.where = IN_FLIGHT
                    entry.attempts += 1
                    return entry
        return None

    def back(self, entry: Entry, pod: Obj, rejectors: Iterable[str] | None) -> None:
        """It was tried and fits nowhere: `rejectors` are the plugins that refused it, None if something else failed."""
        if self._entries.get(entry.key) is not entry:
            return
        entry.pod = pod
        entry.rejectors = frozenset(rejectors or ())
        entry.since = self._clock.monotonic()
        if entry.rejectors:
            entry.refused += 1
            entry.errors = 0
            self._to_pool(entry)
        else:
            entry.errors += 1
            self._requeue(entry)

    # -- what happens ---------------------------------------------------------------------------------------------

    def happened(
        self, event: ClusterEvent, old: Obj | None, new: Obj | None, only: Callable[[Obj], bool] | None = None
    ) -> None:
        """Wakes the Pods that this could help."""
        if not self._pool:
            return
        interested = self._wakeups.interested(event)
        if not interested:
            return
        for (scheduler, rejectors, gated), entries in list(self._pool.items()):
            if gated or (rejectors and not any((scheduler, name) in interested for name in rejectors)):
                continue
            for entry in list(entries.values()):
                if (only is None or only(entry.pod)) and self._could_help(entry, event, old, new):
                    self._leave_pool(entry)
                    self._requeue(entry)

    def activate(self, key: str) -> None:
        """At once, whatever it waits for."""
        entry = self._entries.get(key)
        if entry is not None and entry.where in (UNSCHEDULABLE, BACKOFF, ERROR_BACKOFF):
            self._leave_pool(entry)
            self._to_active(entry)

    def released(self, key: str) -> None:
        """What was under way for it is over."""
        entry = self._entries.get(key)
        if entry is not None and entry.missed:
            entry.missed = False
            self._leave_pool(entry)
            self._requeue(entry)

    def _could_help(self, entry: Entry, event: ClusterEvent, old: Obj | None, new: Obj | None) -> bool:
        if entry.gated:
            return event.resource == TARGET_POD and Action.POD_GATES_ELIMINATED in event.action
        if not entry.rejectors:
            return True
        return self._wakeups.could_help(entry.scheduler, entry.rejectors, entry.pod, event, old, new)

    # -- moving ---------------------------------------------------------------------------------------------------

    def _requeue(self, entry: Entry) -> None:
        until = self._backoff_end(entry)
        if until is not None and until >= floor(self._clock.monotonic() / _WINDOW):
            self._to_backoff(entry, until)
        else:
            self._to_active(entry)

    def _backoff_end(self, entry: Entry) -> float | None:
        times = entry.errors or entry.refused
        if not times or not self._longest_backoff:
            return None
        seconds = min(self._first_backoff * 2.0 ** min(times - 1, 32), self._longest_backoff)
        return float(floor((entry.since + seconds) / _WINDOW))

    def _may_enter(self, entry: Entry) -> bool:
        entry.gated = bool(entry.pod["spec"].get("schedulingGates"))
        if entry.gated:
            self._to_pool(entry)
            return False
        if self._is_held(entry.pod):
            entry.missed = True
            self._to_pool(entry)
            return False
        return True

    def _to_active(self, entry: Entry) -> None:
        if not self._may_enter(entry):
            return
        entry.enter(ACTIVE, self._next())
        if entry.first_attempt is None:
            entry.first_attempt = self._clock.monotonic()
        heappush(self._active, (0.0, entry.order(), entry.ticket, entry))
        self._wake()

    def _to_backoff(self, entry: Entry, until: float) -> None:
        if not self._may_enter(entry):
            return
        where, heap = (BACKOFF, self._backing_off) if entry.rejectors else (ERROR_BACKOFF, self._errors)
        entry.enter(where, self._next())
        heappush(heap, (until, entry.order(), entry.ticket, entry))
        self._timers.set()
        if where == BACKOFF:
            self._wake()

    def _to_pool(self, entry: Entry) -> None:
        self._leave_pool(entry)
        entry.enter(UNSCHEDULABLE, self._next())
        bucket = (entry.scheduler, entry.rejectors, entry.gated)
        self._pool.setdefault(bucket, {})[entry.key] = entry
        entry.bucket = bucket
        self._timers.set()

    def _leave_pool(self, entry: Entry) -> None:
        if entry.bucket is not None:
            held = self._pool[entry.bucket]
            del held[entry.key]
            if not held:
                del self._pool[entry.bucket]
            entry.bucket = None

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    # -- time -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ends back-offs and empties the pool in time. Until cancelled."""
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
        """Moves what is due. When to look again."""
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
                over = max(entry.since, entry.flushed) + LONGEST_IN_POOL
                if now >= over:
                    entry.flushed = now
                    self._leave_pool(entry)
                    self._requeue(entry)
                else:
                    due.append(over)
                    break  # the others of the bucket came later
        return min(due) if due else None

    # -- looking --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many Pods are known to wait, wherever they do."""
        return len(self._entries)

    def sizes(self) -> dict[str, int]:
        """How many wait where, as the metric `scheduler_pending_pods` has it."""
        counts = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
        for entry in self._entries.values():
            if entry.where == UNSCHEDULABLE:
                counts["gated" if entry.gated else "unschedulable"] += 1
            elif entry.where in (BACKOFF, ERROR_BACKOFF):
                counts["backoff"] += 1
            elif entry.where == ACTIVE:
                counts["active"] += 1
        return counts
