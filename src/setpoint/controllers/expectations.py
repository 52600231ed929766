"""Tracks a controller's own writes until its caches show them: creations, deletions and written revisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from setpoint.meta.clock import Clock

_EXPIRES_AFTER = 300.0
"""Seconds after which an unmet expectation is dropped and the controller acts on the observed state again."""


@dataclass(slots=True)
class _Expected:
    at: float
    creations: int = 0
    deletions: set[str] = field(default_factory=set)
    """Uids of objects to be deleted. A deletion is observed twice, when the object is marked and when it is removed,
    and counts once."""


class Expectations:
    """Counts creations and deletions that a controller's cache does not show yet.

    A controller that created three Pods and reconciles again before its cache has them would create three more. It
    records what it expects to observe, and creates and deletes nothing until that was observed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_key: dict[str, _Expected] = {}

    def satisfied(self, key: str) -> bool:
        expected = self._by_key.get(key)
        if expected is None or (expected.creations <= 0 and not expected.deletions):
            return True
        return self._clock.monotonic() - expected.at > _EXPIRES_AFTER

    def expect_creations(self, key: str, count: int) -> None:
        self._by_key[key] = _Expected(self._clock.monotonic(), creations=count)

    def expect_deletions(self, key: str, uids: Iterable[str]) -> None:
        self._by_key[key] = _Expected(self._clock.monotonic(), deletions=set(uids))

    def creation_observed(self, key: str) -> None:
        expected = self._by_key.get(key)
        if expected is not None:
            expected.creations -= 1

    def deletion_observed(self, key: str, uid: str) -> None:
        expected = self._by_key.get(key)
        if expected is not None:
            expected.deletions.discard(uid)

    def forget(self, key: str) -> None:
        self._by_key.pop(key, None)


class Cache(Protocol):
    """The part of an informer that reports the revision of its cache."""

    @property
    def resource_version(self) -> str: ...


class WrittenRevisions:
    """Compares revisions instead of counting events.

    A reconcile waits until its caches contain what the previous one wrote, so a stale cache cannot cause an action
    twice.
    """

    def __init__(self) -> None:
        self._newest: dict[str, dict[Cache, int]] = {}
        """The revision that each cache must have reached, by key of the owner."""

    def wrote(self, key: str, cache: Cache, response: Mapping[str, Any]) -> None:
        """Record a write. `response` is the server's response: the object, or a Status, which is ignored."""
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
