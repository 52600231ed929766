"""Expiry of Events: they are deleted some time after their last write."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from math import ceil

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.cache_entry import CorruptEntry, Entry
from setpoint.apiserver.watch_cache import Change, Watch
from setpoint.meta import chunked_json
from setpoint.meta.objects import Obj
from setpoint.meta.times import parse_time
from setpoint.store.interface import CompareFailed, Delete, KeyValue

_BATCH = 100
_IDLE_SECONDS = 60.0
_GRANULARITY = 1.0
"""Seconds within which Events that were written expire together; upstream attaches them to one lease for a minute."""
_EXAMINED = 64
"""Number of Events whose age is determined in one iteration of the event loop: about a millisecond."""


class EventExpiry:
    """Deletes expired Events. The queue is in the order of writes, which is the order of deadlines."""

    def __init__(self, api: ApiResources, ttl: float) -> None:
        self._transactions, self._clock, self._ttl = api.env.transactions, api.clock, ttl
        self._cache = api.registry("", "events").cache
        self._queue: deque[tuple[float, list[KeyValue]]] = deque()
        """Deadline (monotonic seconds), and Events as they were written; one that is not the current one was written
        again."""

    async def run(self) -> None:
        watch = Watch.everything(self._written)
        self._cache.add(watch)
        try:
            await self._add_existing(self._cache.listed())
            while True:
                now = self._clock.monotonic()
                wait = self._queue[0][0] - now if self._queue else min(self._ttl, _IDLE_SECONDS)
                if wait <= 0:
                    await self.expire()
                else:
                    await self._clock.sleep(wait)
        finally:
            self._cache.remove(watch)

    def _written(self, kind: str, entry: Entry, _: Change) -> None:
        if kind != "DELETED":
            deadline = self._clock.monotonic() + self._ttl
            if not self._queue or self._queue[-1][0] < deadline:
                self._queue.append((deadline + _GRANULARITY, []))
            self._queue[-1][1].append(entry.stored)

    async def _add_existing(self, entries: Sequence[Entry]) -> None:
        """Add the Events at the start to the queue, by the last time that they contain, before those that are written
        meanwhile."""
        wall, monotonic = self._clock.now(), self._clock.monotonic()
        found: dict[int, list[KeyValue]] = {}
        for number, entry in enumerate(entries, 1):
            if isinstance(entry, CorruptEntry):
                continue
            # The decoded object is not needed any more afterwards, so the entry does not keep it.
            age = max((wall - last_seen(chunked_json.read(entry.stored.value), wall)).total_seconds(), 0.0)
            found.setdefault(ceil((self._ttl - age) / _GRANULARITY), []).append(entry.stored)
            if not number % _EXAMINED:
                await asyncio.sleep(0)
        self._queue.extendleft((monotonic + seconds * _GRANULARITY, found[seconds]) for seconds in sorted(found)[::-1])

    async def expire(self) -> None:
        """Delete one batch of expired Events."""
        if not self._queue or self._queue[0][0] > self._clock.monotonic():
            return
        expired, limit = self._queue[0][1], min(_BATCH, self._transactions.max_operations)
        batch: list[Delete] = []
        for stored in expired[:limit]:
            entry = self._cache.get(stored.key)
            if entry is not None and entry.revision == stored.mod_revision:
                batch.append(Delete(stored.key, stored.mod_revision))
        del expired[:limit]
        if not expired:
            self._queue.popleft()
        while batch:
            try:
                await self._transactions.commit_internal(
                    "expire", "the Events are older than their time to live", batch
                )
                return
            except CompareFailed as failure:
                # It was written or deleted concurrently, and has another deadline or none.
                batch = [delete for delete in batch if delete.key != failure.key]


def last_seen(event: Obj, default: datetime) -> datetime:
    """Return the latest time in the Event, or `default` if it has none."""
    meta = event["metadata"]
    texts = [meta.get("creationTimestamp"), event.get("lastTimestamp"), event.get("eventTime")]
    texts.append((event.get("series") or {}).get("lastObservedTime"))
    texts += [entry.get("time") for entry in meta.get("managedFields") or ()]
    times = []
    for text in texts:
        if text:
            try:
                times.append(parse_time(text))
            except ValueError:
                continue
    return min(max(times), default) if times else default
