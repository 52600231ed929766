"""A store that one process owns and others replicate: what the contract does not cover."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import pytest
from ipc_replicas import OwnedReplica, ServedStore

from setpoint.store.interface import Check, CompareFailed, Delete, Op, Put, StoreError, TooLarge, Unavailable
from setpoint.store.ipc import frames, server
from setpoint.store.ipc.frames import Frame, FrameReader, Malformed
from setpoint.store.ipc.replica import StoreReplica
from setpoint.store.ipc.shared_numbers import SharedNumbers
from setpoint.store.memory import MemoryStore


@pytest.fixture
async def owner() -> AsyncIterator[ServedStore]:
    owner = ServedStore(MemoryStore())
    yield owner
    for each in [*owner.replicas]:
        await each.close()


async def settle(rounds: int = 200) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)


async def test_a_replica_that_joins_later_has_the_same_state_and_history(owner: ServedStore) -> None:
    store = owner.store
    for number in range(1_500):
        await store.txn([Put(f"a/b/{number % 700}", b"%d" % number), Put(f"c/d/{number}", b"")], b"cause %d" % number)
    await store.compact(300)
    await store.txn([Delete("a/b/1"), Put("a/b/2", b"last")], b"")
    replica = await owner.replica()
    assert (replica.revision, replica.compacted) == (store.revision, store.compacted) == (1_501, 300)
    for revision in (0, 301, 700, 1_000, 1_500):
        assert await replica.list("", revision=revision) == await store.list("", revision=revision)
    assert await replica.replay("", 300, 5_000) == await store.replay("", 300, 5_000)
    assert await replica.causes(300) == await store.causes(300)
    assert await replica.changes_of("a/b/1") == await store.changes_of("a/b/1")
    assert replica.shared and replica.size() > 10_000


async def test_a_replica_opens_while_others_write(owner: ServedStore) -> None:
    async def write(name: str) -> None:
        for number in range(400):
            await owner.store.txn([Put(f"a/{name}", b"%d" % number)])
            if number % 10 == 0:
                await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for name in "xyz":
            tasks.create_task(write(name))
        replicas = [await owner.replica() for _ in range(3)]
    for each in replicas:
        await each.sync()
        assert await each.replay("", 0, 10_000) == await owner.store.replay("", 0, 10_000)


async def test_sync_of_a_replica_that_is_up_to_date_does_not_suspend(owner: ServedStore) -> None:
    replica = await owner.replica()
    await replica.txn([Put("a", b"")])
    with pytest.raises(StopIteration) as finished:
        replica.sync().send(None)
    assert finished.value.value == owner.store.revision


async def test_sync_waits_for_what_the_owner_has_committed(owner: ServedStore) -> None:
    replica = await owner.replica()
    await owner.store.txn([Put("a", b"")])
    assert await replica.get("a") is None
    assert await replica.sync() == owner.store.revision
    assert await replica.get("a") == await owner.store.get("a")


async def test_a_transaction_is_complete_when_it_is_visible_here(owner: ServedStore) -> None:
    """Also if its answer arrives before its events, because the replica has to read others first."""
    replica = await owner.replica()
    first = (await replica.txn([Put("a", b"")]))[0]
    replica.connection.pause_writing()
    running = [asyncio.ensure_future(replica.txn([op])) for op in (Put("a", b"x", first), Put("a", b"y", first))]
    await settle()
    assert owner.store.revision == first + 1 and not any(each.done() for each in running)
    replica.connection.resume_writing()
    revision, (entry,) = await running[0]
    assert entry == await replica.get("a") and revision == first + 1
    with pytest.raises(CompareFailed) as failed:
        await running[1]
    assert failed.value.current == entry


async def test_a_replica_that_reads_slowly_costs_no_memory_and_catches_up(
    owner: ServedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica, other = await owner.replica(), await owner.replica()
    transport = replica._link._transport
    assert transport is not None and replica.connection._transport is not None
    transport.pause_reading()
    for number in range(40):
        await other.txn([Put(f"a/{number}", bytes(1 << 20))])
    assert replica.connection._transport.get_write_buffer_size() <= server._WRITE_BUFFER + (4 << 20)
    transport.resume_reading()
    await replica.sync()
    assert (await replica.list("a/")).total == 40


async def test_a_replica_behind_a_compaction_is_disconnected(owner: ServedStore) -> None:
    replica, other = await owner.replica(), await owner.replica()
    transport = replica._link._transport
    assert transport is not None
    transport.pause_reading()
    for _ in range(40):
        await other.txn([Put("a", bytes(1 << 20))])
    await other.compact(other.revision)
    transport.resume_reading()
    await asyncio.wait_for(replica.ended.wait(), 5)
    assert "was compacted" in replica.connection.reason
    with pytest.raises(StoreError, match="has ended"):
        await replica.sync()
    assert await other.txn([Put("a", b"")])


async def test_a_replica_that_does_not_answer_is_disconnected(owner: ServedStore) -> None:
    replica, other = await owner.replica(), await owner.replica()
    transport = replica._link._transport
    assert transport is not None
    for each in (replica, other):
        each.serving()
    await settle()
    transport.pause_reading()
    for _ in range(16):
        assert replica.connection.reason == ""
        owner.report()
        await settle()
    assert replica.connection.reason == "it has not answered for 30 s"
    assert other.connection.reason == ""


async def test_a_failure_of_the_store_reaches_the_replicas(owner: ServedStore) -> None:
    replica = await owner.replica()
    await replica.txn([Put("a", b"")])
    owner.store._fail("the disk is full")
    with pytest.raises(StoreError, match="the disk is full"):
        await replica.txn([Put("a", b"")])
    owner.report()
    await settle()
    assert replica.failure == "the disk is full"
    with pytest.raises(StoreError, match="the disk is full"):
        await replica.get("a")


async def test_a_transaction_without_an_answer(owner: ServedStore) -> None:
    """When the owner ends, it is not known whether the transaction happened."""
    replica = await owner.replica()
    running = asyncio.ensure_future(replica.txn([Put("a", b"")]))
    await asyncio.sleep(0)
    owner.close()
    with pytest.raises(Unavailable, match="not known whether"):
        await running
    assert replica.failure is not None
    await asyncio.wait_for(replica.ended.wait(), 5)


async def test_an_owner_that_does_not_report_is_unavailable(owner: ServedStore) -> None:
    replica = await owner.replica()
    assert replica.unavailable is None
    replica._last_frame_at -= 11
    assert replica.unavailable == "the process that owns the store has not reported for 11 s"
    owner.report()
    await settle()
    assert replica.unavailable is None


async def test_a_transaction_that_is_too_large(owner: ServedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = await owner.replica()
    monkeypatch.setattr(frames, "MAX_REQUEST", 1_000)
    with pytest.raises(TooLarge):
        await replica.txn([Put("a", bytes(2_000))])
    assert await replica.txn([Put("a", bytes(100))])


async def test_an_owner_of_another_version(owner: ServedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    await owner.connect(ours)
    monkeypatch.setattr(frames, "VERSION", "0 of another time")
    with pytest.raises(StoreError, match="0 of another time"):
        await StoreReplica.open(theirs, SharedNumbers(owner.descriptor))
    monkeypatch.undo()
    await owner.replica()


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n" * 2, frames.encode(99), frames.encode(frames.TXN, ["x"]), bytes(13)]
)
async def test_malformed_frames_end_the_connection_alone(owner: ServedStore, data: bytes) -> None:
    replica, other = await owner.replica(), await owner.replica()
    replica._link.write(data)
    await asyncio.wait_for(replica.ended.wait(), 5)
    assert await other.txn([Put("a", b"")])


async def test_many_requests_at_once_are_all_answered(owner: ServedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the owner reads at once."""
    monkeypatch.setattr(server, "_MAX_REQUESTS", 8)
    replica = await owner.replica()
    await asyncio.wait_for(
        asyncio.gather(*(replica.txn([Put(f"a/{number}", bytes(100_000))]) for number in range(100))), 10
    )
    assert (await replica.list("a/")).total == 100


def test_frames_arrive_in_any_pieces() -> None:
    ops: list[Op] = [Put("a", b"value", 3, 2), Delete("b"), Check("c", 0)]
    data = frames.encode_txn(7, ops, b"cause") + frames.encode(frames.ALIVE) + frames.encode_txn(8, ops, b"")
    for size in (1, 7, 50, len(data)):
        reader, found = FrameReader(), list[Frame]()
        for at in range(0, len(data), size):
            found += reader.feed(data[at : at + size])
        assert [each.kind for each in found] == [frames.TXN, frames.ALIVE, frames.TXN]
        assert frames.decode_txn(found[0]) == (7, ops, b"cause")


def test_a_frame_over_the_limit() -> None:
    reader = FrameReader(1_000)
    with pytest.raises(Malformed):
        list(reader.feed(frames.encode(frames.TXN, None, [bytes(1_001)])))


def test_the_numbers_are_shared() -> None:
    descriptor = SharedNumbers.create()
    one, other = SharedNumbers(descriptor), SharedNumbers(descriptor)
    os.close(descriptor)
    one.committed, one.compacted, one.size = 1 << 40, 7, 9
    assert (other.committed, other.compacted, other.size) == (1 << 40, 7, 9)


async def test_the_only_replica_closes_its_store() -> None:
    replica = await OwnedReplica.of(MemoryStore())
    assert replica.server is not None
    store = replica.server.store
    await replica.close()
    assert store.failure == "the store is closed"
