"""Events go when nobody has written them for a while."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Change, Entry, Obj, Watch
from setpoint.meta.selectors import EVERYTHING
from setpoint.meta.times import parse_time
from setpoint.store.interface import CompareFailed, Delete

_BATCH = 100
_IDLE = 60.0


class EventExpiry:
    """One queue in the order of the writes, which is the order of the deadlines: nothing is ever searched."""

    def __init__(self, api: ApiServer, ttl: float) -> None:
        self._store, self._clock, self._ttl = api.store, api.clock, ttl
        self._cache = api.registry("", "events").cache
        self._queue: deque[tuple[float, str, int]] = deque()
        """Deadline, key, revision. An entry whose revision is not the current one any more was written again."""

    async def run(self) -> None:
        watch = Watch(
            namespace="", name="", labels=EVERYTHING, fields=EVERYTHING, fields_of=lambda obj: {}, deliver=self._written
        )
        self._queue.extend(self._old())
        self._cache.add(watch)
        try:
            while True:
                now = self._clock.monotonic()
                wait = self._queue[0][0] - now if self._queue else min(self._ttl, _IDLE)
                if wait <= 0:
                    await self.expire()
                else:
                    await self._clock.sleep(wait)
        finally:
            self._cache.remove(watch)

    def _written(self, kind: str, entry: Entry, _: Change) -> None:
        if kind != "DELETED":
            self._queue.append((self._clock.monotonic() + self._ttl, entry.key, entry.revision))

    def _old(self) -> list[tuple[float, str, int]]:
        """What is there at the start counts from the last time that it shows."""
        wall, monotonic = self._clock.now(), self._clock.monotonic()
        found = []
        for entry in self._cache.scan():
            age = max((wall - last_seen(entry.obj, wall)).total_seconds(), 0.0)
            found.append((monotonic + self._ttl - age, entry.key, entry.revision))
        return sorted(found)

    async def expire(self) -> None:
        """Everything whose time has come, a batch at a time."""
        now = self._clock.monotonic()
        batch: list[Delete] = []
        while self._queue and self._queue[0][0] <= now and len(batch) < _BATCH:
            _, key, revision = self._queue.popleft()
            entry = self._cache.get(key)
            if entry is not None and entry.revision == revision:
                batch.append(Delete(key, revision))
        while batch:
            try:
                await self._store.txn(batch, b'{"user":"system:apiserver","verb":"expire"}')
                return
            except CompareFailed as failure:
                # Written (or deleted) in this very moment: it has another deadline now, or none.
                batch = [one for one in batch if one.key != failure.key]


def last_seen(event: Obj, default: datetime) -> datetime:
    """The youngest time in the object: `default` if it has none."""
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
