"""Reads and watches of a store whose visible state is in memory, which all backends share.

Routes from events to subscriptions are cached by key folder, so an event does not visit every subscription.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Sequence

from setpoint.store.history import History
from setpoint.store.interface import Archive, Cause, Event, KeyValue, Limits, Page, Replay, Sink, StoreError
from setpoint.store.transaction import MAX_OPS

_log = logging.getLogger(__name__)

_MAX_ROUTES = 8_192
_INDEX_BATCH = 5_000
"""Number of events that are indexed in one iteration of the event loop: about a millisecond."""
_SCANNED = 2_000
"""Number of events that a list of the past scans in one iteration of the event loop."""
_ARCHIVE_BATCH = 250
"""Number of events that are handed over to an archive at once: about a millisecond if they are compressed."""
_PACK_BATCH = 64
"""Number of values that are compressed in one iteration of the event loop: about a millisecond."""
_LIMITS = Limits(MAX_OPS, 1 << 30)


class PrefixSubscription:
    __slots__ = ("_owner", "after", "closed", "prefix", "sink")

    def __init__(self, owner: Subscriptions, prefix: str, after: int, sink: Sink) -> None:
        self._owner = owner
        self.prefix = prefix
        self.after = after
        self.sink = sink
        self.closed = False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._owner.remove(self)

    def deliver(self, events: Sequence[Event], revision: int) -> None:
        if self.closed:
            return
        if events[0].revision <= self.after:
            # Only a subscription that starts at a future revision gets here.
            events = [event for event in events if event.revision > self.after]
            if not events:
                return
        try:
            self.sink(events, revision)
        except Exception:
            # A sink that raises must affect neither the other subscribers nor the writers.
            _log.exception("a subscriber of %r failed on revision %d", self.prefix, revision)


class _Route:
    """The subscriptions that keys of one folder can match: all of its keys (`matching`), or some (`narrower`)."""

    __slots__ = ("matching", "narrower")

    def __init__(self, folder: str, subscriptions: Sequence[PrefixSubscription]) -> None:
        self.matching = [each for each in subscriptions if folder.startswith(each.prefix)]
        self.narrower = [
            each for each in subscriptions if len(each.prefix) > len(folder) and each.prefix.startswith(folder)
        ]


class Subscriptions:
    __slots__ = ("_all", "_routes")

    def __init__(self) -> None:
        self._all: list[PrefixSubscription] = []
        # Folder (a key up to its last slash) -> route. Cleared whenever `_all` changes.
        self._routes: dict[str, _Route] = {}

    def add(self, prefix: str, after: int, sink: Sink) -> PrefixSubscription:
        subscription = PrefixSubscription(self, prefix, after, sink)
        self._all.append(subscription)
        self._routes.clear()
        return subscription

    def remove(self, subscription: PrefixSubscription) -> None:
        self._all.remove(subscription)
        self._routes.clear()

    def publish(self, events: Sequence[Event], revision: int) -> None:
        """Call the sink of each subscription that matches an event, once.

        The deliveries are determined before the first call: a sink may open and close subscriptions."""
        if not self._all:
            return
        routes = self._routes
        deliveries: dict[PrefixSubscription, list[Event]] = {}
        for event in events:
            key = event.key
            folder = key[: key.rfind("/") + 1]
            route = routes.get(folder)
            if route is None:
                if len(routes) >= _MAX_ROUTES:
                    routes.clear()
                route = routes[folder] = _Route(folder, self._all)
            for subscription in route.matching:
                deliveries.setdefault(subscription, []).append(event)
            for subscription in route.narrower:
                if key.startswith(subscription.prefix):
                    deliveries.setdefault(subscription, []).append(event)
        for subscription, subscribed in deliveries.items():
            subscription.deliver(subscribed, revision)


class InMemoryReads:
    """Read methods over a History. None of them ever suspends, except `wait_for_revision` and `changes_of`.

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
        self._archive: Archive | None = None
        self.compaction_listeners: list[Callable[[int], None]] = []
        """Functions that receive the revision of each compaction; replicas in memory add themselves."""

    def attach(self, archive: Archive) -> None:
        """Hand over to `archive` what is compacted from now on."""
        self._archive = archive

    @property
    def archive(self) -> Archive | None:
        return self._archive

    async def archive_until(self, revision: int) -> None:
        """Hand over the transactions up to the first one after `revision`, which can be read after the compaction.

        Then a key of which the archive has no change has the value that it has in the first revision that the history
        can read."""
        archive, history = self._archive, self._history
        if archive is None:
            return
        after = max(archive.newest, history.compacted)
        while after <= revision and after < history.revision:
            events, causes, reached = history.transactions(after, _ARCHIVE_BATCH)
            await archive.append(after, events, causes, reached)
            after = reached

    def pack(self, until: int) -> bool:
        """Compress a few values that were written up to the revision `until`; return whether none is left.

        No read returns anything else afterwards."""
        return self._history.pack(until, _PACK_BATCH)

    @property
    def packed_size(self) -> int:
        """Bytes of memory that compression has saved so far, including those of values that were dropped since."""
        return self._history.packed_size

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

    @property
    def limits(self) -> Limits:
        return _LIMITS

    @property
    def shared(self) -> bool:
        """Return False: this process is the only one that uses the medium."""
        return False

    def peek(self, key: str) -> KeyValue | None:
        """Return the current entry of `key`, for callers that cannot await."""
        if self._failure is not None:
            raise StoreError(self._failure)
        return self._history.state.get(key)

    def peek_list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        """Return what `list` returns, for callers that cannot await."""
        self._check()
        return self._history.page(prefix, start, limit, revision)

    def copy_of_history(self) -> History:
        """Return an independent copy of the state and the history. It costs a pointer for each key and each event."""
        self._check()
        return self._history.fork()

    def transactions(self, after: int, limit: int) -> tuple[Sequence[Event], Sequence[Cause], int]:
        """Return about `limit` events after `after`, which must not be compacted, with their causes and the revision up
        to which they are complete."""
        return self._history.transactions(after, limit)

    async def sync(self) -> int:
        """Return the current revision: there is no other writer. Every request calls this."""
        if self._failure is not None:
            raise StoreError(self._failure)
        return self._history.revision

    async def wait_for_revision(self, revision: int) -> None:
        self._check()
        await self._wait_visible(revision)

    async def _wait_visible(self, revision: int, timeout: float = 0.0) -> None:
        """Return when `revision` is visible, even while the store is closing. Raise TimeoutError after `timeout`
        seconds; 0 means that there is no limit."""
        if revision <= self._history.revision:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiter_serial += 1
        heapq.heappush(self._waiters, (revision, self._waiter_serial, waiter))
        # Transactions wait here: `asyncio.timeout` would cost several times as much as the timer.
        timer = loop.call_later(timeout, _expire, waiter) if timeout else None
        try:
            await waiter
        except (asyncio.CancelledError, TimeoutError):
            # The revision may never come; do not hold the future until then.
            self._waiters = [each for each in self._waiters if not each[2].done()]
            heapq.heapify(self._waiters)
            raise
        finally:
            if timer is not None:
                timer.cancel()

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

    def _set_compacted(self, revision: int) -> None:
        """Make the revisions up to this one unreadable, here and in replicas."""
        self._history.compacted = revision
        for listener in self.compaction_listeners:
            listener(revision)

    async def compact(self, revision: int) -> None:
        raise NotImplementedError

    async def compact_if_first(self, revision: int) -> bool:
        """Compact: no other store uses the medium."""
        await self.compact(revision)
        return True

    async def get(self, key: str, revision: int = 0) -> KeyValue | None:
        self._check()
        return self._history.get(key, revision)

    async def list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        self._check()
        while not self._history.prepare_page(prefix, revision, _SCANNED):  # noqa: ASYNC110
            await asyncio.sleep(0)
        return self._history.page(prefix, start, limit, revision)

    async def replay(self, prefix: str, after: int, limit: int) -> Replay:
        self._check()
        return self._history.replay(prefix, after, limit)

    async def causes(self, after: int, limit: int = 0) -> Sequence[Cause]:
        self._check()
        return self._history.causes(after, limit)

    async def changes_of(self, key: str, before: int = 0, limit: int = 0) -> Sequence[Event]:
        self._check()
        while not self._history.index_key(key, _INDEX_BATCH):
            await asyncio.sleep(0)
            self._check()
        return self._history.changes_of(key, before, limit)

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


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
