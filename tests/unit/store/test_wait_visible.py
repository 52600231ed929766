"""A wait for a revision that does not become visible ends at its time limit, and is forgotten."""

from __future__ import annotations

import asyncio

import pytest

from setpoint.store.interface import Put
from setpoint.store.memory import MemoryStore
from setpoint.testing.virtual_time import run_virtual


def test_a_wait_ends_at_its_time_limit() -> None:
    async def wait() -> None:
        store, loop = MemoryStore(), asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TimeoutError):
            await store._wait_visible(store.revision + 10, 5.0)
        assert loop.time() - began == pytest.approx(5.0)
        assert store._waiters == []

    run_virtual(wait)


def test_a_wait_whose_revision_comes_in_time_succeeds() -> None:
    async def wait() -> None:
        store = MemoryStore()
        waiting = asyncio.create_task(store._wait_visible(store.revision + 1, 5.0))
        await asyncio.sleep(4.0)
        await store.txn([Put("a", b"")])
        await waiting
        await store._wait_visible(store.revision, 5.0)
        await asyncio.sleep(10.0)
        assert store._waiters == []

    run_virtual(wait)
