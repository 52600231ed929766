"""Memory of the watch caches: nothing that a reader sees changes when bytes are released and compressed."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson
import pytest
from watch_caches import cache_of, pod, write

from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.cache_upkeep import INTERVAL, RELEASE_ROUNDS, settle_forever
from setpoint.apiserver.encoding import encoding_of
from setpoint.apiserver.watch_cache import ResourceCache
from setpoint.kinds.catalog import RESOURCES
from setpoint.store.interface import Put
from setpoint.store.memory import MemoryStore

EVERYTHING = 10**6
PODS = encoding_of(next(each for each in RESOURCES if each.plural == "pods" and not each.group))


def pack(store: MemoryStore) -> None:
    while not store.pack(store.revision):
        pass


def in_memory(cache: ResourceCache) -> list[str]:
    return [entry.key.rpartition("/")[2] for entry in cache.scan() if entry.value_in_memory is not None]


async def test_a_released_entry_reads_as_before() -> None:
    cache, store = await cache_of(5)
    before = [(entry.value, entry.size, entry.at_revision(99).value) for entry in cache.scan()]
    assert cache.settle(EVERYTHING, 100)
    pack(store)
    assert in_memory(cache) == []
    assert sum(entry.stored.compressed is not None for entry in cache.scan()) == 4
    assert [(entry.value, entry.size, entry.at_revision(99).value) for entry in cache.scan()] == before
    first = next(cache.scan())
    assert first.value is first.value, "it is kept from the first read on"


async def test_the_bytes_of_objects_that_were_read_are_released_in_bounded_steps() -> None:
    cache, store = await cache_of(10)
    cache.settle(EVERYTHING, 100)
    pack(store)
    values = [entry.value for entry in cache.scan()]
    assert len(in_memory(cache)) == 10
    following = cache.release("", 4)
    assert len(in_memory(cache)) == 6
    await store.txn([Put("core/pods/default/web-7f-004-a", b"{}")])
    following = cache.release(following, 4)
    assert following
    assert cache.release(following, 4) == ""
    assert in_memory(cache) == []
    assert [entry.value for entry in cache.scan() if entry.size > 2] == values


async def test_objects_that_were_written_after_the_revision_wait() -> None:
    cache, store = await cache_of(3)
    until = store.revision
    await write(cache, store, pod("web-7f-000", "another"))
    await write(cache, store, pod("web-7f-003", "node-3"))
    assert cache.settle(until, 100)
    assert in_memory(cache) == ["web-7f-000", "web-7f-003"]
    assert cache.settle(store.revision, 100)
    assert in_memory(cache) == []


async def test_a_step_is_bounded_and_deleted_objects_are_skipped() -> None:
    cache, store = await cache_of(10)
    await store.txn([Put("core/pods/default/other", b"{}")])
    assert not cache.settle(EVERYTHING, 4)
    assert not cache.settle(EVERYTHING, 4)
    assert cache.settle(EVERYTHING, 4)
    assert cache.settle(EVERYTHING, 4), "nothing is left"


async def test_a_list_of_released_entries_is_the_same_body() -> None:
    cache, store = await cache_of(300)
    meta = {"resourceVersion": "7"}
    before = PODS.list(PODS.items(cache.listed()), meta)
    expected, pieces = b"".join(before), len(before)
    cache.settle(EVERYTHING, 1000)
    pack(store)
    body = PODS.list(PODS.items(cache.listed()), meta)
    assert (len(body), body.size) == (pieces, before.size)
    assert in_memory(cache) == [], "an item is decompressed when its piece is sent"
    assert body[1] == before[1]
    assert 0 < len(in_memory(cache)) < 300
    assert b"".join(body) == expected
    some = [*cache.scan()][5:8]
    some[1].release()
    assert b"".join(PODS.list(PODS.items(some), meta)) == b"".join(PODS.list([each.value for each in some], meta))


async def test_objects_of_the_start_share_parts_when_they_are_decoded() -> None:
    _, store = await cache_of(3)
    await store.txn([Put("core/pods/default/small-1", b'{"metadata":{"name":"a"}}')])
    cache = ResourceCache("core/pods/", store, namespaced=True)
    await cache.start()
    assert in_memory(cache) == []
    objects = [entry.obj for entry in cache.scan()]
    assert objects == [orjson.loads(entry.value) for entry in cache.scan()]
    assert len({id(each["spec"]["containers"]) for each in objects if "spec" in each}) == 1


async def test_selectable_fields_are_computed_again() -> None:
    cache, _ = await cache_of(1)
    entry = next(cache.scan())
    calls: list[Entry] = []

    def fields_of(one: Entry) -> dict[str, str]:
        calls.append(one)
        return {"spec.nodeName": one.obj["spec"]["nodeName"]}

    for _ in range(2):
        assert entry.fields(fields_of) == {"spec.nodeName": "node-0"}
    cache.settle(EVERYTHING, 10)
    assert entry.fields(fields_of) == {"spec.nodeName": "node-0"}
    assert len(calls) == 2


class StopTest(Exception): ...


class Ticks:
    """A clock that ends the test after some rounds, and reads all objects before each."""

    def __init__(self, cache: ResourceCache, rounds: int) -> None:
        self.cache = cache
        self.rounds = rounds
        self.pauses = 0
        self.kept: list[int] = []

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        if seconds < INTERVAL:
            self.pauses += 1
            return
        assert seconds == INTERVAL
        self.kept.append(len(in_memory(self.cache)))
        self.rounds -= 1
        if self.rounds < 0:
            raise StopTest
        if self.rounds == 0:
            for entry in self.cache.scan():
                assert entry.value


async def test_a_round_processes_what_the_last_interval_has_not_written() -> None:
    cache, _ = await cache_of(100)
    clock = Ticks(cache, 2)
    with pytest.raises(StopTest):
        await settle_forever(lambda: [cache], clock)
    assert clock.kept == [100, 100, 0]
    assert clock.pauses == 3
    assert len({id(entry.obj["status"]) for entry in cache.scan()}) == 1


async def test_what_was_read_is_released_once_in_a_minute() -> None:
    cache, _ = await cache_of(100)
    for rounds, kept in ((RELEASE_ROUNDS - 1, 100), (RELEASE_ROUNDS, 0)):
        clock = Ticks(cache, rounds)
        with pytest.raises(StopTest):
            await settle_forever(lambda: [cache], clock)
        assert clock.kept[-1] == kept
    assert RELEASE_ROUNDS * INTERVAL == 60
