"""Periodic compaction."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from setpoint.store.interface import Compacted, Put
from setpoint.store.maintenance import compact_forever
from setpoint.store.memory import MemoryStore


class StopTest(Exception): ...


class Ticks:
    """A clock whose sleeps are one interval each, between which the store gets writes."""

    def __init__(self, store: MemoryStore, writes: list[int]) -> None:
        self.store = store
        self.writes = writes
        self.compacted: list[int] = []

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        assert seconds == 60
        self.compacted.append(self.store.compacted)
        if not self.writes:
            raise StopTest
        for _ in range(self.writes.pop(0)):
            await self.store.txn([Put("key", b"")])


async def test_revisions_of_the_last_interval_stay_readable() -> None:
    store = MemoryStore()
    clock = Ticks(store, [10, 5, 0, 0, 3, 0, 0])
    with pytest.raises(StopTest):
        await compact_forever(store, clock, interval=60)
    # revision after each interval: 10, 15, 15, 15, 18, 18, 18
    assert clock.compacted == [0, 0, 9, 14, 14, 14, 17, 17]


async def test_a_page_can_be_continued_for_an_interval() -> None:
    store = MemoryStore()
    await store.txn([Put("a", b""), Put("b", b"")])
    for _ in range(9):
        await store.txn([Put("a", b"")])
    await store.compact(8)
    assert (await store.list("", revision=9)).total == 2
    with pytest.raises(Compacted):
        await store.list("", revision=8)
