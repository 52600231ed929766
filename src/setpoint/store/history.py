"""The state now and every change since the last compaction, in memory.

The past is not kept as states but as the log of events: what a key was at revision R is the `before` of its first
event after R, and what it is now if there is no such event. The log is indexed by resource (the first two segments of a
key): a read of the past costs as much as has happened since to the resource that it concerns, whatever else happened.
The same KeyValue (and the same bytes) serves the state, the log and every subscriber.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter

from setpoint.store.interface import Cause, Compacted, Event, FutureRevision, KeyValue, Page, Replay
from setpoint.store.key_order import KeyOrder, prefix_end

_revision_of_event = attrgetter("revision")
_revision_of_cause = itemgetter(0)


_MOST_PASTS = 8


class _Past:
    """What keys were at a revision, where they have changed since."""

    __slots__ = ("known_to", "was")

    def __init__(self, revision: int) -> None:
        self.known_to = revision
        """`was` holds every key that has changed up to here."""
        self.was: dict[str, KeyValue | None] = {}


class History:
    __slots__ = ("_causes", "_index", "_keys", "_log", "_pasts", "compacted", "revision", "state")

    def __init__(self, base: Iterable[KeyValue] = (), compacted: int = 0) -> None:
        """`base` is the state as of the revision `compacted`."""
        self.state: dict[str, KeyValue] = {each.key: each for each in base}
        self.revision = compacted
        # Revisions up to this one are unknown, also while their events are still being dropped from the log.
        self.compacted = compacted
        self._keys = KeyOrder(self.state)  # the keys of `state`, always
        self._log: list[Event] = []  # complete after `compacted`, ordered by revision
        # The events of the log by `_resource_of` their keys, in the same order. No list is empty.
        self._index: dict[str, list[Event]] = {}
        self._causes: list[tuple[int, bytes]] = []  # same span as the log
        # What lists of the past were answered from, by prefix and revision; the one used last is the last.
        self._pasts: dict[tuple[str, int], _Past] = {}

    def fork(self) -> History:
        """The same past and present, from here on by itself. The two share every value: only the maps are copied."""
        other = History()
        other.state = self.state.copy()
        other.revision, other.compacted = self.revision, self.compacted
        other._keys = self._keys.copy()
        other._log, other._causes = self._log.copy(), self._causes.copy()
        other._index = {resource: events.copy() for resource, events in self._index.items()}
        return other

    def apply(self, events: Sequence[Event], cause: bytes) -> None:
        """One transaction becomes visible. Its revision is greater than any before."""
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
        self.revision = events[-1].revision
        if cause:
            self._causes.append((self.revision, cause))

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(self, key: str, revision: int = 0) -> KeyValue | None:
        if not self._is_past(revision):
            return self.state.get(key)
        events = self._index.get(_resource_of(key), ())
        for at in range(_place_after(events, revision), len(events)):
            if events[at].key == key:
                return events[at].before
        return self.state.get(key)

    def page(self, prefix: str, start: str, limit: int, revision: int) -> Page:
        first, end = max(prefix, start), prefix_end(prefix)
        if not self._is_past(revision):
            keys, total = self._keys.between(first, end, limit)
            return Page([*map(self.state.__getitem__, keys)], self.revision, len(keys) < total, total)

        was, state = self._changed_since(revision, prefix), self.state
        if first > prefix:
            was = {key: before for key, before in was.items() if key >= first}
        not_yet = len([key for key, before in was.items() if before is None and key in state])
        no_more = [key for key, before in was.items() if before is not None and key not in state]
        keys, total = self._keys.between(first, end, limit + not_yet if limit else 0)
        if no_more:
            keys = sorted(keys + no_more)
        as_were = [was[key] if key in was else state[key] for key in keys]
        items = [each for each in as_were if each is not None]
        total += len(no_more) - not_yet
        if limit:
            del items[limit:]
        return Page(items, revision, len(items) < total, total)

    def _changed_since(self, revision: int, prefix: str) -> dict[str, KeyValue | None]:
        """Return the keys under `prefix` that have changed since `revision`, each as it was then.

        The pages of one list ask for the same again and again: what is known is kept, and only the events since the
        page before are looked at."""
        past = self._pasts.pop((prefix, revision), None) or _Past(revision)
        self._pasts[prefix, revision] = past  # now the latest
        if len(self._pasts) > _MOST_PASTS:
            del self._pasts[next(iter(self._pasts))]
        events, only = self._indexed(prefix)
        for _, key, _, before in events[_place_after(events, past.known_to) :]:
            if (only or key.startswith(prefix)) and key not in past.was:
                past.was[key] = before
        past.known_to = self.revision
        return past.was

    def events(self, prefix: str, after: int) -> list[Event]:
        if after < self.compacted:
            raise Compacted(after, self.compacted + 1)
        if after >= self.revision:
            return []
        events, only = self._indexed(prefix)
        return _under(prefix, events[_place_after(events, after) :], only)

    def replay(self, prefix: str, after: int, limit: int) -> Replay:
        """Return the next events under `prefix`. It looks at about `limit` events: a transaction is never split."""
        if after < self.compacted:
            raise Compacted(after, self.compacted + 1)
        events, only = self._indexed(prefix)
        start = _place_after(events, after)
        end = start + limit
        while 0 < end < len(events) and events[end].revision == events[end - 1].revision:
            end += 1
        reached = events[end - 1].revision if end < len(events) else max(after, self.revision)
        return Replay(_under(prefix, events[start:end], only), reached)

    def causes(self, after: int, limit: int) -> list[Cause]:
        if after < self.compacted:
            raise Compacted(after, self.compacted + 1)
        place = bisect_right(self._causes, after, key=_revision_of_cause)
        return [Cause(*each) for each in self._causes[place : place + limit if limit else None]]

    def _is_past(self, revision: int) -> bool:
        """The present can always be read, whatever was compacted."""
        if revision == 0 or revision == self.revision:
            return False
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        if revision <= self.compacted:
            raise Compacted(revision, self.compacted + 1)
        return True

    def _indexed(self, prefix: str) -> tuple[Sequence[Event], bool]:
        """Return the shortest list that holds every event under `prefix`, and whether it holds no others."""
        if not prefix:
            return self._log, True
        resource = _resource_of(prefix)
        if prefix.count("/") >= 2:
            return self._index.get(resource, ()), resource == prefix
        # A prefix that is shorter than a resource. Keys of several resources come from the log, which has their order.
        found = [each for each in self._index if each.startswith(prefix) or each == resource]
        if len(found) > 1:
            return self._log, False
        return (self._index[found[0]], found[0].startswith(prefix)) if found else ((), True)

    # -- forgetting ---------------------------------------------------------------------------------------------------

    def compactable(self, revision: int) -> bool:
        """Whether compaction to `revision` has anything to do. Raises FutureRevision."""
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        return revision > self.compacted

    def oldest(self, most: int) -> Sequence[Event]:
        """The next events to drop, at most `most`; empty when everything compacted has been dropped."""
        return self._log[: min(most, _place_after(self._log, self.compacted))]

    def drop(self, count: int) -> None:
        """Drops the oldest events, which must be compacted, and the causes that go with them."""
        reached = self._log[count - 1].revision
        self._pasts = {key: past for key, past in self._pasts.items() if key[1] > self.compacted}
        for resource, its_count in Counter(_resource_of(event.key) for event in self._log[:count]).items():
            events = self._index[resource]
            del events[:its_count]
            if not events:
                del self._index[resource]
        del self._log[:count]
        del self._causes[: bisect_right(self._causes, reached, key=_revision_of_cause)]


def _resource_of(key: str) -> str:
    """Return the first two segments of a key with their slashes, or as many as it has before the last."""
    first = key.find("/") + 1
    return key[: key.find("/", first) + 1 or first]


def _place_after(events: Sequence[Event], revision: int) -> int:
    """Return the place of the first event after `revision`."""
    return bisect_right(events, revision, key=_revision_of_event)


def _under(prefix: str, events: Sequence[Event], only: bool) -> list[Event]:
    """Return the events of keys under `prefix`; `only`: all of them are."""
    return [*events] if only else [event for event in events if event.key.startswith(prefix)]
