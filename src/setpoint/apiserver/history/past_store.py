"""A store that shows one revision of the history, for the parts of the server that read from a store."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from setpoint.apiserver.history.reader import HistoryReader, Version
from setpoint.store.interface import (
    Archive,
    Cause,
    Compacted,
    Event,
    FutureRevision,
    KeyValue,
    Limits,
    NotedCause,
    Op,
    Page,
    Replay,
    Sink,
    StoreError,
)

_READ_ONLY = "the past cannot be changed"
_MAX_CACHED_LISTS = 4


class _NoSubscription:
    """A subscription to changes of the past, of which there are none."""

    def close(self) -> None:
        pass


class PastStore:
    """The state at one revision. It implements `Store`; every write raises StoreError, and nothing ever changes. What
    is not kept that long raises Expired."""

    def __init__(self, reader: HistoryReader, revision: int) -> None:
        self._reader = reader
        self.revision = revision
        self._lists: dict[tuple[str, int], list[KeyValue]] = {}
        """The last lists by prefix and revision: a list that is read page by page asks for each page."""

    @property
    def compacted(self) -> int:
        """The revision before the one that is shown: watches of it start here."""
        return self.revision - 1

    @property
    def failure(self) -> str | None:
        return None

    @property
    def unavailable(self) -> str | None:
        return None

    @property
    def limits(self) -> Limits:
        return Limits(0, 0)

    @property
    def shared(self) -> bool:
        return False

    @property
    def archive(self) -> Archive | None:
        return None

    async def sync(self) -> int:
        return self.revision

    async def wait_for_revision(self, revision: int) -> None:
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)

    async def get(self, key: str, revision: int = 0) -> KeyValue | None:
        self._check(revision)
        found = await self._reader.at(key, revision or self.revision)
        return _stored(found) if found is not None else None

    async def list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        self._check(revision)
        revision = revision or self.revision
        found = self._lists.pop((prefix, revision), None)
        if found is None:
            found = []
            async for page in self._reader.pages_at(prefix, revision):
                found += map(_stored, page)
        if limit:
            self._lists[prefix, revision] = found
            if len(self._lists) > _MAX_CACHED_LISTS:
                del self._lists[next(iter(self._lists))]
        first = bisect_left(found, start, key=_key_of) if start else 0
        total = len(found) - first
        items = found[first : first + limit if limit else None]
        return Page(items, revision, len(items) < total, total)

    def _check(self, revision: int) -> None:
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)

    async def txn(self, ops: Sequence[Op], cause: bytes | NotedCause = b"") -> tuple[int, Sequence[KeyValue | None]]:
        raise StoreError(_READ_ONLY)

    def watch(self, prefix: str, after: int, sink: Sink) -> _NoSubscription:
        return _NoSubscription()

    async def replay(self, prefix: str, after: int, limit: int) -> Replay:
        if after < self.compacted:
            raise Compacted(after, self.revision)
        return Replay([], max(after, self.revision))

    async def causes(self, after: int, limit: int = 0) -> Sequence[Cause]:
        return []

    async def changes_of(self, key: str, before: int = 0, limit: int = 0) -> Sequence[Event]:
        return []

    async def compact(self, revision: int) -> None:
        raise StoreError(_READ_ONLY)

    async def compact_if_first(self, revision: int) -> bool:
        return False

    def size(self) -> int:
        return 0

    async def close(self) -> None:
        pass


def _stored(version: Version) -> KeyValue:
    return KeyValue(version.key, version.value or b"", version.created, version.revision)


def _key_of(stored: KeyValue) -> str:
    return stored.key
