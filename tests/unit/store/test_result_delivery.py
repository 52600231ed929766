"""The results of a large batch of transactions are delivered over several iterations of the event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

from setpoint.store.interface import Put
from setpoint.store.sqlite import SqliteStore


async def test_results_are_delivered_in_slices(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "state.db")
    iteration, resumed = 0, list[int]()

    async def count() -> None:
        nonlocal iteration
        while True:
            iteration += 1
            await asyncio.sleep(0)

    async def write(number: int) -> None:
        await store.txn([Put(f"/k/{number}", b"{}", 0)])
        resumed.append(iteration)

    counting = asyncio.create_task(count())
    await asyncio.gather(*(write(number) for number in range(100)))
    counting.cancel()
    assert len(resumed) == 100
    assert max(resumed.count(each) for each in resumed) <= 16
    await store.close()
