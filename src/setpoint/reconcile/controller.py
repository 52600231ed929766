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


class Controller:
    def __init__(
        self, name: str, reconcile: Reconcile, clock: Clock, *, workers: int = 1, queue: RateLimitingQueue | None = None
    ) -> None:
        self.name = name
        self.queue = queue if queue is not None else RateLimitingQueue(clock)
        self._reconcile = reconcile
        self._workers = workers

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
            try:
                await self._attempt(key)
            finally:
                self.queue.done(key)

    async def _attempt(self, key: str) -> None:
        try:
            result = await self._reconcile(key)
        except (ApiError, Unreachable) as error:
            # Conflicts and the like are how concurrent writers find out about each other: no traceback.
            log.info("%s: %s: %s", self.name, key, error)
            self.queue.add_rate_limited(key)
        except Exception:
            log.exception("%s: %s failed and will be tried again", self.name, key)
            self.queue.add_rate_limited(key)
        else:
            if result is not None and result.retry:
                self.queue.add_rate_limited(key)
                return
            self.queue.forget(key)
            if result is not None and result.requeue_after is not None:
                self.queue.add_after(key, result.requeue_after)
