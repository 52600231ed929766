"""Tracks written slices until the cache shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Obj = dict[str, Any]

_GONE = -1


class SliceTracker:
    """Holds the generation written last, or a marker for a deletion, by Service key and slice uid."""

    def __init__(self) -> None:
        self._written: dict[str, dict[str, int]] = {}

    def wrote(self, service: str, written: Obj) -> None:
        meta = written["metadata"]
        self._written.setdefault(service, {})[meta["uid"]] = meta.get("generation", 0)

    def deleted(self, service: str, gone: Obj) -> None:
        self._written.setdefault(service, {})[gone["metadata"]["uid"]] = _GONE

    def is_stale(self, service: str, slices: Iterable[Obj]) -> bool:
        written = self._written.get(service)
        if not written:
            return False
        there = {found["metadata"]["uid"]: found["metadata"].get("generation", 0) for found in slices}
        for uid, generation in written.items():
            if generation == _GONE:
                if uid in there:
                    return True
            elif there.get(uid, _GONE) < generation:
                return True
        return False

    def is_foreign_change(self, service: str, seen: Obj) -> bool:
        """Return whether another client changed the slice."""
        meta = seen["metadata"]
        known = self._written.get(service, {}).get(meta["uid"])
        return known is None or meta.get("generation", 0) > known

    def deletion_observed(self, service: str, gone: Obj) -> bool:
        """Record an observed deletion. Return whether it was expected."""
        known = self._written.get(service, {}).pop(gone["metadata"]["uid"], None)
        return known == _GONE

    def forget(self, service: str) -> None:
        self._written.pop(service, None)
