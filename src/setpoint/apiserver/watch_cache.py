"""Every object of one resource as it is now, and everyone who watches it.

The cache follows the store: each change arrives once, is decoded at most once, is encoded once for each form that some
watcher asked for, and those bytes go to all of them. Reads are served from here without touching the store.

Entries are shared by all readers. Nobody changes `Entry.obj`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import orjson

from setpoint.apiserver.corrupt import CorruptObject, corruption
from setpoint.apiserver.repairs import EVENTS, repaired_event
from setpoint.meta.selectors import EVERYTHING, Selector
from setpoint.store.interface import Event, KeyValue, Store, Subscription
from setpoint.store.key_order import KeyOrder, prefix_end

Obj = dict[str, Any]
FieldsOf = Callable[["Entry"], dict[str, str]]

_VERSION = b'"resourceVersion":"'
_MOST_REPLAYED = 2_048
"""Changes of the past that are kept for the watches that read it at the same time."""


class Entry:
    """An object at one revision."""

    __slots__ = ("_fields", "_obj", "derived", "key", "revision", "value", "whole")

    def __init__(self, key: str, value: bytes, revision: int) -> None:
        self.key = key
        self.value = value
        self.revision = revision
        self._obj: Obj | None = None
        self._fields: tuple[FieldsOf, dict[str, str]] | None = None
        """As one version of the kind names them."""
        self.derived: dict[str, Any] | None = None
        """What `remembered` keeps, by name."""
        self.whole: Obj | None = None
        """`obj` with kind and apiVersion, once somebody has asked for it; its parts are those of `obj`."""

    @property
    def obj(self) -> Obj:
        """Decoded on first use, shared by all, never to be changed."""
        if self._obj is None:
            self._obj = orjson.loads(self.value)
        return self._obj

    def take(self, expected: Expected) -> None:
        if expected.is_stored_as(self):
            if expected.shares:
                self._obj = expected.decoded(self)
            if expected.final_as:
                self.remembered(expected.final_as, lambda entry: entry.value)

    def remembered(self, key: str, make: Callable[[Entry], Any]) -> Any:
        """What `make` derives from this entry, made once (another version, a table row)."""
        if self.derived is None:
            self.derived = {}
        if key not in self.derived:
            self.derived[key] = make(self)
        return self.derived[key]

    def knows(self, key: str) -> bool:
        """Whether that has been derived already."""
        return self.derived is not None and key in self.derived

    def fields(self, fields_of: FieldsOf) -> dict[str, str]:
        known = self._fields
        if known is None or known[0] != fields_of:
            known = self._fields = (fields_of, fields_of(self))
        return known[1]

    def restamped(self, revision: int) -> Entry:
        """The same object with another resourceVersion: what a DELETED event carries."""
        start = self.value.index(_VERSION) + len(_VERSION)
        end = self.value.index(b'"', start)
        return Entry(self.key, b"%b%d%b" % (self.value[:start], revision, self.value[end:]), revision)


class CorruptEntry(Entry):
    """One that is there and cannot be read. Whoever tries hears why, as an ApiError."""

    __slots__ = ("why",)

    def __init__(self, key: str, revision: int, why: str) -> None:
        self.key = key
        self.revision = revision
        self.why = why

    @property
    def value(self) -> bytes:  # type: ignore[override]
        raise CorruptObject.at(self.key, self.why)

    @property
    def obj(self) -> Obj:
        raise CorruptObject.at(self.key, self.why)


class Expected(NamedTuple):
    """An object on its way to the store, decoded, without a revision; and how it is encoded, with a place for it."""

    form: Obj
    value: bytes
    stamp: int
    shares: bool = True
    """Nobody changes `form` any more: it may be what readers get."""
    final_as: str = ""
    """The name under which an entry remembers these bytes as they are sent, if they need no second look."""

    def is_stored_as(self, entry: Entry) -> bool:
        stamp, stored = self.stamp, entry.value
        rest = stamp + len(str(entry.revision))
        return stored[:stamp] == self.value[:stamp] and stored[rest:] == self.value[stamp:]

    def decoded(self, entry: Entry) -> Obj:
        """What the entry decodes to."""
        meta: Obj = {}
        for name, value in self.form["metadata"].items():
            meta[name] = value
            if name == "uid":
                meta["resourceVersion"] = str(entry.revision)
        return {**self.form, "metadata": meta}


class Change:
    """One object's change, with the frames already made of it."""

    __slots__ = ("_gone", "before", "frames", "key", "now", "revision")

    def __init__(self, key: str, revision: int, now: Entry | None, before: Entry | None) -> None:
        self.key = key
        self.revision = revision
        self.now = now
        self.before = before
        self._gone: Entry | None = None
        self.frames: dict[tuple[str, str], bytes] = {}
        """Encoded event by (type, form); filled by whoever encodes first."""

    @property
    def gone(self) -> Entry:
        """The last state, stamped with the revision of its going."""
        if self._gone is None:
            assert self.before is not None
            self._gone = self.before.restamped(self.revision)
        return self._gone


class Watch:
    """One watcher's view: which objects, and where to tell it. `deliver(type, entry, change)` must not block."""

    __slots__ = (
        "_all_fields", "_all_labels", "_selective", "decoded", "deliver", "fields", "fields_of", "finish", "labels",
        "name", "namespace",
    )  # fmt: skip

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
        """Called when the resource itself goes away: no more events will come."""
        self.decoded = decoded or not (labels.empty and fields.empty)
        """It looks at objects, not at bytes alone."""
        self._all_labels, self._all_fields = labels.empty, fields.empty
        self._selective = not (labels.empty and fields.empty)

    def taking_all(self) -> Watch:
        """The same, whatever labels and fields are."""
        return self._like(EVERYTHING, EVERYTHING, self.deliver)

    def choosing(self, deliver: Callable[[str, Entry, Change], None]) -> Watch:
        """The same, telling somebody else."""
        return self._like(self.labels, self.fields, deliver)

    def _like(self, labels: Selector, fields: Selector, deliver: Callable[[str, Entry, Change], None]) -> Watch:
        return Watch(
            namespace=self.namespace, name=self.name, labels=labels, fields=fields, fields_of=self.fields_of,
            deliver=deliver, finish=self.finish, decoded=self.decoded,
        )  # fmt: skip

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
            self.deliver("DELETED", change.gone, change)


class ResourceCache:
    """All objects under one prefix of the store. Keys below the prefix are `<namespace>/<name>` or `<name>`."""

    def __init__(self, prefix: str, store: Store, namespaced: bool) -> None:
        self.prefix = prefix
        self.namespaced = namespaced
        self.revision = 0
        """Everything up to this revision of the store is in here."""
        self.changed = 0
        """Revision of the last change to this resource; what is derived from its objects is stale when this moves."""
        self.since = 0
        """Watches cannot begin before this revision: the resource was not there."""
        self._store = store
        self._entries: dict[str, Entry] = {}
        self._keys = KeyOrder()
        self._watches: dict[str, dict[Watch, None]] = {}
        """By namespace, and in the order in which they came: whoever repeats a run finds them told in the same."""
        self._subscription: Subscription | None = None
        self._expected: dict[str, Expected] = {}
        self._replaying = 0
        self._replayed: dict[tuple[int, str], Change] = {}
        """Changes of the past by revision and key, while several watches read it; the latest of them."""
        self.ended = False
        """It follows the store no more: what is in here is the past."""
        self.object_watches = 0
        """How many of the watches look at decoded objects."""
        self.corrupt: dict[str, str] = {}
        """The keys of what cannot be read, and why."""

    async def start(self, since: int = 0) -> None:
        page = await self._store.list(self.prefix)
        self._entries = {kv.key: entry_of(kv) for kv in page.items}
        self.corrupt = {kv.key: why for kv in page.items if (why := corruption(kv))}
        self._keys = KeyOrder(self._entries)
        self.revision = self.changed = page.revision
        self.since = since
        self._subscription = self._store.watch(self.prefix, page.revision, self._on_events)

    async def read_again(self) -> None:
        """Those that could not be read: perhaps their keys have been found."""
        for key in list(self.corrupt):
            kv = await self._store.get(key)
            if kv is not None and not corruption(kv):
                self._entries[key] = entry_of(kv)
                del self.corrupt[key]
                self.changed = max(self.changed, self.fresh)

    def stop(self) -> None:
        self.ended = True
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
    def fresh(self) -> int:
        """The revision that reads from here are as new as. A store delivers what becomes visible in the same turn of
        the event loop, so nothing visible in it is missing here. What others have committed is visible after `sync`."""
        return max(self.revision, self._store.revision)

    def scan(self, namespace: str = "") -> Iterator[Entry]:
        """In key order."""
        below, entries = self._below(namespace), self._entries
        return (entries[key] for key in self._keys.each(below, prefix_end(below)))

    def values(self, namespace: str = "") -> list[bytes]:
        """The bytes of all objects, in key order: the hot path of LIST."""
        below, entries = self._below(namespace), self._entries
        return [entries[key].value for key in self._keys.between(below, prefix_end(below))[0]]

    def _below(self, namespace: str) -> str:
        """What the keys of a namespace have in common; empty: those of all."""
        return f"{self.prefix}{namespace}/" if namespace else self.prefix

    # -- writes -----------------------------------------------------------------------------------------------------

    def expect(self, key: str, expected: Expected) -> None:
        """This is about to be stored; when it arrives it needs no decoding."""
        self._expected[key] = expected

    def expect_no_more(self, key: str, value: bytes) -> None:
        expected = self._expected.get(key)
        if expected is not None and expected.value is value:
            del self._expected[key]

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
        return sum(len(watches) for watches in self._watches.values())

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Changes of the past are shared by the watches that are in such a block at the same time: after an outage
        hundreds resume from about the same revision."""
        self._replaying += 1
        try:
            yield
        finally:
            self._replaying -= 1
            if not self._replaying:
                self._replayed.clear()

    async def changes(self, watch: Watch, after: int, limit: int) -> tuple[list[Change], int]:
        """Return what concerns `watch` of about `limit` changes after revision `after`, and the revision up to which
        that is complete. Raises Compacted."""
        events, reached = await self._store.replay(self._below(watch.namespace), after, limit)
        return [self._replayed_change(event) for event in events if self.concerns(watch, event.key)], reached

    def _replayed_change(self, event: Event) -> Change:
        known, key = self._replayed, (event.revision, event.key)
        change = known.get(key)
        if change is None:
            change = _change(event)
            if self._replaying > 1:
                if len(known) >= _MOST_REPLAYED:
                    del known[next(iter(known))]
                known[key] = change
        return change

    def concerns(self, watch: Watch, key: str) -> bool:
        """Whether the key is in the watch's namespace and under its name."""
        rest = key[len(self.prefix) :]
        if watch.namespace and not rest.startswith(watch.namespace + "/"):
            return False
        return not watch.name or rest.endswith("/" + watch.name) or rest == watch.name

    def _on_events(self, events: Sequence[Event], revision: int) -> None:
        for event in events:
            before = self._entries.get(event.key)
            now = None
            if event.now is not None:
                now = _entry(event.now)
                expected = self._expected.get(event.key)
                if expected is not None:
                    now.take(expected)
                if before is None:
                    self._keys.add(event.key)
                self._entries[event.key] = now
            elif before is not None:
                del self._entries[event.key]
                self._keys.remove(event.key)
                if self.corrupt.pop(event.key, None) is not None:
                    before = None  # nobody has ever been told of it
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


def _entry(kv: KeyValue) -> Entry:
    value = repaired_event(kv.value) if kv.key.startswith(EVENTS) else kv.value
    return Entry(kv.key, value, kv.mod_revision)


def entry_of(kv: KeyValue) -> Entry:
    """The same for what was there before this server: it may not be readable."""
    why = corruption(kv)
    return CorruptEntry(kv.key, kv.mod_revision, why) if why else _entry(kv)


def _change(event: Event) -> Change:
    return Change(
        event.key,
        event.revision,
        entry_of(event.now) if event.now is not None else None,
        entry_of(event.before) if event.before is not None else None,
    )
