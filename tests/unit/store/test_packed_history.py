"""Compressed values: every read returns what was written, and memory is saved."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from setpoint.store.history import History
from setpoint.store.interface import Delete, Event, KeyValue, Op, Put, Sink
from setpoint.store.maintenance import pack_forever
from setpoint.store.memory import MemoryStore

KEYS = [*(f"core/pods/default/web-{number}" for number in range(6)), "core/nodes/a", "core/nodes/b", "single"]
TEMPLATE = b"".join(b'{"name":"field-%d","image":"registry.example/app:%d"},' % (each, each * 7) for each in range(60))


def value_of(rng: random.Random) -> bytes:
    """Return one of all kinds of values: similar to others, small, not compressible, large."""
    kind = rng.random()
    if kind < 0.7:
        at = rng.randrange(len(TEMPLATE))
        return TEMPLATE[:at] + b"%d" % rng.randrange(10**9) + TEMPLATE[at : -rng.randrange(1, 50)]
    if kind < 0.8:
        return rng.randbytes(rng.randrange(20))
    return rng.randbytes(2_000) if kind < 0.95 else TEMPLATE * 12


async def write(store: MemoryStore, rng: random.Random) -> None:
    keys = rng.sample(KEYS, rng.choice([1, 1, 1, 2, 5]))
    ops: list[Op] = [Delete(key) if rng.random() < 0.2 else Put(key, value_of(rng)) for key in keys]
    await store.txn(ops, b"cause")


def into(events: list[Event]) -> Sink:
    def sink(received: Sequence[Event], _: int) -> None:
        events.extend(received)

    return sink


async def check(store: MemoryStore, log: Sequence[Event]) -> None:
    """Compare every read of the store with its events, as subscribers have received them."""
    oldest = store.compacted
    for prefix in ("", "core/", "core/pods/", "core/pods/default/web-1", "single"):
        expected = [event for event in log if event.revision > oldest and event.key.startswith(prefix)]
        received: list[Event] = []
        store.watch(prefix, oldest, into(received)).close()
        assert received == expected
        after, replayed = oldest, list[Event]()
        while after < store.revision:
            events, after = await store.replay(prefix, after, 7)
            replayed += events
        assert replayed == expected
    for key in KEYS:
        changes = [event for event in reversed(log) if event.key == key and event.revision > oldest]
        assert await store.changes_of(key) == changes
        assert await store.changes_of(key, limit=2) == changes[:2]
    for revision in range(oldest + 1, store.revision + 1, 5):
        was = {event.key: event.now for event in log if event.revision <= revision}
        present = [kv for key in sorted(was) if (kv := was[key]) is not None]
        for limit in (0, 2):
            page = await store.list("", revision=revision, limit=limit)
            assert page.items == present[: limit or None]
        for key in KEYS:
            assert await store.get(key, revision) == was.get(key)


@pytest.mark.parametrize("seed", range(6))
async def test_every_read_returns_what_was_written(seed: int) -> None:
    rng, store = random.Random(seed), MemoryStore()
    log: list[Event] = []
    store.watch("", 0, into(log))
    for _ in range(6):
        for _ in range(25):
            await write(store, rng)
            if rng.random() < 0.3:
                store.pack(rng.randrange(store.compacted, store.revision + 1))
        if rng.random() < 0.5:
            await store.compact(rng.randrange(store.compacted, store.revision))
        fork = store.fork()
        forked = [*log]
        await write(store, rng)
        while not store.pack(store.revision):
            pass
        await check(store, log)
        await check(fork, forked)
        fork.watch("", fork.revision, into(forked))
        await write(fork, rng)
        while not fork.pack(fork.revision):
            pass
        await check(fork, forked)
        await check(store, log)


async def test_an_archive_receives_the_values_that_were_written() -> None:
    rng, store = random.Random(3), MemoryStore()
    log: list[Event] = []
    store.watch("", 0, into(log))
    for _ in range(60):
        await write(store, rng)
    while not store.pack(store.revision):
        pass
    events, causes, reached = store.copy_of_history().transactions(0, 10_000)
    assert (events, reached) == (log, store.revision)
    assert len(causes) == len({event.revision for event in log})


def logged(store: MemoryStore) -> list[Event]:
    return store.copy_of_history()._log


async def test_values_shrink_and_reads_do_not_change() -> None:
    store = MemoryStore()
    for number in range(50):
        for version in range(3):
            await store.txn([Put(f"core/pods/default/web-{number}", TEMPLATE + b"%d %d" % (number, version))])
    written = [event.now for event in logged(store) if event.now is not None]
    values, size = [entry.value for entry in written], store.size()
    while not store.pack(store.revision):
        pass
    packed = [entry for entry in written if entry.compressed is not None]
    assert len(packed) == len(written) - 1 == 149, "one value is the base of the others"
    assert max(len(entry.compressed or b"") for entry in packed) < len(TEMPLATE) / 20
    assert len({id(entry.base) for entry in packed}) == 1
    assert [entry.value for entry in written] == values
    assert [entry.size for entry in written] == [*map(len, values)]
    assert store.size() == size
    assert [event.now for event in logged(store)] == written, "the state, the log and the readers share the entries"


def test_the_first_state_is_compressed_in_bounded_steps() -> None:
    base = [KeyValue(f"core/pods/x/{number}", TEMPLATE + b"%d" % number, 7, 7) for number in range(100)]
    history = History(base, compacted=7)
    steps = [0]
    while not history.pack(7, 32):
        steps.append(sum(entry.compressed is not None for entry in base))
    assert max(b - a for a, b in pairwise(steps)) == 32
    assert sum(entry.compressed is not None for entry in base) == 99
    assert [entry.value for entry in base] == [TEMPLATE + b"%d" % number for number in range(100)]


def test_an_entry_is_equal_whether_it_is_compressed_or_not() -> None:
    plain, packed = (KeyValue("core/pods/x/a-1", TEMPLATE + b"1", 3, 5) for _ in range(2))
    history = History([packed, KeyValue("core/pods/x/a-0", TEMPLATE, 2, 2)])
    assert history.pack(0, 10)
    assert packed.compressed is not None
    assert plain == packed and hash(plain) == hash(packed)
    assert packed != plain.with_value(TEMPLATE)
    assert repr(packed) == repr(plain)


def test_a_value_can_be_read_at_any_moment_of_its_compression() -> None:
    """The thread that writes the archive reads values while they are compressed."""
    entry, read = KeyValue("core/pods/x/a-1", TEMPLATE + b"1", 3, 5), list[bytes]()
    history = History([entry, KeyValue("core/pods/x/a-0", TEMPLATE, 2, 2)])

    def trace(frame: FrameType, _: str, __: Any) -> Any:
        if frame.f_code is not KeyValue.compress.__code__:
            return trace if not read else None
        sys.settrace(None)
        read.append(entry.value)
        sys.settrace(trace)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        history.pack(0, 10)
    finally:
        sys.settrace(before)
    assert len(read) > 3, "each line was traced"
    assert {*read} == {TEMPLATE + b"1"}


def packed_by(history: History) -> int:
    return sum(event.now is not None and event.now.compressed is not None for event in history._log)


def test_a_step_is_bounded_also_in_a_large_transaction() -> None:
    history, keys = History(), [f"core/pods/x/{number}" for number in range(5_000)]
    before: dict[str, KeyValue] = {}
    for revision in (1, 2, 3):
        events = []
        for key in keys:
            now = KeyValue(key, TEMPLATE + b"%d" % revision, 1, revision)
            events.append(Event(revision, key, now, before.get(key)))
            before[key] = now
        history.apply(events, b"")
    steps = [packed_by(history)]
    while not history.pack(3, 32):
        steps.append(packed_by(history))
    assert max(b - a for a, b in pairwise(steps)) == 32
    assert packed_by(history) == 3 * 5_000 - 1
    assert history.get(keys[0], 1) == KeyValue(keys[0], TEMPLATE + b"1", 1, 1)
    assert history.get(keys[-1], 2) == KeyValue(keys[-1], TEMPLATE + b"2", 1, 2)


class StopTest(Exception): ...


class Ticks:
    """A clock that counts its sleeps; during each long one there are writes."""

    def __init__(self, store: MemoryStore, intervals: int) -> None:
        self.store = store
        self.intervals = intervals
        self.pauses = 0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        if seconds < 1:
            self.pauses += 1
            return
        assert seconds == 5
        if not self.intervals:
            raise StopTest
        self.intervals -= 1
        for number in range(100):
            await self.store.txn([Put("core/pods/default/web-1", TEMPLATE + b"%d" % number)])


async def test_values_of_the_last_interval_stay_uncompressed() -> None:
    store = MemoryStore()
    clock = Ticks(store, 4)
    with pytest.raises(StopTest):
        await pack_forever(store, clock, interval=5)
    written = [event.now for event in logged(store) if event.now is not None]
    packed = [entry.mod_revision for entry in written if entry.compressed is not None]
    assert packed == [*range(2, 301)], "the first value is the base; the last interval is not compressed"
    assert clock.pauses >= 3, "there are pauses between the steps"
