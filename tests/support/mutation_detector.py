"""Objects in the caches are shared by every reader, within the process by every component: nobody changes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from setpoint.apiserver.watch_cache import Entry, Expected


class MutationDetector:
    """Remembers every entry that was ever decoded, and says which of them no longer are what their bytes say."""

    def __init__(self) -> None:
        self.decoded: list[Entry] = []
        self._original = Entry.obj
        self._take = Entry.take

    def install(self) -> None:
        remember = self.decoded.append

        def obj(entry: Entry) -> dict[str, Any]:
            found = entry._obj
            if found is None:
                found = entry._obj = orjson.loads(entry.value)
                remember(entry)
            return found

        take_expected = self._take

        def take(entry: Entry, expected: Expected) -> None:
            take_expected(entry, expected)
            if entry._obj is not None:
                assert orjson.dumps(entry._obj) == entry.value, "what was not decoded must be what it would decode to"
                remember(entry)

        Entry.obj = property(obj)  # type: ignore[assignment,method-assign]
        Entry.take = take  # type: ignore[method-assign]

    def remove(self) -> None:
        Entry.obj = self._original  # type: ignore[method-assign]
        Entry.take = self._take  # type: ignore[method-assign]

    def changed(self) -> list[str]:
        return [f"{entry.key}@{entry.revision}" for entry in self.decoded if _is_changed(entry)]

    def check(self) -> None:
        changed = self.changed()
        assert not changed, f"shared objects were changed: {changed[:5]}"


def _is_changed(entry: Entry) -> bool:
    written = orjson.loads(entry.value)
    if entry._obj != written:
        return True
    whole = entry.whole
    return whole is not None and whole != {"kind": whole.get("kind"), "apiVersion": whole.get("apiVersion"), **written}


@contextmanager
def nothing_shared_is_changed() -> Iterator[MutationDetector]:
    detector = MutationDetector()
    detector.install()
    try:
        yield detector
    finally:
        detector.remove()
    detector.check()
