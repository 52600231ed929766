"""Decoded objects that several clusters of one process share, because they started from the same state."""

from __future__ import annotations

from collections.abc import Iterable

from setpoint.apiserver.cache_entry import Entry, entry_of
from setpoint.meta.objects import Obj
from setpoint.store.interface import KeyValue


class _SharedEntry(Entry):
    """An entry of one cluster whose decoded object is that of an entry which all clusters share.

    What depends on the definitions of a cluster (other versions, selectable fields) is not shared."""

    __slots__ = ("_shared",)

    def __init__(self, shared: Entry) -> None:
        self._shared = shared
        super().__init__(shared.stored)

    @property
    def obj(self) -> Obj:
        return self._shared.obj

    @property
    def whole(self) -> Obj | None:
        return self._shared.whole

    @whole.setter
    def whole(self, whole: Obj | None) -> None:
        if whole is not None:
            self._shared.whole = whole


class SharedEntries:
    """The entries of a start state. Each object is decoded once, by the first cluster that needs it.

    The content does not change: an object that a cluster writes is never shared."""

    __slots__ = ("_entries",)

    def __init__(self, items: Iterable[KeyValue] = (), base: SharedEntries | None = None) -> None:
        """Share the objects of a state. Those that are unchanged since an earlier state `base` are shared with it."""
        known = {} if base is None else base._entries
        self._entries: dict[str, tuple[KeyValue, Entry]] = {}
        for kv in items:
            found = known.get(kv.key)
            self._entries[kv.key] = found if found is not None and found[0] is kv else (kv, entry_of(kv))

    def entry_of(self, kv: KeyValue) -> Entry:
        """Return a new entry of a stored value, which shares its decoded object if the value is that of the state."""
        found = self._entries.get(kv.key)
        return _SharedEntry(found[1]) if found is not None and found[0] is kv else entry_of(kv)
