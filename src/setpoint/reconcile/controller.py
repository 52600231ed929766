"""Workers that take keys from a queue and reconcile them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from setpoint.client import Unreachable
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.exposition import Histogram, exponential
from setpoint.reconcile.busy import Busy
from setpoint.reconcile.rate_limiting import RateLimitingQueue
from setpoint.reconcile.workqueue import ShutDown

log = logging.getLogger("setpoint.reconcile")


class Result(NamedTuple):
    """How a reconcile ended that did not fail."""

    requeue_after: float | None = None
    """Look again after so many seconds, even if nothing happens until then."""
    retry: bool = False
    """Nothing failed, but it is not done either: try again, later each time, as after a failure."""


Reconcile = Callable[[str], Awaitable[Result | None]]
"""Brings the world closer to what the object with this key asks for. Level-based: it looks at what is, not at what
happened. Whatever it raises means: try again later."""


@dataclass(slots=True)
class Counts:
    """Since the start."""

    done: int = 0
    """Reconciles that ended, well or not."""
    failed: int = 0
    retried: int = 0
    """How often a key went back to be tried again."""
    later: int = 0
    """How often one ended well and asked to look again after a while."""
    seconds: float = 0.0
    """Spent reconciling, all workers together."""


_WORK_SECONDS = exponential(1e-8, 10, 12)
_REST = 3.0
_WORTH_A_REST, _LONGEST_REST = 0.001, 1.0


class Controller:
    """A key whose reconcile held the event loop for long rests three times as long before it is taken again: news that
    come one by one about an object with thousands of others are looked at together, and leave room for the rest."""

    def __init__(
        self, name: str, reconcile: Reconcile, clock: Clock, *, workers: int = 1, queue: RateLimitingQueue | None = None
    ) -> None:
        self.name = name
        self.queue = queue if queue is not None else RateLimitingQueue(clock)
        self._reconcile = reconcile
        self._workers = workers
        self._clock = clock
        self.counts = Counts()
        self.by_key: Counter[str] | None = None
        """How often each key was reconciled, where somebody wants to know and puts a counter here."""
        self.work_seconds = Histogram(_WORK_SECONDS)

    def enqueue(self, key: str) -> None:
        self.queue.add(key)

    async def run(self) -> None:
        """Until cancelled."""
        log.info("starting controller %s with %d workers", self.name, self._workers)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.queue.run())
            for _ in range(self._workers):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except ShutDown:
                return
            started = self._clock.monotonic()
            reconciling = Busy(self._reconcile(key), self._clock)
            try:
                await self._attempt(key, reconciling)
            finally:
                self.counts.done += 1
                if self.by_key is not None:
                    self.by_key[key] += 1
                took = self._clock.monotonic() - started
                self.counts.seconds += took
                self.work_seconds.observe(took)
                self.queue.done(key)
                if reconciling.seconds > _WORTH_A_REST:
                    self.queue.rest(key, min(_REST * reconciling.seconds, _LONGEST_REST))

    async def _attempt(self, key: str, reconciling: Awaitable[Result | None]) -> None:
        try:
            result = await reconciling
        except (ApiError, Unreachable) as error:
            # Conflicts and the like are how concurrent writers find out about each other: no traceback.
            log.info("%s: %s: %s", self.name, key, error)
            self._failed(key)
        except Exception:
            log.exception("%s: %s failed and will be tried again", self.name, key)
            self._failed(key)
        else:
            if result is not None and result.retry:
                self.counts.retried += 1
                self.queue.add_rate_limited(key)
                return
            self.queue.forget(key)
            if result is not None and result.requeue_after is not None:
                self.counts.later += 1
                self.queue.add_after(key, result.requeue_after)
                if result.requeue_after <= 0:
                    # A reconcile that finds everything in its cache never waits: the others would never get a turn.
                    await asyncio.sleep(0)

    def _failed(self, key: str) -> None:
        self.counts.failed += 1
        self.counts.retried += 1
        self.queue.add_rate_limited(key)
