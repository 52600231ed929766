"""The reading half of a store whose visible state is in memory: what the memory and the SQLite backend share."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence

from setpoint.store.history import History
from setpoint.store.interface import Cause, KeyValue, Page, Replay, Sink, StoreError
from setpoint.store.subscriptions import PrefixSubscription, Subscriptions


class ReadableStore:
    """No method here but `reached` ever suspends: an `await` of one returns without a turn of the event loop.

    A backend applies a change to the history, publishes it to the subscriptions and calls `_wake_reached`, in one turn
    of the event loop."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._subscriptions = Subscriptions()
        # Why no call is answered any more; None while all is well. Once set it stays.
        self._refusal: str | None = None
        # Callers that wait for a revision to become visible: (revision, tie breaker, future).
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waited = 0

    def _check(self) -> None:
        if self._refusal is not None:
            raise StoreError(self._refusal)

    @property
    def revision(self) -> int:
        return self._history.revision

    @property
    def compacted(self) -> int:
        return self._history.compacted

    @property
    def failure(self) -> str | None:
        return self._refusal

    @property
    def unavailable(self) -> str | None:
        """The medium is this process or its disk: it is there, or has failed for good."""
        return None

    def peek(self, key: str) -> KeyValue | None:
        """`get` of now, for callers that cannot await."""
        if self._refusal is not None:
            raise StoreError(self._refusal)
        return self._history.state.get(key)

    def peek_list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        """`list`, for callers that cannot await."""
        self._check()
        return self._history.page(prefix, start, limit, revision)

    async def sync(self) -> int:
        """Nobody else writes: what is visible here is everything. Called with every request."""
        if self._refusal is not None:
            raise StoreError(self._refusal)
        return self._history.revision

    async def reached(self, revision: int) -> None:
        self._check()
        await self._visible(revision)

    async def _visible(self, revision: int) -> None:
        """Return when `revision` is visible, also while the store is being closed."""
        if revision > self._history.revision:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waited += 1
            heapq.heappush(self._waiters, (revision, self._waited, waiter))
            try:
                await waiter
            except asyncio.CancelledError:
                # The revision may be far away, and nobody waits for it any more.
                self._waiters = [each for each in self._waiters if not each[2].done()]
                heapq.heapify(self._waiters)
                raise

    def _wake_reached(self) -> None:
        """Wake the callers whose revision is visible now."""
        waiters, revision = self._waiters, self._history.revision
        while waiters and waiters[0][0] <= revision:
            waiter = heapq.heappop(waiters)[2]
            if not waiter.done():
                waiter.set_result(None)

    def _refuse(self, why: str) -> None:
        """Answer no more, from now on. Callers that wait for a revision are refused too."""
        self._refusal = why
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
        """Past events are delivered before this returns. The sink hears of a revision in the very moment in which
        `revision`, get and list begin to show it, so it is never called just to tell that the revision moved on."""
        self._check()
        past = self._history.events(prefix, after)
        subscription = self._subscriptions.add(prefix, after, sink)
        if past:
            subscription.deliver(past, self._history.revision)
        return subscription
