"""The store for tests and for clusters that need not outlive their process: what is written is visible at once, and a
crash loses everything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from setpoint.store.history import History
from setpoint.store.interface import KeyValue, Op
from setpoint.store.readable import ReadableStore
from setpoint.store.transaction import plan

# So many events are dropped in one turn of the event loop: well under a millisecond.
_DROP_AT_ONCE = 1_000


class MemoryStore(ReadableStore):
    def __init__(self, history: History | None = None) -> None:
        super().__init__(history if history is not None else History())

    def fork(self) -> MemoryStore:
        """Another store with the same content, history and revision. What is written to one is not seen in the other;
        nobody watches the new one yet. It costs a pointer for each key and each event that is kept."""
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
                self._wake_reached()
        return history.revision, answers

    async def compact(self, revision: int) -> None:
        self._check()
        if not self._history.compactable(revision):
            return
        self._history.compacted = revision
        while events := self._history.oldest(_DROP_AT_ONCE):
            self._history.drop(len(events))
            await asyncio.sleep(0)

    def size(self) -> int:
        """Bytes of the keys and values as they are now."""
        return sum(len(each.key) + len(each.value) for each in self._history.state.values())

    async def close(self) -> None:
        self._refuse("the store is closed")
