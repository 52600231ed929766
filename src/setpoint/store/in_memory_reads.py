"""Reads of a store whose visible state is in memory, shared by the memory and the SQLite backend."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence

from setpoint.store.history import History
from setpoint.store.interface import Cause, KeyValue, Page, Replay, Sink, StoreError
from setpoint.store.subscriptions import PrefixSubscription, Subscriptions


class InMemoryReads:
    """Read methods over a History. None of them ever suspends, except `wait_for_revision`.

    A backend applies a change to the history, publishes it to the subscriptions and calls `_wake_waiters`, all in one
    iteration of the event loop."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._subscriptions = Subscriptions()
        # Why every call fails; None while the store works. It is set once and never cleared.
        self._failure: str | None = None
        # Callers that wait for a revision to become visible: a heap of (revision, tie breaker, future).
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waiter_serial = 0

    def _check(self) -> None:
        if self._failure is not None:
            raise StoreError(self._failure)

    @property
    def revision(self) -> int:
        return self._history.revision

    @property
    def compacted(self) -> int:
        return self._history.compacted

    @property
    def failure(self) -> str | None:
        return self._failure

    @property
    def unavailable(self) -> str | None:
        """Return None: the medium is this process or its disk, which works or has failed for good."""
        return None

    def peek(self, key: str) -> KeyValue | None:
        """Return the current entry of `key`, for callers that cannot await."""
        if self._failure is not None:
            raise StoreError(self._failure)
        return self._history.state.get(key)

    def peek_list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        """Return what `list` returns, for callers that cannot await."""
        self._check()
        return self._history.page(prefix, start, limit, revision)

    async def sync(self) -> int:
        """Return the current revision: there is no other writer. Every request calls this."""
        if self._failure is not None:
            raise StoreError(self._failure)
        return self._history.revision

    async def wait_for_revision(self, revision: int) -> None:
        self._check()
        await self._wait_visible(revision)

    async def _wait_visible(self, revision: int) -> None:
        """Return when `revision` is visible, even while the store is closing."""
        if revision > self._history.revision:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiter_serial += 1
            heapq.heappush(self._waiters, (revision, self._waiter_serial, waiter))
            try:
                await waiter
            except asyncio.CancelledError:
                # The revision may never come; do not hold the future until then.
                self._waiters = [each for each in self._waiters if not each[2].done()]
                heapq.heapify(self._waiters)
                raise

    def _wake_waiters(self) -> None:
        """Wake the callers whose revision is visible now."""
        waiters, revision = self._waiters, self._history.revision
        while waiters and waiters[0][0] <= revision:
            waiter = heapq.heappop(waiters)[2]
            if not waiter.done():
                waiter.set_result(None)

    def _fail(self, why: str) -> None:
        """Fail every call from now on, including those of callers that wait for a revision."""
        self._failure = why
        waiters, self._waiters = self._waiters, []
        for _, _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(StoreError(why))

    async def get(self, key: str, revision: int = 0) -> KeyValue | None:
        self._check()
        return self._history.get(key, revision)

    async def list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        self._check()
        return self._history.page(prefix, start, limit, revision)

    async def replay(self, prefix: str, after: int, limit: int) -> Replay:
        self._check()
        return self._history.replay(prefix, after, limit)

    async def causes(self, after: int, limit: int = 0) -> Sequence[Cause]:
        self._check()
        return self._history.causes(after, limit)

    def watch(self, prefix: str, after: int, sink: Sink) -> PrefixSubscription:
        """Subscribe to events after `after`. Past events are delivered before this returns.

        The sink is called in the same iteration of the event loop in which `revision`, get and list show the change, so
        it is never called without events."""
        self._check()
        past = self._history.events(prefix, after)
        subscription = self._subscriptions.add(prefix, after, sink)
        if past:
            subscription.deliver(past, self._history.revision)
        return subscription
