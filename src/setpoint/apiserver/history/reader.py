"""Reads past versions of objects, and the causes of the writes that made them.

There are two horizons. The store's history in memory reaches back to its last compaction; what compaction has dropped
may be in an archive (`store/archive.py`). A reader does not notice where one ends and the other begins.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from setpoint.kinds.catalog import Resource
from setpoint.meta.cause import WriteCause, decode
from setpoint.meta.errors import BadRequest, Expired
from setpoint.store.interface import Archive, Compacted, Event, KeyValue, Store
from setpoint.store.interface import Version as Version

_SCANNED = 256
"""Number of events of one step that looks for the keys of writes."""
_LISTED = 1_000
"""Number of objects that are listed in one iteration of the event loop."""
_MAX_DELETING = 16
"""Number of versions before a deletion that are read to find the request for it."""
_ATTEMPTS = 5
"""Attempts of a read during which the store was compacted each time."""

_Result = TypeVar("_Result")


class Write(NamedTuple):
    """A transaction, with its cause and the keys that it changed."""

    revision: int
    cause: WriteCause | None
    """None if no cause is recorded."""
    keys: tuple[str, ...]


class HistoryReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def oldest(self) -> int:
        """The oldest revision whose state can be read."""
        archive = self._archive
        return min(self._first_in_memory, archive.oldest) if archive is not None else self._first_in_memory

    @property
    def _first_in_memory(self) -> int:
        """The oldest revision whose state can be read from memory."""
        return min(self._store.compacted + 1, self._store.revision)

    @property
    def newest(self) -> int:
        """The latest revision that is visible here."""
        return self._store.revision

    @property
    def _archive(self) -> Archive | None:
        """The archive, if it continues the history in memory without a gap."""
        archive = self._store.archive
        return archive if archive is not None and archive.newest >= max(self._store.compacted, 1) else None

    def keeps(self, revision: int) -> bool:
        """Return whether a copy of the whole state at this revision is kept, because it is marked."""
        archive = self._store.archive
        return archive is not None and archive.keeps(revision)

    @staticmethod
    def key_of(resource: Resource, namespace: str, name: str) -> str:
        """Return the key of an object in the store."""
        return resource.storage_prefix + (f"{namespace}/{name}" if resource.namespaced else name)

    # -- writes -------------------------------------------------------------------------------------------------------

    async def cause(self, revision: int) -> WriteCause | None:
        """Return the cause of a revision, or None if none is recorded. Raises Expired."""
        try:
            found = await self._store.causes(revision - 1, 1)
        except Compacted:
            if self._store.archive is None:
                raise self._expired(revision) from None
            past = await self._store.archive.transactions(revision - 1, 1)
            if past and past[0].revision == revision:
                return decode(past[0].cause) if past[0].cause else None
            if revision < self.oldest:
                raise self._expired(revision) from None
            return None
        return decode(found[0].cause) if found and found[0].revision == revision else None

    async def writes(self, after: int, limit: int) -> list[Write]:
        """Return the transactions with a revision greater than `after`, oldest first, at most `limit`.

        Fewer than `limit` means that there are no more. Raises Expired if transactions after `after` are no longer
        known: `oldest - 1` is the least value that can be asked for."""
        if after + 1 < self.oldest:
            raise self._expired(after + 1)
        found: list[Write] = []
        for _ in range(_ATTEMPTS):
            compacted = self._store.compacted
            if after < compacted and (archive := self._archive) is not None:
                for revision, cause, keys in await archive.transactions(after, limit - len(found)):
                    if revision <= compacted:
                        found.append(Write(revision, decode(cause) if cause else None, keys))
                if len(found) >= limit:
                    return found
                after = compacted
            try:
                return found + await self._recent_writes(after, limit - len(found))
            except Compacted:
                if found:
                    after = found[-1].revision
        raise self._expired(after + 1)

    async def _recent_writes(self, after: int, limit: int) -> list[Write]:
        keys: dict[int, list[str]] = {}
        reached = after
        while len(keys) <= limit and reached < self._store.revision:
            events, reached = await self._store.replay("", reached, min(limit + 1, _SCANNED))
            for event in events:
                keys.setdefault(event.revision, []).append(event.key)
            if len(keys) <= limit:
                await asyncio.sleep(0)
        causes = {each.revision: each.cause for each in await self._store.causes(after, limit)}
        return [
            Write(revision, decode(causes[revision]) if revision in causes else None, tuple(found))
            for revision, found in list(keys.items())[:limit]
        ]

    async def revision_at(self, at_ms: int) -> int:
        """Return the last revision that was written at or before a time in milliseconds since the epoch.

        Raises Expired if it is earlier than what is known."""
        low, high = self._store.compacted, self._store.revision  # the answer is the last revision of (low, high]
        found = 0
        while low < high:
            middle = (low + high) // 2
            try:
                # The first cause after the middle; revisions without one belong to the one before.
                causes = await self._store.causes(middle, 1)
            except Compacted:
                break  # compacted meanwhile: the archive has it
            if causes and causes[0].revision <= high and 0 < decode(causes[0].cause).at <= at_ms:
                low = found = causes[0].revision
            else:
                high = middle
        if not found and (archive := self._archive) is not None:
            found = await archive.revision_at(at_ms)
        if found < self.oldest:
            raise Expired(f"what was written at that time is not known; the oldest revision is {self.oldest}")
        return found

    async def time_of(self, revision: int) -> int:
        """Return when the state of a revision came about, in milliseconds since the epoch; 0 if it is not known."""
        until, step = revision, 1
        while until > (low := self._store.compacted):
            causes = await self._store.causes(max(low, until - step), step)
            known = [each for each in causes if each.revision <= until]
            if known:
                return decode(known[-1].cause).at
            until -= step
            step *= 2
        archive = self._store.archive
        return await archive.time_of(revision) if archive is not None else 0

    # -- versions -----------------------------------------------------------------------------------------------------

    async def versions(self, key: str, *, before: int = 0, limit: int = 0) -> list[Version]:
        """Return the versions of an object, newest first, at most `limit` (0: all).

        With `before`, only versions with a smaller revision are returned. The last version may be older than `oldest`:
        it is the one that was valid then."""
        changes = await self._store.changes_of(key, before, limit)
        compacted, archive = self._store.compacted, self._store.archive
        found = [_version_of(change) for change in changes]
        if limit and len(found) >= limit:
            return found
        base = changes[-1].before if changes else await self._base(key)
        older: list[Version] = []
        if archive is not None:
            end = min(before, compacted + 1) if before else compacted + 1
            older = [*await archive.versions(key, end, limit - len(found) if limit else 0)]
        if base is not None and (not before or base.mod_revision < before):
            if not older or older[0].revision < base.mod_revision:
                found.append(_existing(base))
        found += older
        return found[:limit] if limit else found

    async def _base(self, key: str) -> KeyValue | None:
        """Return the version of a key that was valid when the history in memory began."""
        if changes := await self._store.changes_of(key):
            return changes[-1].before
        return await self._store.get(key)

    async def deleted(self, prefix: str) -> list[Version]:
        """Return the deletions of the keys under a prefix that do not exist now, newest first."""
        found: dict[str, Version] = {}
        reached = self._store.compacted
        archive = self._archive
        if archive is not None and not archive.excludes(prefix):
            listed = await archive.list(prefix, reached)
            found = {key: each for key, each in listed.items() if each.value is None and each.revision}
        while reached < self._store.revision:
            try:
                events, reached = await self._store.replay(prefix, reached, _SCANNED)
            except Compacted:
                reached = self._store.compacted
                continue
            for event in events:
                if event.now is None:
                    found[event.key] = Version(event.key, event.revision, 0, None)
                else:
                    found.pop(event.key, None)
            await asyncio.sleep(0)
        return sorted(found.values(), key=lambda each: -each.revision)

    async def deletion_request(self, deleted: Version) -> Version | None:
        """Return the version that was written by the request for a deletion which another write completed; None if
        there is none, or it is not known."""
        found = None
        for version in await self.versions(deleted.key, before=deleted.revision, limit=_MAX_DELETING):
            if version.value is None or b'"deletionTimestamp":' not in version.value:
                return found
            found = version
        return None

    async def at(self, key: str, revision: int) -> Version | None:
        """Return the version of an object that was valid at a revision; None if it did not exist. Raises Expired."""

        async def in_memory(at: int) -> Version | None:
            found = await self._store.get(key, at)
            return _existing(found) if found is not None else None

        async def archived(archive: Archive, base: int) -> Version | None:
            if archive.excludes(key):
                raise self._not_kept(key)
            unchanged = await self._undone(archive, key, base)
            if key not in unchanged:
                unchanged[key] = await in_memory(base)
            found = await archive.get(key, revision)
            if found is None:
                return unchanged[key]
            return found if found.value is not None else None

        async def marked(archive: Archive) -> Version | None:
            if archive.excludes(key):
                raise self._not_kept(key)
            return next((each for each in await archive.marked(key, revision) if each.key == key), None)

        return await self._at(revision, in_memory, archived, marked)

    async def list_at(self, prefix: str, revision: int) -> list[Version]:
        """Return the objects under a prefix that existed at a revision, by key. Raises Expired."""
        found: list[Version] = []
        async for page in self.pages_at(prefix, revision):
            found += page
        return found

    async def pages_at(self, prefix: str, revision: int) -> AsyncIterator[list[Version]]:
        """Yield the objects under a prefix that existed at a revision, by key, in pages of about a thousand; other
        tasks run in between. Raises Expired."""
        self._check(revision)
        start = ""
        for _ in range(_ATTEMPTS):
            try:
                async for page in await self._source(prefix, revision, start):
                    if page:
                        yield page
                        start = page[-1].key + "\0"
                    await asyncio.sleep(0)
                return
            except Compacted:
                pass  # it was compacted meanwhile: the archive has the rest
        raise self._expired(revision)

    async def _source(self, prefix: str, revision: int, start: str) -> AsyncIterator[list[Version]]:
        """Return the pages from `start` on: from memory, from the archive, or from its copy of a marked revision.
        Raises Compacted, and so do pages from memory."""
        base = self._first_in_memory
        if revision >= base:
            return self._recent_pages(prefix, revision, start)
        archive = self._archive
        if archive is not None and revision >= archive.oldest:
            if archive.excludes(prefix):
                raise self._not_kept(prefix)
            undone = await self._undone(archive, prefix, base)
            # The archive is read last: it does not matter if it has more by then.
            unchanged: deque[list[Version]] = deque()
            async for page in self._recent_pages(prefix, base, start):
                unchanged.append(page)
                await asyncio.sleep(0)
            changed = await archive.list(prefix, revision)
            keys = [*changed]
            for key, before in undone.items():
                if key not in changed:
                    changed[key] = before or Version(key, 0, 0, None)
                    insort(keys, key)
            if revision >= archive.oldest:  # else it may have been dropped meanwhile
                del keys[: bisect_left(keys, start)]
                return _merged(unchanged, changed, keys)
        archive = self._store.archive
        if archive is None or not archive.keeps(revision):
            raise self._expired(revision)
        if archive.excludes(prefix):
            raise self._not_kept(prefix)
        copied = await archive.marked(prefix, revision)
        if not archive.keeps(revision):  # it was removed meanwhile
            raise self._expired(revision)
        return _in_pages(copied, start)

    async def _recent_pages(self, prefix: str, revision: int, start: str) -> AsyncIterator[list[Version]]:
        """Yield the objects in memory at a revision. Raises Compacted."""
        while True:
            page = await self._store.list(prefix, start=start, limit=_LISTED, revision=revision)
            yield [*map(_existing, page.items)]
            if not page.more:
                return
            start = page.items[-1].key + "\0"

    async def _at(
        self,
        revision: int,
        in_memory: Callable[[int], Awaitable[_Result]],
        archived: Callable[[Archive, int], Awaitable[_Result]],
        marked: Callable[[Archive], Awaitable[_Result]],
    ) -> _Result:
        """Read the state at a revision, from memory, from the archive, or from its copy of a marked revision.

        `base` is the first revision that can be read from memory. What has not changed in the archive, which has all
        changes before, was the same then. The archive is read after the memory: it does not matter if it has more."""
        self._check(revision)
        for _ in range(_ATTEMPTS):
            try:
                return await in_memory(revision)
            except Compacted:
                archive = self._archive
                if archive is None or revision < archive.oldest:
                    return await self._marked(revision, marked)
            try:
                found = await archived(archive, self._first_in_memory)
            except Compacted:
                continue  # it was compacted meanwhile
            if revision >= archive.oldest:  # else it may have been dropped meanwhile
                return found
        return await self._marked(revision, marked)

    async def _marked(self, revision: int, read: Callable[[Archive], Awaitable[_Result]]) -> _Result:
        archive = self._store.archive
        if archive is None or not archive.keeps(revision):
            raise self._expired(revision)
        found = await read(archive)
        if not archive.keeps(revision):  # it was removed meanwhile
            raise self._expired(revision)
        return found

    async def _undone(self, archive: Archive, prefix: str, base: int) -> dict[str, Version | None]:
        """Return what the changes of the revision `base` have replaced, if the archive does not have them."""
        if archive.newest >= base:
            return {}
        events, _ = await self._store.replay(prefix, base - 1, 1)
        return {
            event.key: _existing(event.before) if event.before is not None else None
            for event in events
            if event.revision == base
        }

    def _check(self, revision: int) -> None:
        if revision > self.newest:
            raise BadRequest(f"revision {revision} has not happened yet; the newest is {self.newest}")
        if revision < 1:
            raise self._expired(revision)

    def _expired(self, revision: int) -> Expired:
        return Expired(f"revision {revision} is no longer in the history; the oldest is {self.oldest}")

    def _not_kept(self, key: str) -> Expired:
        resource = "/".join(key.split("/")[:2])
        return Expired(f"{resource} is not kept in the history that long; the oldest is {self._first_in_memory}")


async def _merged(
    unchanged: deque[list[Version]], changed: dict[str, Version], keys: list[str]
) -> AsyncIterator[list[Version]]:
    """Yield the objects that existed: those in `unchanged` that are not in `changed`, whose sorted keys are `keys`, and
    those in `changed` that are not deletions. It consumes its arguments: to free them at once would take long."""

    def take(count: int) -> list[Version]:
        taken = keys[:count]
        del keys[:count]
        return [each for key in taken if (each := changed.pop(key)).value is not None]

    while unchanged:
        page = unchanged.popleft()
        kept = [each for each in page if each.key not in changed]
        while page and (count := bisect_right(keys, page[-1].key)):
            # There are more than those of the page if many were deleted later.
            count = min(count, _LISTED)
            split = bisect_right(kept, keys[count - 1], key=_key_of)
            yield sorted(kept[:split] + take(count))
            kept = kept[split:]
        yield kept
    while keys:
        yield take(_LISTED)


async def _in_pages(versions: Sequence[Version], start: str) -> AsyncIterator[list[Version]]:
    for first in range(bisect_left(versions, start, key=_key_of), len(versions), _LISTED):
        yield [*versions[first : first + _LISTED]]


def _key_of(version: Version) -> str:
    return version.key


def _existing(found: KeyValue) -> Version:
    return Version(found.key, found.mod_revision, found.create_revision, found.value)


def _version_of(change: Event) -> Version:
    now = change.now
    if now is None:
        return Version(change.key, change.revision, 0, None)
    return Version(change.key, change.revision, now.create_revision, now.value)
