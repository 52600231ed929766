"""The current state and every change since the last compaction, in memory.

The past is stored as a log of events, not as states: the value of a key at revision R is the `before` of its first
event after R, or its current value if there is no such event. The log is indexed by resource (the first two segments of
a key): the cost of a read of the past depends on the number of later changes to that resource only. The state, the log
and every subscriber share the same KeyValue (and the same bytes), so that `pack` compresses a value for all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, takewhile
from operator import attrgetter

from setpoint.store.cause_log import CauseLog
from setpoint.store.interface import Cause, Compacted, Event, FutureRevision, KeyValue, NotedCause, Page, Replay
from setpoint.store.key_order import KeyOrder, prefix_end
from setpoint.store.packed_values import Packer

_revision_of_event = attrgetter("revision")


_MAX_CHANGES_SINCE = 8


class _ChangesSince:
    """The values that keys had at a revision, for the keys that have changed since."""

    __slots__ = ("created", "deleted", "scanned_through", "values")

    def __init__(self, revision: int) -> None:
        self.scanned_through = revision
        """Revision up to which the log was scanned: `values` holds every key that changed until then."""
        self.values: dict[str, KeyValue | None] = {}
        self.created = KeyOrder()
        """The keys that exist now and did not exist then."""
        self.deleted = KeyOrder()
        """The keys that existed then and do not exist now."""

    def scan(self, events: Iterable[Event]) -> None:
        """Add events that follow those scanned before."""
        values = self.values
        if not values:
            now = {}
            for event in events:
                values.setdefault(event.key, event.before)
                now[event.key] = event.now is not None
            self.created = KeyOrder(key for key, before in values.items() if before is None and now[key])
            self.deleted = KeyOrder(key for key, before in values.items() if before is not None and not now[key])
            return
        for _, key, now_value, before in events:
            then = values.setdefault(key, before)
            if (before is None) != (now_value is None):
                different = self.created if then is None else self.deleted
                if (then is None) == (now_value is None):
                    different.remove(key)
                else:
                    different.add(key)


class _KeyIndex:
    """The revisions of one resource's events by key, built when a key is first asked for and extended by later
    questions."""

    __slots__ = ("revisions", "scanned_through")

    def __init__(self, compacted: int) -> None:
        self.scanned_through = compacted
        """Revision up to which the log was scanned: `revisions` holds every event of the resource until then."""
        self.revisions: dict[str, list[int]] = {}


class History:
    __slots__ = (
        "_causes",
        "_changes_since",
        "_index",
        "_key_indexes",
        "_keys",
        "_last_change",
        "_log",
        "_packed_ahead",
        "_packed_through",
        "_packer",
        "_unpacked_base",
        "compacted",
        "revision",
        "state",
    )

    def __init__(self, base: Iterable[KeyValue] = (), compacted: int = 0) -> None:
        """Start from `base`, the state as of the revision `compacted`."""
        self.state: dict[str, KeyValue] = {each.key: each for each in base}
        self.revision = compacted
        self._last_change = compacted  # the state is the same at every revision from this one on
        # Revisions up to this one cannot be read, even while their events are still being dropped from the log.
        self.compacted = compacted
        self._keys = KeyOrder(self.state)  # always exactly the keys of `state`
        self._log: list[Event] = []  # complete after `compacted`, ordered by revision
        # The events of the log, by the `_resource_of` their keys and in the same order. No list is empty.
        self._index: dict[str, list[Event]] = {}
        self._causes = CauseLog()  # covers the range of revisions of the log
        # Caches the values for lists of the past, by prefix and revision, in LRU order.
        self._changes_since: dict[tuple[str, int], _ChangesSince] = {}
        # By resource; only for the resources of which single keys were asked for. Writes do not update it.
        self._key_indexes: dict[str, _KeyIndex] = {}
        self._packer = Packer()
        # The values are packed that were written up to this revision, and by so many events of the one after it,
        # except for these values of the base; the last one is next.
        self._packed_through, self._packed_ahead = compacted, 0
        self._unpacked_base = [*self.state.values()]

    def fork(self) -> History:
        """Return an independent copy. The two share every value: only the containers are copied."""
        other = History()
        other.state = self.state.copy()
        other.revision, other.compacted, other._last_change = self.revision, self.compacted, self._last_change
        other._keys = self._keys.copy()
        other._log, other._causes = self._log.copy(), self._causes.fork()
        other._index = {resource: events.copy() for resource, events in self._index.items()}
        other._packer = self._packer.copy()
        other._packed_through, other._packed_ahead = self._packed_through, self._packed_ahead
        other._unpacked_base = self._unpacked_base.copy()
        return other

    def apply(self, events: Sequence[Event], cause: bytes | NotedCause) -> None:
        """Make one transaction visible. Its revision must be greater than the current one."""
        state, index = self.state, self._index
        for event in events:
            key = event.key
            if event.now is None:
                del state[key]
                self._keys.remove(key)
            else:
                if event.before is None:
                    self._keys.add(key)
                state[key] = event.now
            resource = _resource_of(key)
            if resource in index:
                index[resource].append(event)
            else:
                index[resource] = [event]
        self._log += events
        self.revision = self._last_change = events[-1].revision
        if cause:
            self._causes.append(self.revision, cause)

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(self, key: str, revision: int = 0) -> KeyValue | None:
        if not self._is_historical(revision):
            return self.state.get(key)
        events = self._index.get(_resource_of(key), ())
        for index in range(_index_after(events, revision), len(events)):
            if events[index].key == key:
                return events[index].before
        return self.state.get(key)

    def page(self, prefix: str, start: str, limit: int, revision: int) -> Page:
        first, end = max(prefix, start), prefix_end(prefix)
        if not self._is_historical(revision):
            keys, total = self._keys.between(first, end, limit)
            return Page([*map(self.state.__getitem__, keys)], revision or self.revision, len(keys) < total, total)

        changes, state = self._scanned(revision, prefix), self.state
        (_, present), (_, created), (_, deleted) = (
            each.between(first, end, 1) for each in (self._keys, changes.created, changes.deleted)
        )
        total = present - created + deleted
        values, begin = changes.values, first
        items: list[KeyValue] = []
        while True:
            keys, left = self._keys.between(begin, end, limit)
            following = keys[-1] + "\0" if len(keys) < left else ""
            if deleted:
                # Of the deleted keys too, the first ones are enough.
                keys = sorted(keys + changes.deleted.between(begin, following or end, limit)[0])
            entries = (values[key] if key in values else state[key] for key in keys)
            items += [each for each in entries if each is not None]
            if not following or len(items) >= limit:
                break
            begin = following
        if limit:
            del items[limit:]
        return Page(items, revision, len(items) < total, total)

    def prepare_page(self, prefix: str, revision: int, limit: int) -> bool:
        """Scan about `limit` events for pages at `revision`; return whether nothing is left to scan."""
        if not self._is_historical(revision):
            return True
        return self._scanned(revision, prefix, limit).scanned_through == self.revision

    def _scanned(self, revision: int, prefix: str, limit: int = 0) -> _ChangesSince:
        """Return the changes since `revision` of the keys under `prefix`, after scanning about `limit` events (0: all).

        The pages of one list request the same changes: they are cached, and only events after the previous page are
        scanned."""
        changes = self._changes_since.pop((prefix, revision), None) or _ChangesSince(revision)
        self._changes_since[prefix, revision] = changes  # most recently used
        if len(self._changes_since) > _MAX_CHANGES_SINCE:
            del self._changes_since[next(iter(self._changes_since))]
        events, exclusive = self._indexed(prefix)
        start = _index_after(events, changes.scanned_through)
        end = _whole_transactions(events, start, limit) if limit else len(events)
        if start < end:
            changes.scan(_with_prefix(prefix, events[start:end], exclusive))
        changes.scanned_through = events[end - 1].revision if end < len(events) else self.revision
        return changes

    def events(self, prefix: str, after: int) -> list[Event]:
        if after < self.compacted:
            raise Compacted(after, self.compacted + 1)
        if after >= self.revision:
            return []
        events, exclusive = self._indexed(prefix)
        return [*_with_prefix(prefix, events[_index_after(events, after) :], exclusive)]

    def replay(self, prefix: str, after: int, limit: int) -> Replay:
        """Return the next events under `prefix`, after scanning about `limit` events. It never splits a transaction."""
        if after < self.compacted:
            raise Compacted(after, self.compacted + 1)
        events, exclusive = self._indexed(prefix)
        start = _index_after(events, after)
        end = _whole_transactions(events, start, limit)
        reached = events[end - 1].revision if end < len(events) else max(after, self.revision)
        return Replay(_with_prefix(prefix, events[start:end], exclusive), reached)

    def causes(self, after: int, limit: int) -> list[Cause]:
        if after < self.compacted:
            raise Compacted(after, self.compacted + 1)
        return [*islice(self._causes.after(after), limit or None)]

    def index_key(self, key: str, limit: int) -> bool:
        """Prepare `changes_of` for the key by scanning at most about `limit` events; return whether it is complete."""
        resource = _resource_of(key)
        events = self._index.get(resource, [])
        index = self._key_indexes.get(resource)
        if index is None:
            index = self._key_indexes[resource] = _KeyIndex(self.compacted)
        start = _index_after(events, index.scanned_through)
        end = _whole_transactions(events, start, limit)
        by_key = index.revisions
        for event in events[start:end]:
            if event.key in by_key:
                by_key[event.key].append(event.revision)
            else:
                by_key[event.key] = [event.revision]
        if end < len(events):
            index.scanned_through = events[end - 1].revision
            return False
        index.scanned_through = self.revision
        return True

    def changes_of(self, key: str, before: int, limit: int) -> list[Event]:
        """Return the events of an indexed key, newest first."""
        resource = _resource_of(key)
        index = self._key_indexes.get(resource)
        revisions = index.revisions.get(key, []) if index is not None else []
        start = bisect_right(revisions, self.compacted)
        end = bisect_right(revisions, before - 1) if before else len(revisions)
        if limit:
            start = max(start, end - limit)
        if start >= end:
            return []
        events = self._index[resource]
        return [_find(events, each, key) for each in reversed(revisions[start:end])]

    def _is_historical(self, revision: int) -> bool:
        """Return whether the state at `revision` is another than the current one, which is always readable. Raises
        StoreError if unreadable."""
        if revision == 0:
            return False
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        if revision >= self._last_change:
            return False
        if revision <= self.compacted:
            raise Compacted(revision, self.compacted + 1)
        return True

    def _indexed(self, prefix: str) -> tuple[Sequence[Event], bool]:
        """Return the shortest list that contains every event under `prefix`, and whether it contains no others."""
        if not prefix:
            return self._log, True
        resource = _resource_of(prefix)
        if prefix.count("/") >= 2:
            return self._index.get(resource, ()), resource == prefix
        # The prefix is shorter than a resource. Events of several resources come from the log, which has them in order.
        found = [each for each in self._index if each.startswith(prefix) or each == resource]
        if len(found) > 1:
            return self._log, False
        return (self._index[found[0]], found[0].startswith(prefix)) if found else ((), True)

    def transactions(self, after: int, limit: int) -> tuple[list[Event], list[Cause], int]:
        """Return about `limit` events after `after`, with their causes and the revision up to which they are complete.

        Unlike `replay` it returns events that are compacted and have not been dropped yet."""
        start = _index_after(self._log, after)
        events = self._log[start : _whole_transactions(self._log, start, limit)]
        if not events or start + len(events) >= len(self._log):
            reached = max(after, self.revision)
        else:
            reached = events[-1].revision
        causes = [*takewhile(lambda each: each.revision <= reached, self._causes.after(after))]
        return events, causes, reached

    # -- packing ------------------------------------------------------------------------------------------------------

    @property
    def packed_size(self) -> int:
        """Bytes of memory that compression has saved so far, including those of values that were dropped since."""
        return self._packer.saved

    def pack(self, until: int, limit: int) -> bool:
        """Compress at most `limit` further values that were written up to the revision `until`, and older causes;
        return whether no value is left.

        No read returns anything else afterwards; one of a compressed value takes a few microseconds longer."""
        self._causes.pack(limit)
        for _ in range(min(limit, len(self._unpacked_base))):
            entry = self._unpacked_base.pop()
            self._packer.pack(_resource_of(entry.key), entry)
            limit -= 1
        log = self._log
        until = max(until, self._packed_through)
        last = _index_after(log, until)
        start = min(_index_after(log, self._packed_through) + self._packed_ahead, last)
        end = min(start + limit, last)
        for event in log[start:end]:
            if event.now is not None:
                self._packer.pack(_resource_of(event.key), event.now)
        self._packed_through = until if end == last else log[end].revision - 1
        self._packed_ahead = end - _index_after(log, self._packed_through)
        return end == last and not self._unpacked_base

    # -- compaction ---------------------------------------------------------------------------------------------------

    def compactable(self, revision: int) -> bool:
        """Return whether compaction to `revision` has anything to do. Raises FutureRevision."""
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        return revision > self.compacted

    def compacted_events(self, limit: int) -> Sequence[Event]:
        """Return the next events to drop, at most `limit`; empty when everything compacted has been dropped."""
        return self._log[: min(limit, _index_after(self._log, self.compacted))]

    def drop(self, count: int) -> None:
        """Drop the oldest `count` events, which must be compacted, and their causes."""
        reached = self._log[count - 1].revision
        self._changes_since = {key: changes for key, changes in self._changes_since.items() if key[1] > self.compacted}
        for resource, event_count in Counter(_resource_of(event.key) for event in self._log[:count]).items():
            events = self._index[resource]
            if (index := self._key_indexes.get(resource)) is not None:
                _drop_until(index.revisions, {event.key for event in events[:event_count]}, reached)
            del events[:event_count]
            if not events:
                del self._index[resource]
        del self._log[:count]
        self._causes.drop(reached)


def _resource_of(key: str) -> str:
    """Return the first two segments of a key with their slashes, or fewer if the key has no more slashes."""
    first = key.find("/") + 1
    return key[: key.find("/", first) + 1 or first]


def _index_after(events: Sequence[Event], revision: int) -> int:
    """Return the index of the first event after `revision`."""
    return bisect_right(events, revision, key=_revision_of_event)


def _find(events: Sequence[Event], revision: int, key: str) -> Event:
    """Return the event of a key at a revision, which must be among the events."""
    place = _index_after(events, revision - 1)
    while events[place].key != key:
        place += 1
    return events[place]


def _whole_transactions(events: Sequence[Event], start: int, limit: int) -> int:
    """Return the index after about `limit` events from `start` on, so that no transaction is split."""
    end = start + limit
    while 0 < end < len(events) and events[end].revision == events[end - 1].revision:
        end += 1
    return end


def _drop_until(by_key: dict[str, list[int]], keys: Iterable[str], revision: int) -> None:
    """Drop the events of these keys up to `revision`, and the keys that have no others."""
    for key in keys:
        if key in by_key:
            del by_key[key][: bisect_right(by_key[key], revision)]
            if not by_key[key]:
                del by_key[key]


def _with_prefix(prefix: str, events: Sequence[Event], exclusive: bool) -> Sequence[Event]:
    """Return the events of keys under `prefix`; `exclusive` says that all events are."""
    return events if exclusive else [event for event in events if event.key.startswith(prefix)]
