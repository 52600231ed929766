"""The entries of the watch cache: objects at one revision, as bytes and decoded.

Entries are shared by all readers; `Entry.obj` must not be changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from setpoint.apiserver.corrupt_objects import CorruptObject, corruption
from setpoint.apiserver.shared_parts import Siblings
from setpoint.meta import chunked_json
from setpoint.meta.objects import Obj
from setpoint.store.interface import KeyValue

FieldsOf = Callable[["Entry"], dict[str, str]]

_VERSION = b'"resourceVersion":"'
_EVENTS_PREFIX = "core/events/"
"""Prefix of the keys under which Events are stored."""
_WRONG_EVENT = b',"apiVersion":"v1","involvedObject":'
_RIGHT_EVENT = b',"involvedObject":'
_MIN_SHARING = 1_536
"""Size in bytes from which an object shares parts. Smaller ones, such as most Events and Leases, are written often and
have few parts that would take less memory."""


class Entry:
    """An object at one revision."""

    __slots__ = ("_fields", "derived", "key", "obj_in_memory", "revision", "stored", "value_in_memory", "whole")

    def __init__(self, stored: KeyValue) -> None:
        self.key = stored.key
        self.revision = stored.mod_revision
        self.stored = stored
        """The entry of the store."""
        self.value_in_memory: bytes | None = stored.value
        """`value`, or None after `release`: the next read of `value` may have to decompress it."""
        self.obj_in_memory: Obj | None = None
        """`obj`, or None if it is not decoded."""
        self._fields: tuple[FieldsOf, dict[str, str]] | None = None
        """Selectable fields of one version of the kind, with the function that computed them."""
        self.derived: dict[str, Any] | None = None
        """Cached results of `derive`, by key; None if there are none."""
        self.whole: Obj | None = None
        """`obj` with kind and apiVersion, shared with clients in the process; None until it is first needed."""

    @classmethod
    def unstored(cls, key: str, value: bytes, revision: int) -> Entry:
        """Return the entry of an object that the store does not hold in this form."""
        return cls(KeyValue(key, value, revision, revision))

    @property
    def value(self) -> bytes:
        """The object as it is stored."""
        value = self.value_in_memory
        if value is None:
            value = self.value_in_memory = self.stored.value
        return value

    @property
    def size(self) -> int:
        """The length of `value`."""
        return self.stored.size

    @property
    def obj(self) -> Obj:
        """The object, decoded on first use. It is shared and must not be changed."""
        if self.obj_in_memory is None:
            self.obj_in_memory = self._decode()
        return self.obj_in_memory

    def _decode(self) -> Obj:
        obj: Obj = chunked_json.read(self.value_in_memory or self.stored.value)
        return obj

    def adopt(self, expected: Expected) -> None:
        """Take the decoded object from the write that stored this entry, if it is that write."""
        if expected.is_stored_as(self):
            if expected.shares:
                self.obj_in_memory = expected.decoded(self)
            if expected.final_as:
                self.derive(expected.final_as, lambda entry: entry.value)

    def share_parts(self, siblings: Siblings) -> None:
        """Replace parts of the decoded object by equal ones of its siblings."""
        if self.obj_in_memory is None or self.size < _MIN_SHARING:
            return
        before, whole = {**self.obj_in_memory}, self.whole
        siblings.share(self.key, self.obj_in_memory)
        if whole is not None:
            for name, part in self.obj_in_memory.items():
                if part is not before[name] and whole.get(name) is before[name]:
                    whole[name] = part

    def release(self) -> None:
        """Forget what is quick to compute again: the bytes, which the store may hold in compressed form, and the
        selectable fields."""
        self.value_in_memory = self._fields = None

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
        value = self.value
        start = value.index(_VERSION) + len(_VERSION)
        end = value.index(b'"', start)
        return Entry.unstored(self.key, b"%b%d%b" % (value[:start], revision, value[end:]), revision)


class EntryWithSiblings(Entry):
    """An entry that shares parts with its siblings as soon as it is decoded."""

    __slots__ = ("_siblings",)

    def __init__(self, stored: KeyValue, siblings: Siblings) -> None:
        super().__init__(stored)
        self._siblings = siblings

    def _decode(self) -> Obj:
        obj = super()._decode()
        self._siblings.share(self.key, obj)
        return obj


class CorruptEntry(Entry):
    """The entry of an object that cannot be decrypted; access to its value raises CorruptObject."""

    __slots__ = ("why",)

    def __init__(self, stored: KeyValue, why: str) -> None:
        super().__init__(stored)
        self.why = why
        self.release()

    @property
    def value(self) -> bytes:
        raise CorruptObject.at(self.key, self.why)

    @property
    def size(self) -> int:
        raise CorruptObject.at(self.key, self.why)

    def _decode(self) -> Obj:
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


def entry_of(stored: KeyValue, siblings: Siblings | None = None) -> Entry:
    """Return the entry of a stored value, which may be corrupt. With `siblings`, a large object shares parts with them
    when it is decoded."""
    why = corruption(stored)
    return CorruptEntry(stored, why) if why else readable_entry_of(stored, siblings)


def readable_entry_of(stored: KeyValue, siblings: Siblings | None = None) -> Entry:
    """Return the same as `entry_of` for a value that is not corrupt."""
    if stored.key.startswith(_EVENTS_PREFIX):
        stored = _repaired_event(stored)
    return Entry(stored) if siblings is None or stored.size < _MIN_SHARING else EntryWithSiblings(stored, siblings)


def _repaired_event(stored: KeyValue) -> KeyValue:
    """Return a stored Event without an apiVersion.

    Earlier versions stored one with Events that were written as events.k8s.io/v1, and clients drop list items that have
    an apiVersion and no kind. Strings within the object escape their quotes and cannot match."""
    value = stored.value
    return stored.with_value(value.replace(_WRONG_EVENT, _RIGHT_EVENT, 1)) if _WRONG_EVENT in value else stored
