"""What a controller wrote and its caches may not show yet.

Where `Expectations` count what is to come, this goes by revisions: a reconcile waits until its caches have got as far
as what the one before wrote. A cache that is behind can then never make anything happen twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Cache(Protocol):
    """Of an informer: how far it has got."""

    @property
    def resource_version(self) -> str: ...


class OwnWrites:
    def __init__(self) -> None:
        self._newest: dict[str, dict[Cache, int]] = {}
        """By the key of the owner: how far each cache has to have got."""

    def wrote(self, key: str, cache: Cache, answer: Mapping[str, Any]) -> None:
        """`answer` is what the server gave back: the object as it is now, or a Status, which says nothing."""
        version = (answer.get("metadata") or {}).get("resourceVersion") or ""
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
