"""The store for tests and for clusters that need not survive their process.

A write is visible at once, and a crash loses everything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from setpoint.store.history import History
from setpoint.store.in_memory_reads import InMemoryReads
from setpoint.store.interface import KeyValue, Op
from setpoint.store.transaction import plan

# Number of events dropped in one iteration of the event loop: well under a millisecond.
_DROP_BATCH = 1_000


class MemoryStore(InMemoryReads):
    def __init__(self, history: History | None = None) -> None:
        super().__init__(history if history is not None else History())

    def fork(self) -> MemoryStore:
        """Return an independent store with the same content, history and revision, and without subscriptions.

        It costs a pointer for each key and each event in the history."""
        self._check()
        return MemoryStore(self._history.fork())

    async def txn(self, ops: Sequence[Op], cause: bytes = b"") -> tuple[int, Sequence[KeyValue | None]]:
        self._check()
        history = self._history
        events, answers = plan(ops, history.state.get, history.revision + 1)
        if events:
            history.apply(events, cause)
            self._subscriptions.publish(events, history.revision)
            if self._waiters:
                self._wake_waiters()
        return history.revision, answers

    async def compact(self, revision: int) -> None:
        self._check()
        if not self._history.compactable(revision):
            return
        self._history.compacted = revision
        while events := self._history.compacted_events(_DROP_BATCH):
            self._history.drop(len(events))
            await asyncio.sleep(0)

    def size(self) -> int:
        """Return the bytes of the current keys and values."""
        return sum(len(each.key) + len(each.value) for each in self._history.state.values())

    async def close(self) -> None:
        self._fail("the store is closed")
