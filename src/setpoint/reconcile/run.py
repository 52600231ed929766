"""The triggers of reconciles, and the latest reconciles.

While an informer notifies its handlers of a change, `delivery.cause` is the revision of the change. A queue notes it
for each key that is added meanwhile, and merges the triggers of a key that is added several times (`Triggers`). A key
that a reconcile adds gets the triggers of that reconcile. So a run knows every change that led to it, although no
controller passes them on.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from zlib import crc32

from setpoint.client.current_run import current_run
from setpoint.client.run import Run, because
from setpoint.meta.cause import MAX_TRIGGERS
from setpoint.meta.objects import ObjView

__all__ = [
    "TIMER",
    "RecentRuns",
    "Run",
    "Trigger",
    "Triggers",
    "act_on",
    "because",
    "current_run",
    "delivery",
    "periodic_run",
    "process_of",
    "triggered",
]

_FIRST = 3
"""The number of first triggers that are kept if there are too many."""
_MAX_RUNS = 128
TIMER = "timer:"
"""The beginning of triggers that are delays or periods."""


class Triggers:
    """The triggers of one run, of which at most `MAX_TRIGGERS` are listed: the first and the last ones."""

    __slots__ = ("besides", "count", "revisions")

    def __init__(self, revisions: tuple[int, ...] = (), besides: str = "", count: int = 0) -> None:
        self.revisions = list(revisions)
        """Revisions, ascending."""
        self.besides = besides
        """A trigger that is not a revision; empty if there is none."""
        self.count = max(count, len(self.revisions))
        """How many revisions there were, listed or not."""

    def add(self, trigger: Trigger) -> None:
        """Add a trigger. Revisions that are listed already do not count again."""
        if not isinstance(trigger, int):
            missing = trigger.count - len(trigger.revisions)
            for revision in trigger.revisions:
                self.add(revision)
            self.count += missing
            self.besides = self.besides or trigger.besides
            return
        revisions = self.revisions
        if not revisions or trigger > revisions[-1]:
            revisions.append(trigger)
        elif trigger in revisions:
            return
        else:
            insort(revisions, trigger)
        self.count += 1
        if len(revisions) > MAX_TRIGGERS:
            del revisions[_FIRST]

    def copy(self) -> Triggers:
        return Triggers(tuple(self.revisions), self.besides, self.count)

    @property
    def unlisted(self) -> int:
        """The number of all triggers if some are not listed, else 0."""
        return self.count if self.count > len(self.revisions) else 0


Trigger = int | Triggers
"""One revision, or several triggers."""


class _Delivery:
    """The change that an informer delivers at this moment. Handlers are synchronous, so there is only one."""

    __slots__ = ("cause",)

    def __init__(self) -> None:
        self.cause: Trigger | None = None
        """The trigger of keys that are added now; None if no informer is notifying its handlers."""


delivery = _Delivery()


@contextmanager
def triggered(revision: int = 0, besides: str = "") -> Iterator[None]:
    """Make this the trigger of the keys that are added in the block, which must not suspend."""
    before = delivery.cause
    delivery.cause = Triggers((revision,) if revision else (), besides) if besides else revision or None
    try:
        yield
    finally:
        delivery.cause = before


def trigger_now() -> Trigger | None:
    """Return the trigger of a key that is added now; None if nothing is known."""
    if delivery.cause is not None:
        return delivery.cause
    run = current_run.get()
    return None if run is None else Triggers(run.triggers, run.besides, run.count)


def trigger_later(seconds: float, coalescing: float) -> Trigger:
    """Return the trigger of a key that is added now with a delay. Delays of up to `coalescing` seconds after a change
    coalesce changes and are not mentioned."""
    cause = delivery.cause
    if cause is not None:
        if seconds <= coalescing:
            return cause
        found = Triggers((cause,)) if isinstance(cause, int) else cause.copy()
    else:
        # The triggers of a run that a timer triggered are not passed on to the next one: a periodic reconcile would
        # collect all that ever triggered it.
        run = current_run.get()
        passed_on = run is not None and not run.besides.startswith(TIMER)
        found = Triggers(run.triggers, "", run.count) if run is not None and passed_on else Triggers()
    found.besides = found.besides or f"{TIMER}{seconds:g}"
    return found


def trigger_of_retry(failures: int) -> Triggers:
    """Return the trigger of a key that is retried: those of the failed run."""
    run = current_run.get()
    besides = f"retry:{failures}"
    return Triggers() if run is None else Triggers(run.triggers, besides, run.count)


def act_on(obj: ObjView, reason: str = "") -> None:
    """Make the object in its cached state the trigger of the next writes of the current run, for loops that work off a
    list of objects."""
    run = current_run.get()
    if run is not None:
        run.act_on(int(obj["metadata"]["resourceVersion"]))
        run.because(reason)


def process_of(name: str, started: datetime) -> str:
    """Return four hexadecimal digits that distinguish a loop from one of the same name that started at another time."""
    return f"{crc32(f'{name} {started.isoformat()}'.encode()) & 0xFFFF:04x}"


def periodic_run(loop: str, started: datetime, besides: str) -> Run:
    """Return the run of a loop that has no queue: it acts when it starts, or periodically."""
    return Run(loop, process_of(loop, started), 0, "", besides=besides)


class RecentRuns:
    """The latest runs of one controller, the oldest first."""

    def __init__(self, maximum: int = _MAX_RUNS) -> None:
        self.maximum = maximum
        self._runs: deque[Run] = deque(maxlen=maximum)

    def add(self, run: Run) -> None:
        self._runs.append(run)

    def __iter__(self) -> Iterator[Run]:
        return iter(tuple(self._runs))

    def __len__(self) -> int:
        return len(self._runs)

    def last(self, key: str) -> Run | None:
        """Return the latest run for a key, or None if it is not among them."""
        return next((run for run in reversed(self._runs) if run.key == key), None)
