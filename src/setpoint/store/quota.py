"""Limits on what a store holds, for clusters that share a process with others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from setpoint.store.interface import Event, KeyValue, StoreError


class QuotaExceeded(StoreError):
    """A transaction would exceed a limit of the store, and had no effect; the message names the limit."""


@dataclass(frozen=True, slots=True)
class StoreQuota:
    """The largest content of a store."""

    size: int
    """Bytes of all keys and values."""
    objects: int
    """Number of keys, without those under the prefixes below."""
    by_prefix: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Number of keys under a prefix, and what they are: `{"core/pods/": (500, "Pods")}`."""
    past_size: int = 16 << 20
    """Approximate bytes of the values in the history that are no longer current; the oldest are compacted."""
    past_transactions: int = 20_000
    """Number of transactions in the history; the oldest are compacted."""


class StoreUsage:
    """Counts what a store holds, refuses events that exceed its quota, and bounds the history."""

    __slots__ = (
        "_by_prefix",
        "_objects",
        "_past_size",
        "_past_transactions",
        "_prefixes",
        "_seen",
        "_size",
        "quota",
    )

    def __init__(self, quota: StoreQuota, entries: Iterable[KeyValue], revision: int) -> None:
        """`entries` is the content at `revision`."""
        self.quota = quota
        self._past_size = self._past_transactions = 0
        """Bytes and transactions that were added to the history after the revision `_seen`."""
        self._seen = revision
        self._prefixes = tuple(quota.by_prefix)
        self._size = self._objects = 0
        self._by_prefix = dict.fromkeys(quota.by_prefix, 0)
        for entry in entries:
            self._size += len(entry.key) + entry.size
            self._count(entry.key, 1)

    def _count(self, key: str, difference: int) -> None:
        for prefix in self._prefixes:
            if key.startswith(prefix):
                self._by_prefix[prefix] += difference
                return
        self._objects += difference

    def add(self, events: Sequence[Event]) -> None:
        """Count the events of a transaction that is about to be committed. Raises QuotaExceeded, and then counts
        nothing. Events that free space are always accepted."""
        grown = sum(_size(event.now) - _size(event.before) for event in events)
        for event in events:
            if event.before is None and event.now is not None:
                self._check_count(event.key)
        if grown > 0 and self._size + grown > self.quota.size:
            raise QuotaExceeded(f"this cluster may hold at most {self.quota.size // 1024:,} KiB of objects")
        self._size += grown
        self._past_size += sum(_size(event.before) for event in events)
        self._past_transactions += 1
        for event in events:
            if (event.before is None) != (event.now is None):
                self._count(event.key, 1 if event.before is None else -1)

    def take_expired(self, revision: int) -> int:
        """Return the revision up to which the history is to be compacted now, at the current `revision`; 0 means not at
        all. At least the later half of what the quota allows is kept."""
        if 2 * self._past_size <= self.quota.past_size and 2 * self._past_transactions <= self.quota.past_transactions:
            return 0
        self._past_size = self._past_transactions = 0
        expired, self._seen = self._seen, revision
        return expired

    def _check_count(self, key: str) -> None:
        for prefix in self._prefixes:
            if key.startswith(prefix):
                most, what = self.quota.by_prefix[prefix]
                if self._by_prefix[prefix] >= most:
                    raise QuotaExceeded(f"this cluster may have at most {most:,} {what}")
                return
        if self._objects >= self.quota.objects:
            raise QuotaExceeded(f"this cluster may have at most {self.quota.objects:,} objects")


def _size(entry: KeyValue | None) -> int:
    return 0 if entry is None else len(entry.key) + entry.size
