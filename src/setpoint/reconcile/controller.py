"""Workers that take keys from a queue and reconcile them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from setpoint.client import Unreachable
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.reconcile.rate_limiting import RateLimitingQueue
from setpoint.reconcile.workqueue import ShutDown

log = logging.getLogger("setpoint.reconcile")


@dataclass(frozen=True, slots=True)
class Result:
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
    seconds: float = 0.0
    """Spent reconciling, all workers together."""


class Controller:
    def __init__(
        self, name: str, reconcile: Reconcile, clock: Clock, *, workers: int = 1, queue: RateLimitingQueue | None = None
    ) -> None:
        self.name = name
        self.queue = queue if queue is not None else RateLimitingQueue(clock)
        self._reconcile = reconcile
        self._workers = workers
        self._clock = clock
        self.counts = Counts()

    def enqueue(self, key: str) -> None:
        self.queue.add(key)

    async def run(self) -> None:
        """Until cancelled."""
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
            try:
                await self._attempt(key)
            finally:
                self.counts.done += 1
                self.counts.seconds += self._clock.monotonic() - started
                self.queue.done(key)

    async def _attempt(self, key: str) -> None:
        try:
            result = await self._reconcile(key)
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
                self.queue.add_after(key, result.requeue_after)

    def _failed(self, key: str) -> None:
        self.counts.failed += 1
        self.counts.retried += 1
        self.queue.add_rate_limited(key)
