"""The watch cache: the current objects of one resource, and its watches.

The cache follows the store. Each change is decoded at most once and encoded once for each form that a watch has, and
all watches of that form send the same bytes. Reads are served from the cache, without a read of the store.

Entries are shared by all readers; `Entry.obj` must not be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from setpoint.apiserver.corrupt_objects import CorruptObject, corruption
from setpoint.apiserver.shared_parts import Siblings
from setpoint.meta import chunked_json
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import EVERYTHING, Selector
from setpoint.store.interface import Event, KeyValue, Store, Subscription
from setpoint.store.key_order import KeyOrder, prefix_end

FieldsOf = Callable[["Entry"], dict[str, str]]

_VERSION = b'"resourceVersion":"'
_EVENTS_PREFIX = "core/events/"
"""Prefix of the keys under which Events are stored."""
_WRONG_EVENT = b',"apiVersion":"v1","involvedObject":'
_RIGHT_EVENT = b',"involvedObject":'
_MAX_REPLAYED = 2_048
"""Maximum number of replayed changes that are shared by concurrent replays."""
_MAX_UNSHARED = 16_384
"""Maximum number of written objects that wait for `share_parts`; further ones do not share parts."""
_MIN_SHARING = 1_536
"""Size in bytes from which an object shares parts. Smaller ones, such as most Events and Leases, are written often and
have few parts that would take less memory."""


class Entry:
    """An object at one revision."""

    __slots__ = ("_fields", "_obj", "derived", "key", "revision", "value", "whole")

    def __init__(self, key: str, value: bytes, revision: int) -> None:
        self.key = key
        self.value = value
        self.revision = revision
        self._obj: Obj | None = None
        self._fields: tuple[FieldsOf, dict[str, str]] | None = None
        """Selectable fields of one version of the kind, with the function that computed them."""
        self.derived: dict[str, Any] | None = None
        """Cached results of `derive`, by key; None if there are none."""
        self.whole: Obj | None = None
        """`obj` with kind and apiVersion, shared with clients in the process; None until it is first needed."""

    @property
    def obj(self) -> Obj:
        """The object, decoded on first use. It is shared and must not be changed."""
        if self._obj is None:
            self._obj = chunked_json.read(self.value)
        return self._obj

    def adopt(self, expected: Expected) -> None:
        """Take the decoded object from the write that stored this entry, if it is that write."""
        if expected.is_stored_as(self):
            if expected.shares:
                self._obj = expected.decoded(self)
            if expected.final_as:
                self.derive(expected.final_as, lambda entry: entry.value)

    def share_parts(self, siblings: Siblings) -> None:
        """Replace parts of the decoded object by equal ones of its siblings."""
        if self._obj is None:
            return
        before, whole = {**self._obj}, self.whole
        siblings.share(self.key, self._obj)
        if whole is not None:
            for name, part in self._obj.items():
                if part is not before[name] and whole.get(name) is before[name]:
                    whole[name] = part

    def derive(self, key: str, make: Callable[[Entry], Any]) -> Any:
        """Return what `make` computes from this entry, such as another version of it; the result is cached."""
        if self.derived is None:
            self.derived = {}
        if key not in self.derived:
            self.derived[key] = make(self)
        return self.derived[key]

    def has_derived(self, key: str) -> bool:
        """Return whether the result of `derive` for this key is cached."""
        return self.derived is not None and key in self.derived

    def fields(self, fields_of: FieldsOf) -> dict[str, str]:
        known = self._fields
        if known is None or known[0] != fields_of:
            known = self._fields = (fields_of, fields_of(self))
        return known[1]

    def at_revision(self, revision: int) -> Entry:
        """Return the object with another resourceVersion, for a DELETED event."""
        start = self.value.index(_VERSION) + len(_VERSION)
        end = self.value.index(b'"', start)
        return Entry(self.key, b"%b%d%b" % (self.value[:start], revision, self.value[end:]), revision)


class CorruptEntry(Entry):
    """The entry of an object that cannot be decrypted; access to its value raises CorruptObject."""

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
    """An object that is being written: decoded and encoded, without its revision."""

    form: Obj
    value: bytes
    stamp: int
    shares: bool = True
    """Whether readers may share `form`, because nothing changes it any more."""
    final_as: str = ""
    """Key under which an entry caches these bytes as those of a response; empty if they differ."""

    def is_stored_as(self, entry: Entry) -> bool:
        stamp, stored = self.stamp, entry.value
        rest = stamp + len(str(entry.revision))
        return stored[:stamp] == self.value[:stamp] and stored[rest:] == self.value[stamp:]

    def decoded(self, entry: Entry) -> Obj:
        """Return the decoded object of the entry."""
        meta: Obj = {}
        for name, value in self.form["metadata"].items():
            meta[name] = value
            if name == "uid":
                meta["resourceVersion"] = str(entry.revision)
        return {**self.form, "metadata": meta}


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
        """`first_entry` makes the entries of the objects that exist at the start; by default it shares nothing."""
        self.prefix = prefix
        self.namespaced = namespaced
        self.revision = 0
        """Revision of the store up to which the cache is complete."""
        self.changed = 0
        """Revision of the last change to this resource; data derived from its objects is stale when it differs."""
        self.first_revision = 0
        """Earliest revision at which a watch can start, because the resource did not exist before; 0 means any."""
        self._store = store
        self._first_entry = first_entry or entry_of
        self._entries: dict[str, Entry] = {}
        self._keys = KeyOrder()
        self._watches: dict[str, dict[Watch, None]] = {}
        """Watches by namespace, in the order of their start, which makes the order of events deterministic."""
        self._subscription: Subscription | None = None
        self._expected: dict[str, Expected] = {}
        self._siblings = Siblings()
        self._unshared: dict[str, None] = {}
        """The keys of objects that have not shared parts since they were written."""
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
        below, entries = self._below(namespace), self._entries
        return (entries[key] for key in self._keys.each(below, prefix_end(below)))

    def values(self, namespace: str = "") -> list[bytes]:
        """Return the bytes of all objects in the order of their keys; the hot path of LIST."""
        below, entries = self._below(namespace), self._entries
        return [entries[key].value for key in self._keys.between(below, prefix_end(below))[0]]

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

    def share_parts(self, limit: int) -> bool:
        """Let at most `limit` of the objects that were written share equal parts; return whether none is left."""
        for _ in range(min(limit, len(self._unshared))):
            key = next(iter(self._unshared))
            del self._unshared[key]
            entry = self._entries.get(key)
            if entry is not None:
                entry.share_parts(self._siblings)
        return not self._unshared

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
                now = _entry(event.now)
                expected = self._expected.get(event.key)
                if expected is not None:
                    now.adopt(expected)
                    if len(now.value) >= _MIN_SHARING and len(self._unshared) < _MAX_UNSHARED:
                        self._unshared[event.key] = None
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


def _repaired_event(value: bytes) -> bytes:
    """Return a stored Event without an apiVersion.

    Earlier versions stored one with Events that were written as events.k8s.io/v1, and clients drop list items that have
    an apiVersion and no kind. Strings within the object escape their quotes and cannot match."""
    return value.replace(_WRONG_EVENT, _RIGHT_EVENT, 1) if _WRONG_EVENT in value else value


def _entry(kv: KeyValue) -> Entry:
    value = _repaired_event(kv.value) if kv.key.startswith(_EVENTS_PREFIX) else kv.value
    return Entry(kv.key, value, kv.mod_revision)


def entry_of(kv: KeyValue) -> Entry:
    """Return the entry of a stored value, which may be corrupt."""
    why = corruption(kv)
    return CorruptEntry(kv.key, kv.mod_revision, why) if why else _entry(kv)


def _change(event: Event) -> Change:
    return Change(
        event.key,
        event.revision,
        entry_of(event.now) if event.now is not None else None,
        entry_of(event.before) if event.before is not None else None,
    )
