"""Runs workers that dequeue keys and reconcile them, and throttles keys that occupy the event loop for long."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from setpoint.client import Unreachable
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.exposition import Histogram, exponential
from setpoint.reconcile.gate import Gates
from setpoint.reconcile.run import RecentRuns, Run, current_run, process_of
from setpoint.reconcile.workqueue import RateLimitingQueue, ShutDown
from setpoint.tasks import Workers

log = logging.getLogger("setpoint.reconcile")

T = TypeVar("T")
_WORK_SECONDS = exponential(1e-8, 10, 12)
_THROTTLE_FACTOR = 3.0
_THROTTLE_THRESHOLD, _MAX_THROTTLE = 0.001, 1.0
_MAX_FAILURES, _MAX_ERROR_LENGTH = 1000, 1000


class LoopTimer(Generic[T]):
    """Awaits an awaitable and measures its time on the event loop.

    `await LoopTimer(awaitable, clock)` returns what `await awaitable` returns. Afterwards `seconds` holds the time
    during which no other task could run because of it; in virtual time that is 0.
    """

    __slots__ = ("_awaitable", "_clock", "seconds")

    def __init__(self, awaitable: Awaitable[T], clock: Clock) -> None:
        self._awaitable = awaitable
        self._clock = clock
        self.seconds = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        inner = self._awaitable.__await__()
        resume: Callable[[Any], Any] = inner.send
        argument: Any = None
        monotonic = self._clock.monotonic
        while True:
            began = monotonic()
            try:
                waiting = resume(argument)
            except StopIteration as end:
                value: T = end.value
                return value
            finally:
                self.seconds += monotonic() - began
            try:
                argument, resume = (yield waiting), inner.send
            except BaseException as error:
                argument, resume = error, inner.throw


class Result(NamedTuple):
    """The outcome of a successful reconcile."""

    requeue_after: float | None = None
    """Requeue the key after this many seconds; None means do not requeue."""
    retry: bool = False
    """Requeue with exponential backoff although nothing failed, because the work is not complete."""


Reconcile = Callable[[str], Awaitable[Result | None]]
"""Moves the observed state towards the desired state of the object with this key.

It is level-based: it acts on the current state, not on the event that triggered it. An exception requeues the key with
exponential backoff; the result is ignored.
"""


@dataclass(slots=True)
class Counts:
    """Counters of a controller since its start."""

    done: int = 0
    """Reconciles that ended, successfully or not."""
    failed: int = 0
    """Reconciles that raised an exception."""
    retried: int = 0
    """Rate-limited requeues, after failures and after `Result.retry`."""
    requeued_after: int = 0
    """Successful reconciles that returned `requeue_after`."""
    seconds: float = 0.0
    """Total duration of all reconciles, summed over all workers."""


class Failure(NamedTuple):
    """The failures of a key since its last successful reconcile."""

    error: str
    """The error of the last one."""
    since: float
    """When the first one ended, on the monotonic clock."""


class Controller:
    """Reconciles the keys of its queue with a limited number of workers.

    Throttles keys whose reconcile occupies the event loop: after a reconcile that held the loop for *t* seconds (of
    loop time, not of waiting), the key is not dequeued for 3 *t*. Changes that arrive one by one for an object with
    thousands of dependents are then coalesced, and other work gets its share of the loop.
    """

    def __init__(
        self, name: str, reconcile: Reconcile, clock: Clock, *, workers: int = 1, queue: RateLimitingQueue | None = None
    ) -> None:
        self.name = name
        self.queue = queue if queue is not None else RateLimitingQueue(clock)
        self._reconcile = reconcile
        self._workers = workers
        """The number of workers at most; they are started when there are keys for them."""
        self._clock = clock
        self.counts = Counts()
        self.by_key: Counter[str] | None = None
        """Reconciles per key; None (the default) disables counting. Tests install a counter here."""
        self.work_seconds = Histogram(_WORK_SECONDS)
        """Durations of reconciles in seconds, including the time they were suspended."""
        self.recent = RecentRuns()
        """The latest reconciles, including those that run."""
        self.failures: dict[str, Failure] = {}
        """The failures of keys whose last reconcile failed; bounded."""
        self.gates: Gates | None = None
        """The gates that hold back its keys; None means that there are none. The manager sets them."""
        self._charge: Callable[[float], None] | None = None
        """The function to which it reports the seconds that reconciles held the event loop; None if they are not
        limited."""
        self._process = ""
        self._number = 0

    def enqueue(self, key: str) -> None:
        """Add a key to the queue."""
        self.queue.add(key)

    async def run(self) -> None:
        """Run the queue and the workers until cancelled."""
        log.info("starting controller %s with %d workers", self.name, self._workers)
        self._process = process_of(self.name, self._clock.now())
        current_run.set(None)  # a reconcile may have started this task
        guarded = nullcontext() if self.gates is None else self.gates.guarding(self.name, self.queue)
        workers = Workers(self._work, self._workers)
        self._charge = None if self.gates is None else self.gates.charge
        with guarded:
            async with workers.running():
                self.queue.add_workers = workers.add
                workers.add(len(self.queue))
                await self.queue.run()

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except ShutDown:
                return
            started = self._clock.monotonic()
            run = self._begin(key, started)
            reconciling = LoopTimer(self._reconcile(key), self._clock)
            try:
                await self._attempt(key, reconciling, run)
            finally:
                current_run.set(None)
                self.counts.done += 1
                if self.by_key is not None:
                    self.by_key[key] += 1
                run.ended = self._clock.monotonic()
                duration = run.ended - started
                self.counts.seconds += duration
                self.work_seconds.observe(duration)
                if self._charge is not None:
                    self._charge(reconciling.seconds)
                self.queue.done(key)
                if reconciling.seconds > _THROTTLE_THRESHOLD:
                    self.queue.throttle(key, min(_THROTTLE_FACTOR * reconciling.seconds, _MAX_THROTTLE))

    def _begin(self, key: str, started: float) -> Run:
        """Make the run for the key that was just dequeued the current one, and return it."""
        self._number += 1
        trigger = self.queue.taken
        if trigger is None:
            run = Run(self.name, self._process, self._number, key, began=started)
        elif isinstance(trigger, int):
            run = Run(self.name, self._process, self._number, key, (trigger,), began=started)
        else:
            listed = tuple(trigger.revisions)
            run = Run(
                self.name, self._process, self._number, key, listed, trigger.unlisted, trigger.besides, began=started
            )
        current_run.set(run)
        self.recent.add(run)
        return run

    async def _attempt(self, key: str, reconciling: Awaitable[Result | None], run: Run) -> None:
        try:
            result = await reconciling
        except (ApiError, Unreachable) as error:
            # Conflicts and other API errors are expected between concurrent writers: log them without a traceback.
            log.info("%s: reconcile of %s failed: %s", self.name, key, error)
            self._failed(run, error)
        except Exception as error:
            log.exception("%s: reconcile of %s failed; requeueing with backoff", self.name, key)
            self._failed(run, error)
        else:
            if self.failures:
                self.failures.pop(key, None)
            if result is not None and result.retry:
                self.counts.retried += 1
                self.queue.add_rate_limited(key)
                return
            self.queue.forget(key)
            if result is not None and result.requeue_after is not None:
                self.counts.requeued_after += 1
                self.queue.add_after(key, result.requeue_after)
                if result.requeue_after <= 0:
                    # A reconcile that only reads its cache never suspends: yield, or other tasks would starve.
                    await asyncio.sleep(0)

    def _failed(self, run: Run, error: Exception) -> None:
        self.counts.failed += 1
        self.counts.retried += 1
        run.error = (str(error) or type(error).__name__)[:_MAX_ERROR_LENGTH]
        before = self.failures.pop(run.key, None)
        if len(self.failures) >= _MAX_FAILURES:
            self.failures.pop(next(iter(self.failures)))
        self.failures[run.key] = Failure(run.error, self._clock.monotonic() if before is None else before.since)
        self.queue.add_rate_limited(run.key)
