"""Objects in the caches are shared by every reader, within the process by every component: nobody changes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from setpoint.apiserver import shared_entries
from setpoint.apiserver.cache_entry import Entry, Expected

_SHARED_ENTRY: Any = shared_entries._SharedEntry


class MutationDetector:
    """Remembers every entry that was ever decoded, and says which of them no longer are what their bytes say."""

    def __init__(self) -> None:
        self.decoded: list[Entry] = []
        self._original: Any = Entry.obj
        self._adopt = Entry.adopt
        self._shared: dict[int, Entry] = {}
        """Entries that clusters share and that were used, by their ids: an earlier test may have decoded them."""
        self._shared_obj = _SHARED_ENTRY.obj
        self._shared_whole = _SHARED_ENTRY.whole

    def install(self) -> None:
        record, decode = self.decoded.append, self._original.fget

        def obj(entry: Entry) -> Any:
            found: Any = entry.obj_in_memory
            if found is None:
                found = decode(entry)
                record(entry)
            return found

        adopt_expected = self._adopt

        def adopt(entry: Entry, expected: Expected) -> None:
            adopt_expected(entry, expected)
            if entry.obj_in_memory is not None:
                assert orjson.dumps(entry.obj_in_memory) == entry.value, (
                    "what was not decoded must be what it would decode to"
                )
                record(entry)

        def of_shared(entry: Any) -> Any:
            self._shared[id(entry._shared)] = entry._shared
            return self._shared_obj.fget(entry)

        def whole_of_shared(entry: Any) -> Any:
            self._shared[id(entry._shared)] = entry._shared
            return self._shared_whole.fget(entry)

        _SHARED_ENTRY.obj = property(of_shared)
        _SHARED_ENTRY.whole = property(whole_of_shared, self._shared_whole.fset)
        Entry.obj = property(obj)  # type: ignore[assignment,method-assign]
        Entry.adopt = adopt  # type: ignore[method-assign,assignment]

    def remove(self) -> None:
        Entry.obj = self._original  # type: ignore[method-assign]
        Entry.adopt = self._adopt  # type: ignore[method-assign]
        _SHARED_ENTRY.obj = self._shared_obj
        _SHARED_ENTRY.whole = self._shared_whole

    def changed(self) -> list[str]:
        used = (*self.decoded, *(entry for entry in self._shared.values() if entry.obj_in_memory is not None))
        return [f"{entry.key}@{entry.revision}" for entry in used if _is_changed(entry)]

    def check(self) -> None:
        changed = self.changed()
        assert not changed, f"shared objects were changed: {changed[:5]}"


def _is_changed(entry: Entry) -> bool:
    obj: Any = entry.obj_in_memory
    # Most are encoded as they were written, and to encode is faster than to decode and to compare.
    if orjson.dumps(obj) != entry.value and obj != orjson.loads(entry.value):
        return True
    whole = entry.whole
    return whole is not None and whole != {"kind": whole.get("kind"), "apiVersion": whole.get("apiVersion"), **obj}


@contextmanager
def nothing_shared_is_changed() -> Iterator[MutationDetector]:
    detector = MutationDetector()
    detector.install()
    try:
        yield detector
    finally:
        detector.remove()
    detector.check()
