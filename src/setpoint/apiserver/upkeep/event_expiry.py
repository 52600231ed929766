"""Expiry of Events: they are deleted some time after their last write."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.watch_cache import Change, Watch
from setpoint.meta.objects import Obj
from setpoint.meta.times import parse_time
from setpoint.store.interface import CompareFailed, Delete

_BATCH = 100
_IDLE_SECONDS = 60.0


class EventExpiry:
    """Deletes expired Events. The queue is in the order of writes, which is the order of deadlines."""

    def __init__(self, api: ApiResources, ttl: float) -> None:
        self._transactions, self._clock, self._ttl = api.env.transactions, api.clock, ttl
        self._cache = api.registry("", "events").cache
        self._queue: deque[tuple[float, str, int]] = deque()
        """Deadline (monotonic seconds), key and revision; an entry whose revision is not the current one was written
        again."""

    async def run(self) -> None:
        watch = Watch.everything(self._written)
        self._queue.extend(self._existing())
        self._cache.add(watch)
        try:
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
            self._queue.append((self._clock.monotonic() + self._ttl, entry.key, entry.revision))

    def _existing(self) -> list[tuple[float, str, int]]:
        """Return entries for the Events at the start, by the last time that they contain."""
        wall, monotonic = self._clock.now(), self._clock.monotonic()
        found = []
        for entry in self._cache.scan():
            age = max((wall - last_seen(entry.obj, wall)).total_seconds(), 0.0)
            found.append((monotonic + self._ttl - age, entry.key, entry.revision))
        return sorted(found)

    async def expire(self) -> None:
        """Delete one batch of expired Events."""
        now = self._clock.monotonic()
        batch: list[Delete] = []
        limit = min(_BATCH, self._transactions.max_operations)
        while self._queue and self._queue[0][0] <= now and len(batch) < limit:
            _, key, revision = self._queue.popleft()
            entry = self._cache.get(key)
            if entry is not None and entry.revision == revision:
                batch.append(Delete(key, revision))
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
