"""What every backend hands over to an archive when it is compacted, and what is read of the past afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from os import urandom
from pathlib import Path

import pytest
from etcd_process import etcd_process
from stopped_clock import StoppedClock

from setpoint.apiserver.history.reader import HistoryReader, Version
from setpoint.meta.errors import Expired
from setpoint.store.archive import FileArchive, Retention
from setpoint.store.in_memory_reads import InMemoryReads
from setpoint.store.interface import Delete, Put
from setpoint.store.memory import MemoryStore
from setpoint.store.sqlite import SqliteStore

_prefixes = count()


@pytest.fixture(scope="module")
def etcd_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with etcd_process(tmp_path_factory.mktemp("etcd")) as running:
        yield running.endpoint


async def open_etcd(endpoint: str, prefix: str) -> InMemoryReads:
    from setpoint.store.etcd.store import EtcdStore

    return await EtcdStore.open([endpoint], prefix=prefix, number=partial(urandom, 16))


@pytest.fixture(params=["memory", "sqlite", "etcd", "two on etcd"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[InMemoryReads]]:
    """One store that is written, or two on one medium: the last one is compacted by the first."""
    async with AsyncExitStack() as stack:
        opened: list[InMemoryReads]
        if request.param == "memory":
            opened = [MemoryStore()]
        elif request.param == "sqlite":
            opened = [SqliteStore.open(tmp_path / "state.db")]
        else:
            endpoint, prefix = request.getfixturevalue("etcd_endpoint"), f"/archive-{next(_prefixes)}/"
            opened = [await open_etcd(endpoint, prefix) for _ in range(1 + request.param.startswith("two"))]
        for number, store in enumerate(opened):
            archive = FileArchive(tmp_path / f"history-{number}.db", Retention(), StoppedClock())
            await archive.follow(store)
            stack.push_async_callback(archive.close)
            stack.push_async_callback(store.close)  # type: ignore[attr-defined]
        yield opened


async def test_the_past_before_and_after_compaction(stores: list[InMemoryReads]) -> None:
    store, reading = stores[0], stores[-1]
    revisions: list[int] = []
    for number in range(40):
        ops = [Put(f"core/pods/a/{number % 3}", b"%d" % number), Put("core/nodes/n", b"%d" % number)]
        revisions.append((await store.txn(ops, b"cause %d" % number))[0])  # type: ignore[attr-defined]
    revisions.append((await store.txn([Delete("core/pods/a/1")]))[0])  # type: ignore[attr-defined]
    await store.compact(revisions[30])
    await reading.sync()
    for _ in range(1000):  # until the second store has heard of it
        if reading.compacted >= revisions[30]:
            break
        await asyncio.sleep(0.01)
    reader = HistoryReader(reading)  # type: ignore[arg-type]
    assert reader.oldest <= revisions[0] and reading.archive is not None
    for number, revision in enumerate(revisions[:40]):
        found = await reader.list_at("core/pods/", revision)
        assert [(each.key, each.value) for each in found] == [
            (f"core/pods/a/{slot}", b"%d" % (number - (number - slot) % 3)) for slot in range(min(number + 1, 3))
        ], revision
        node = Version("core/nodes/n", revision, revisions[0], b"%d" % number)
        assert await reader.at("core/nodes/n", revision) == node
    assert [each.value for each in await reader.versions("core/pods/a/1")] == [
        None,
        *(b"%d" % number for number in range(37, 0, -3)),
    ]
    writes = await reader.writes(revisions[0] - 1, 100)
    assert [each.revision for each in writes] == revisions
    assert writes[5].keys == ("core/nodes/n", "core/pods/a/2") == tuple(sorted(writes[38].keys))
    with pytest.raises(Expired):
        await reader.at("core/nodes/n", reader.oldest - 1)
