"""The store for tests and for clusters that need not survive their process.

A write is visible at once, and a crash loses everything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from setpoint.store.history import History
from setpoint.store.in_memory_reads import InMemoryReads
from setpoint.store.interface import KeyValue, NotedCause, Op
from setpoint.store.quota import StoreQuota, StoreUsage
from setpoint.store.transaction import plan

# Number of events dropped in one iteration of the event loop: well under a millisecond.
_DROP_BATCH = 1_000


class MemoryStore(InMemoryReads):
    _step = 1
    """The difference of the next revision to the present one; subclasses may leave gaps."""

    def __init__(
        self, history: History | None = None, *, shared: bool = False, quota: StoreQuota | None = None
    ) -> None:
        """`shared` stores have replicas (`DelayedReplica`). `quota` limits the content; None means no limit."""
        super().__init__(history if history is not None else History())
        self._shared = shared
        content = self._history.state.values()
        self._usage = StoreUsage(quota, content, self._history.revision) if quota is not None else None
        self.compactions = 0
        """The number of compactions that this store or its replicas have claimed."""
        self._known_compactions = 0

    @property
    def shared(self) -> bool:
        return self._shared

    def fork(self, *, shared: bool = False, quota: StoreQuota | None = None) -> MemoryStore:
        """Return an independent store with the same content, history and revision, and without subscriptions.

        It costs a pointer for each key and each event in the history."""
        return MemoryStore(self.copy_of_history(), shared=shared, quota=quota)

    def entries(self) -> dict[str, KeyValue]:
        """Return the current entries by key."""
        self._check()
        return self._history.state.copy()

    def cause_of(self, revision: int) -> bytes:
        """Return the cause of a revision, or b"" if it has none."""
        found = self._history.causes(revision - 1, 1)
        return found[0].cause if found and found[0].revision == revision else b""

    async def txn(self, ops: Sequence[Op], cause: bytes | NotedCause = b"") -> tuple[int, Sequence[KeyValue | None]]:
        self._check()
        history = self._history
        events, answers = plan(ops, history.state.get, history.revision + self._step)
        if events:
            if self._usage is not None:
                self._usage.add(events)
            history.apply(events, cause)
            self._subscriptions.publish(events, history.revision)
            if self._waiters:
                self._wake_waiters()
            revision = history.revision
            if self._usage is not None and (expired := self._usage.take_expired(revision)):
                await self.compact(expired)
            return revision, answers
        return history.revision, answers

    async def compact(self, revision: int) -> None:
        self._check()
        if not self._history.compactable(revision):
            return
        await self.archive_until(revision)
        self._set_compacted(max(revision, self._history.compacted))
        while events := self._history.compacted_events(_DROP_BATCH):
            self._history.drop(len(events))
            await asyncio.sleep(0)

    def claim_compaction(self, known: int) -> bool:
        """Count a compaction and return True, if no other was claimed since there were `known` ones."""
        if known != self.compactions:
            return False
        self.compactions += 1
        return True

    async def compact_if_first(self, revision: int) -> bool:
        claimed = self.claim_compaction(self._known_compactions)
        self._known_compactions = self.compactions
        if claimed:
            await self.compact(revision)
        return claimed

    def size(self) -> int:
        """Return the bytes of the current keys and values."""
        return sum(len(each.key) + each.size for each in self._history.state.values())

    async def close(self) -> None:
        self._fail("the store is closed")
