"""Tracks creations and deletions that a controller's cache does not show yet.

A controller that created three Pods and reconciles again before its cache has them would create three more. It records
what it expects to observe, and creates and deletes nothing until that was observed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

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
