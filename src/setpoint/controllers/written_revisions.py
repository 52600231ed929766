"""Tracks the revisions a controller wrote until its caches have caught up.

`Expectations` count events; this compares revisions: a reconcile waits until its caches contain what the previous one
wrote, so a stale cache cannot cause an action twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Cache(Protocol):
    """The part of an informer that reports the revision of its cache."""

    @property
    def resource_version(self) -> str: ...


class WrittenRevisions:
    def __init__(self) -> None:
        self._newest: dict[str, dict[Cache, int]] = {}
        """The revision that each cache must have reached, by key of the owner."""

    def wrote(self, key: str, cache: Cache, response: Mapping[str, Any]) -> None:
        """Record a write. `answer` is the server's response: the object, or a Status, which is ignored."""
        version = (response.get("metadata") or {}).get("resourceVersion") or ""
        if version.isdigit():
            newest = self._newest.setdefault(key, {})
            newest[cache] = max(newest.get(cache, 0), int(version))

    def seen(self, key: str) -> bool:
        for cache, version in self._newest.get(key, {}).items():
            if int(cache.resource_version or 0) < version:
                return False
        self._newest.pop(key, None)
        return True

    def forget(self, key: str) -> None:
        self._newest.pop(key, None)
