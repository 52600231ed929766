"""The reading half of a store whose visible state is in memory: what the memory and the SQLite backend share."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.store.history import History
from setpoint.store.interface import Cause, KeyValue, Page, Replay, Sink, StoreError
from setpoint.store.subscriptions import PrefixSubscription, Subscriptions


class ReadableStore:
    """No method here ever suspends: an `await` of one returns without a turn of the event loop."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._subscriptions = Subscriptions()
        # Why no call is answered any more; None while all is well. Once set it stays.
        self._refusal: str | None = None

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
        """Why the store answers no more (closed, or its medium failed); None: it does."""
        return self._refusal

    def peek(self, key: str) -> KeyValue | None:
        """`get` of now, for callers that cannot await."""
        if self._refusal is not None:
            raise StoreError(self._refusal)
        return self._history.state.get(key)

    def peek_list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        """`list`, for callers that cannot await."""
        self._check()
        return self._history.page(prefix, start, limit, revision)

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
        """The recorded causes of the revisions greater than `after`, oldest first, at most `limit` (0: all). Revisions
        without a cause are left out. Raises Compacted as `watch` does."""
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
