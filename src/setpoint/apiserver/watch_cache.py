"""The watch cache: the current objects of one resource, and its watches.

The cache follows the store. Each change is decoded at most once and encoded once for each form that a watch has, and
all watches of that form send the same bytes. Reads are served from the cache, without a read of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from setpoint.apiserver.cache_entry import Entry, Expected, FieldsOf, entry_of, readable_entry_of
from setpoint.apiserver.corrupt_objects import corruption
from setpoint.apiserver.shared_parts import Siblings
from setpoint.meta.selectors import EVERYTHING, Selector
from setpoint.store.interface import Event, KeyValue, Store, Subscription
from setpoint.store.key_order import KeyOrder, prefix_end

_MAX_REPLAYED = 2_048
"""Maximum number of replayed changes that are shared by concurrent replays."""
_MAX_WRITTEN = 16_384
"""Maximum number of written objects that wait for `settle`; further ones do not share parts."""


class Change:
    """The change of one object, with its encoded watch events."""

    __slots__ = ("_deleted", "before", "frames", "key", "now", "revision")

    def __init__(self, key: str, revision: int, now: Entry | None, before: Entry | None) -> None:
        self.key = key
        self.revision = revision
        self.now = now
        self.before = before
        self._deleted: Entry | None = None
        self.frames: dict[tuple[str, str], bytes] = {}
        """Encoded events by (type, form); the first watch of a form adds it."""

    @property
    def deleted(self) -> Entry:
        """The last state of a deleted object, with the revision of its deletion."""
        if self._deleted is None:
            assert self.before is not None
            self._deleted = self.before.at_revision(self.revision)
        return self._deleted


class Watch:
    """One watch: its selection of objects, and the function that receives events. `deliver(type, entry, change)` must
    not block."""

    __slots__ = (
        "_all_fields",
        "_all_labels",
        "_selective",
        "decoded",
        "deliver",
        "fields",
        "fields_of",
        "finish",
        "labels",
        "name",
        "namespace",
        "streams",
    )

    def __init__(
        self,
        *,
        namespace: str,
        name: str,
        labels: Selector,
        fields: Selector,
        fields_of: FieldsOf,
        deliver: Callable[[str, Entry, Change], None],
        finish: Callable[[], None] = lambda: None,
        decoded: bool = False,
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.labels = labels
        self.fields = fields
        self.fields_of = fields_of
        self.deliver = deliver
        self.finish = finish
        """Called when the cache stops; there are no more events."""
        self.decoded = decoded or not (labels.empty and fields.empty)
        """Whether the watch needs decoded objects, and not only bytes."""
        self.streams = 1
        """Number of streams that receive the events."""
        self._all_labels, self._all_fields = labels.empty, fields.empty
        self._selective = not (labels.empty and fields.empty)

    @classmethod
    def everything(
        cls, deliver: Callable[[str, Entry, Change], None], *, namespace: str = "", decoded: bool = False
    ) -> Watch:
        """Return a watch of all objects of a resource, or of those in one namespace."""
        return cls(
            namespace=namespace,
            name="",
            labels=EVERYTHING,
            fields=EVERYTHING,
            fields_of=lambda _: {},
            deliver=deliver,
            decoded=decoded,
        )

    def without_selectors(self) -> Watch:
        """Return this watch without label and field selectors."""
        return self._like(labels=EVERYTHING, fields=EVERYTHING)

    def with_delivery(
        self, deliver: Callable[[str, Entry, Change], None], finish: Callable[[], None] | None = None
    ) -> Watch:
        """Return this watch with another receiver, and with another `finish` if one is given."""
        return self._like(deliver=deliver, finish=finish or self.finish)

    def _like(self, **changes: Any) -> Watch:
        """Return this watch with other arguments of the constructor."""
        names = ("namespace", "name", "labels", "fields", "fields_of", "deliver", "finish", "decoded")
        return Watch(**{name: getattr(self, name) for name in names} | changes)

    def selects(self, entry: Entry | None) -> bool:
        if entry is None:
            return False
        if not self._all_labels and not self.labels.matches(entry.obj["metadata"].get("labels") or {}):
            return False
        return self._all_fields or self.fields.matches(entry.fields(self.fields_of))

    def accept(self, change: Change) -> None:
        now, before = change.now, change.before
        if self._selective:
            if not self.selects(now):
                now = None
            if not self.selects(before):
                before = None
        if now is not None:
            self.deliver("MODIFIED" if before is not None else "ADDED", now, change)
        elif before is not None:
            self.deliver("DELETED", change.deleted, change)


class ResourceCache:
    """The objects under one prefix of the store. Keys below the prefix are `<namespace>/<name>` or `<name>`."""

    def __init__(
        self, prefix: str, store: Store, namespaced: bool, first_entry: Callable[[KeyValue], Entry] | None = None
    ) -> None:
        """`first_entry` makes the entries of the objects that exist at the start; by default they share nothing with
        other caches."""
        self.prefix = prefix
        self.namespaced = namespaced
        self.revision = 0
        """Revision of the store up to which the cache is complete."""
        self.changed = 0
        """Revision of the last change to this resource; data derived from its objects is stale when it differs."""
        self.first_revision = 0
        """Earliest revision at which a watch can start, because the resource did not exist before; 0 means any."""
        self._store = store
        self._siblings = Siblings()
        self._first_entry = first_entry or partial(entry_of, siblings=self._siblings)
        self._entries: dict[str, Entry] = {}
        self._keys = KeyOrder()
        self._watches: dict[str, dict[Watch, None]] = {}
        """Watches by namespace, in the order of their start, which makes the order of events deterministic."""
        self._subscription: Subscription | None = None
        self._expected: dict[str, Expected] = {}
        self._written: dict[str, None] = {}
        """The keys of objects that were written and not processed by `settle` since, in the order of their last
        writes."""
        self._replaying = 0
        self._replayed: dict[tuple[int, str], Change] = {}
        """The latest replayed changes by revision and key, shared while several watches replay."""
        self.stopped = False
        """Whether the cache has stopped to follow the store, and its content may be stale."""
        self.object_watches = 0
        """Number of watches that need decoded objects."""
        self.corrupt: dict[str, str] = {}
        """Why objects cannot be read, by key."""

    async def start(self, since: int = 0) -> None:
        page = await self._store.list(self.prefix)
        self._entries = {kv.key: self._first_entry(kv) for kv in page.items}
        for entry in self._entries.values():
            entry.release()
        self.corrupt = {kv.key: why for kv in page.items if (why := corruption(kv))}
        self._keys = KeyOrder(self._entries)
        self.revision = self.changed = page.revision
        self.first_revision = since
        self._subscription = self._store.watch(self.prefix, page.revision, self._on_events)

    async def retry_corrupt(self) -> None:
        """Read corrupt objects again; the keys to decrypt them may have been added."""
        for key in list(self.corrupt):
            kv = await self._store.get(key)
            if kv is not None and not corruption(kv):
                self._entries[key] = entry_of(kv)
                del self.corrupt[key]
                self.changed = max(self.changed, self.fresh_revision)

    def stop(self) -> None:
        self.stopped = True
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
        for watches in list(self._watches.values()):
            for watch in list(watches):
                watch.finish()

    # -- reads ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    @property
    def fresh_revision(self) -> int:
        """The revision that reads of the cache reflect.

        A store delivers a change in the same iteration of the event loop in which it becomes visible, so the cache
        misses nothing that is visible. Commits of other servers are visible after `Store.sync`."""
        return max(self.revision, self._store.revision)

    def scan(self, namespace: str = "") -> Iterator[Entry]:
        """Return the entries in the order of their keys."""
        below = self._below(namespace)
        return map(self._entries.__getitem__, self._keys.each(below, prefix_end(below)))

    def listed(self, namespace: str = "") -> list[Entry]:
        """Return the same as `scan` as a list; the hot path of LIST."""
        return self.page(namespace, 0)[0]

    def page(self, namespace: str, limit: int) -> tuple[list[Entry], int]:
        """Return the first entries of `scan`, at most `limit` (0 means all), and the number of all."""
        below = self._below(namespace)
        keys, total = self._keys.between(below, prefix_end(below), limit)
        return [*map(self._entries.__getitem__, keys)], total

    def _below(self, namespace: str) -> str:
        """Return the prefix of the keys in a namespace; an empty namespace means all."""
        return f"{self.prefix}{namespace}/" if namespace else self.prefix

    # -- writes -----------------------------------------------------------------------------------------------------

    def expect(self, key: str, expected: Expected) -> None:
        """Announce a write, so that its entry need not be decoded."""
        self._expected[key] = expected

    def drop_expected(self, key: str, value: bytes) -> None:
        expected = self._expected.get(key)
        if expected is not None and expected.value is value:
            del self._expected[key]

    # -- memory -----------------------------------------------------------------------------------------------------

    def settle(self, until: int, limit: int) -> bool:
        """Reduce the memory of at most `limit` objects that were not written after the revision `until`: let them share
        equal parts, and release their bytes. Return whether none is left."""
        for _ in range(limit):
            key = next(iter(self._written), None)
            if key is None:
                return True
            entry = self._entries.get(key)
            if entry is not None:
                if entry.revision > until:
                    return True
                entry.share_parts(self._siblings)
                entry.release()
            del self._written[key]
        return False

    def release(self, start: str, limit: int) -> str:
        """Release the bytes of `limit` objects that were read, from the key `start` on; return the key with which to
        continue, or "" if none is left."""
        keys, total = self._keys.between(max(start, self.prefix), None, limit)
        for key in keys:
            self._entries[key].release()
        return keys[-1] + "\0" if len(keys) < total else ""

    # -- watches --------------------------------------------------------------------------------------------------

    def add(self, watch: Watch) -> None:
        self.object_watches += watch.decoded
        self._watches.setdefault(watch.namespace, {})[watch] = None

    def remove(self, watch: Watch) -> None:
        watches = self._watches.get(watch.namespace)
        if watches is not None and watch in watches:
            self.object_watches -= watch.decoded
            del watches[watch]
            if not watches:
                del self._watches[watch.namespace]

    @property
    def watch_count(self) -> int:
        """The number of streams and other receivers of changes."""
        return sum(watch.streams for watches in self._watches.values() for watch in watches)

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Share replayed changes among the watches that are in such a block concurrently. After an outage, hundreds
        resume from about the same revision."""
        self._replaying += 1
        try:
            yield
        finally:
            self._replaying -= 1
            if not self._replaying:
                self._replayed.clear()

    async def changes(self, watch: Watch, after: int, limit: int) -> tuple[list[Change], int]:
        """Examine about `limit` changes after revision `after`. Return those that concern `watch`, and the revision up
        to which they are complete. Raises Compacted."""
        events, reached = await self._store.replay(self._below(watch.namespace), after, limit)
        return [self._replayed_change(event) for event in events if self.concerns(watch, event.key)], reached

    def _replayed_change(self, event: Event) -> Change:
        known, key = self._replayed, (event.revision, event.key)
        change = known.get(key)
        if change is None:
            change = _change(event)
            if self._replaying > 1:
                if len(known) >= _MAX_REPLAYED:
                    del known[next(iter(known))]
                known[key] = change
        return change

    def concerns(self, watch: Watch, key: str) -> bool:
        """Return whether the key has the namespace and name of the watch."""
        rest = key[len(self.prefix) :]
        if watch.namespace and not rest.startswith(watch.namespace + "/"):
            return False
        return not watch.name or rest.endswith("/" + watch.name) or rest == watch.name

    def _on_events(self, events: Sequence[Event], revision: int) -> None:
        for event in events:
            before = self._entries.get(event.key)
            now = None
            if event.now is not None:
                now = readable_entry_of(event.now)
                expected = self._expected.get(event.key)
                if expected is not None:
                    now.adopt(expected)
                self._written.pop(event.key, None)
                if len(self._written) < _MAX_WRITTEN:
                    self._written[event.key] = None
                if before is None:
                    self._keys.add(event.key)
                self._entries[event.key] = now
            elif before is not None:
                del self._entries[event.key]
                self._keys.remove(event.key)
                if self.corrupt.pop(event.key, None) is not None:
                    before = None  # no watch has ever received it
            self.revision = self.changed = event.revision
            if self._watches:
                self._dispatch(Change(event.key, event.revision, now, before))
        self.revision = max(self.revision, revision)

    def _dispatch(self, change: Change) -> None:
        rest = change.key[len(self.prefix) :]
        namespace, _, name = rest.rpartition("/")
        for watched in ("", namespace) if namespace else ("",):
            watches = self._watches.get(watched)
            if watches:
                for watch in tuple(watches):
                    if not watch.name or watch.name == name:
                        watch.accept(change)


def _change(event: Event) -> Change:
    return Change(
        event.key,
        event.revision,
        entry_of(event.now) if event.now is not None else None,
        entry_of(event.before) if event.before is not None else None,
    )
