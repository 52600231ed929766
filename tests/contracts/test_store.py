"""Contract tests of `setpoint.store.interface`, run against every backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from os import urandom
from pathlib import Path

import pytest
from effort import tries
from etcd_process import etcd_process
from ipc_replicas import OwnedReplica, ServedStore
from lagging_store import LaggingStore, Medium
from numbered_causes import NumberedCauses

from setpoint.store.delayed_replica import DelayedReplica
from setpoint.store.encryption import AesGcm, EncryptedStore, KeyedProvider, NamedKey, Transformer
from setpoint.store.interface import (
    Cause,
    Check,
    Compacted,
    CompareFailed,
    Delete,
    Event,
    FutureRevision,
    KeyValue,
    Op,
    Page,
    Put,
    Store,
    StoreError,
    Unavailable,
)
from setpoint.store.memory import MemoryStore
from setpoint.store.sqlite import SqliteStore


async def open_memory(folder: Path) -> Store:
    return MemoryStore()


async def open_sqlite(folder: Path) -> Store:
    return SqliteStore.open(folder / "store.db")


async def open_encrypted(folder: Path) -> Store:
    transformer = Transformer([KeyedProvider("aesgcm", "AES", [NamedKey("one", AesGcm(b"k" * 32, urandom))])])
    return EncryptedStore(MemoryStore(), Always(transformer))


async def open_lagging(folder: Path) -> Store:
    return LaggingStore()


def open_replica_pair() -> tuple[Store, Store]:
    """A memory store and a replica that lags by up to 3 ms."""
    medium = MemoryStore(shared=True)
    return medium, DelayedReplica(medium, lambda revision: revision * 7 % 4 / 1_000)


async def open_replica(folder: Path) -> Store:
    return open_replica_pair()[1]


async def open_ipc(folder: Path) -> Store:
    """A replica of a memory store, over a pair of sockets."""
    return await OwnedReplica.of(MemoryStore())


_prefixes = count()


async def open_etcd(folder: Path) -> Store:
    """A new prefix on the etcd that `etcd_endpoint` has started: starting one for each test would take minutes."""
    from setpoint.store.etcd.store import EtcdStore

    return await EtcdStore.open([_etcd_endpoint[0]], prefix=f"/test-{next(_prefixes)}/", number=partial(urandom, 16))


async def open_etcd_with_offset(folder: Path) -> Store:
    one, other = await open_etcd_pair(first_revision=5_000_000)
    await one.close()
    return other


async def open_etcd_pair(first_revision: int | None = None) -> tuple[Store, Store]:
    from setpoint.store.etcd.replacement import replace_content
    from setpoint.store.etcd.store import EtcdStore

    prefix, number = f"/test-{next(_prefixes)}/", partial(urandom, 16)
    if first_revision is not None:
        await replace_content([_etcd_endpoint[0]], prefix, None, first_revision)
    one = await EtcdStore.open([_etcd_endpoint[0]], prefix=prefix, number=number)
    return one, await EtcdStore.open([_etcd_endpoint[0]], prefix=prefix, number=number)


@dataclass
class Always:
    transformer: Transformer

    def for_key(self, key: str) -> Transformer:
        return self.transformer


BACKENDS: dict[str, Callable[[Path], Awaitable[Store]]] = {
    "memory": open_memory,
    "sqlite": open_sqlite,
    "encrypted": open_encrypted,
    "lagging": open_lagging,
    "replica": open_replica,
    "ipc": open_ipc,
    "etcd": open_etcd,
    "etcd with offset": open_etcd_with_offset,
}
_etcd_endpoint: list[str] = []


@pytest.fixture(scope="session")
def etcd_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with etcd_process(tmp_path_factory.mktemp("etcd")) as running:
        _etcd_endpoint[:] = [running.endpoint]
        yield


@pytest.fixture(params=BACKENDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param.startswith("etcd"):
        request.getfixturevalue("etcd_endpoint")
    store = await BACKENDS[request.param](tmp_path)
    yield store
    await store.close()


class RecordingSink:
    """A sink that remembers, and can be waited for."""

    def __init__(self) -> None:
        self.calls: list[list[Event]] = []
        self._called = asyncio.Event()

    def __call__(self, events: Sequence[Event], revision: int) -> None:
        assert not events or events[-1].revision <= revision
        self.calls.append(list(events))
        self._called.set()

    @property
    def events(self) -> list[Event]:
        return [event for call in self.calls for event in call]

    async def received(self, count: int) -> list[Event]:
        async with asyncio.timeout(10):
            while len(self.events) < count:
                self._called.clear()
                await self._called.wait()
        assert len(self.events) == count
        return self.events


async def put(store: Store, key: str, value: bytes = b"", expect: int | None = None) -> KeyValue:
    _, (kept,) = await store.txn([Put(key, value, expect)])
    assert kept is not None
    return kept


async def keys(listed: Awaitable[Page]) -> list[str]:
    return [item.key for item in (await listed).items]


# -- one order --------------------------------------------------------------------------------------------------------


async def test_a_new_store_is_empty(store: Store) -> None:
    assert store.compacted in (0, store.revision)
    assert await store.get("a") is None
    assert await store.list("") == Page([], store.revision, False, 0)


async def test_written_values_can_be_read(store: Store) -> None:
    before = store.revision
    revision, answers = await store.txn([Put("a/b", b"one")])
    assert revision > before
    assert answers == [KeyValue("a/b", b"one", revision, revision)]
    assert await store.get("a/b") == KeyValue("a/b", b"one", revision, revision)
    assert store.revision == revision


async def test_an_overwrite_keeps_the_create_revision_and_a_re_creation_does_not(store: Store) -> None:
    made = await put(store, "a", b"1")
    second = await put(store, "a", b"2")
    assert second == KeyValue("a", b"2", made.mod_revision, second.mod_revision)
    deleted, _ = await store.txn([Delete("a")])
    again = await put(store, "a", b"3")
    assert again == KeyValue("a", b"3", again.mod_revision, again.mod_revision)
    assert made.mod_revision < second.mod_revision < deleted < again.mod_revision


async def test_all_operations_of_a_transaction_share_its_revision(store: Store) -> None:
    await put(store, "b", b"old")
    at, answers = await store.txn([Put("c", b"3"), Delete("b"), Put("a", b"1", 0), Delete("absent")])
    assert answers == [KeyValue("c", b"3", at, at), None, KeyValue("a", b"1", at, at), None]
    assert await keys(store.list("")) == ["a", "c"]


async def test_a_check_changes_nothing_and_must_hold(store: Store) -> None:
    kept = await put(store, "lease", b"mine")
    at, answers = await store.txn([Put("a", b"1"), Check("lease", kept.mod_revision), Check("absent", 0)])
    assert answers == [KeyValue("a", b"1", at, at), None, None]
    assert await store.get("lease") == kept
    assert await store.txn([Check("lease", kept.mod_revision)]) == (at, [None])
    with pytest.raises(CompareFailed) as failed:
        await store.txn([Put("a", b"2"), Check("lease", at)])
    assert (failed.value.key, failed.value.current) == ("lease", kept)
    with pytest.raises(CompareFailed):
        await store.txn([Put("a", b"2"), Check("lease", 0)])
    assert await store.get("a") == KeyValue("a", b"1", at, at)
    # Pending transactions count too: the write commits before the renewal or not at all.
    renewal, late = await asyncio.gather(
        put(store, "lease", b"yours"),
        store.txn([Put("a", b"2"), Check("lease", kept.mod_revision)]),
        return_exceptions=True,
    )
    assert isinstance(renewal, KeyValue)
    if isinstance(late, CompareFailed):
        assert late.current == renewal
    else:
        assert not isinstance(late, BaseException)
        assert late[0] < renewal.mod_revision


async def test_a_transaction_without_operations_changes_nothing(store: Store) -> None:
    revision = (await put(store, "a")).mod_revision
    assert await store.txn([]) == (revision, [])
    assert store.revision == revision


async def test_values_of_three_mebibytes(store: Store) -> None:
    value = bytes(range(256)) * (3 << 12)
    made = await put(store, "big", value)
    assert made.value == value
    assert await store.get("big") == made


@pytest.mark.parametrize("key", ["", "a\0b", "\ud800"])
async def test_invalid_keys(store: Store, key: str) -> None:
    before = store.revision
    with pytest.raises(ValueError):
        await store.txn([Put("fine", b""), Put(key, b"")])
    assert store.revision == before


async def test_duplicate_keys_in_a_transaction(store: Store) -> None:
    with pytest.raises(ValueError, match="twice"):
        await store.txn([Put("a", b""), Delete("a")])


# -- compare and swap -------------------------------------------------------------------------------------------------


async def test_comparisons_that_hold(store: Store) -> None:
    made = await put(store, "a", b"1", 0)
    await put(store, "a", b"2", made.mod_revision)
    third = await put(store, "a", b"3", None)
    revision, _ = await store.txn([Delete("a", third.mod_revision)])
    assert await store.txn([Delete("a", 0)]) == (revision, [None])


@pytest.mark.parametrize(
    "op",
    [Put("a", b"x", 0), Put("a", b"x", 999), Delete("a", 999), Delete("a", 0), Put("b", b"x", 1), Delete("b", 1)],
)
async def test_comparisons_that_fail(store: Store, op: Op) -> None:
    made = await put(store, "a", b"1")
    with pytest.raises(CompareFailed) as failed:
        await store.txn([Put("other", b""), op])
    assert (failed.value.key, failed.value.current) == (op.key, made if op.key == "a" else None)
    assert store.revision == made.mod_revision
    assert await store.get("other") is None


async def test_of_many_creations_one_wins_and_the_others_see_it(store: Store) -> None:
    async def create(number: int) -> bool:
        try:
            await put(store, "prize", b"%d" % number, 0)
        except CompareFailed as failed:
            assert failed.current is not None
            assert failed.current == await store.get("prize")
            return False
        return True

    before = store.revision
    assert sum(await asyncio.gather(*map(create, range(100)))) == 1
    assert [event.key for event in (await store.replay("", before, 1_000)).events] == ["prize"]


async def increment(store: Store, key: str) -> None:
    current = await store.get(key)
    while True:
        value = int(current.value) if current else 0
        try:
            await store.txn([Put(key, b"%d" % (value + 1), current.mod_revision if current else 0)])
            return
        except CompareFailed as failed:
            # A retry from the entry in the exception is never stale.
            assert failed.current == await store.get(key)
            current = failed.current


async def test_no_increment_is_lost_among_thousands_of_writers(store: Store) -> None:
    sink = RecordingSink()
    store.watch("counter/", store.revision, sink)
    writers = tries(2_000, 5_000)
    await asyncio.gather(*(increment(store, f"counter/{number % 100}") for number in range(writers)))
    assert {item.value for item in (await store.list("counter/")).items} == {b"%d" % (writers // 100)}
    revisions = [event.revision for event in await sink.received(writers)]
    assert revisions == sorted(set(revisions))
    assert store.revision == revisions[-1]


async def test_creation_and_deletion_race(store: Store) -> None:
    """A creation that meets a creation under way, itself to be deleted, ends in either way but never in nonsense."""

    async def create() -> None:
        try:
            await put(store, "a", b"", 0)
        except CompareFailed as failed:
            assert failed.current is not None

    await asyncio.gather(*(step for _ in range(50) for step in (create(), store.txn([Delete("a")]), create())))
    sink = RecordingSink()
    store.watch("", store.compacted, sink)
    for event, following in zip(sink.events, sink.events[1:], strict=False):
        assert following.before == event.now


async def test_a_cancelled_transaction_happens_wholly_or_not_at_all(store: Store) -> None:
    async def write(number: int) -> None:
        await store.txn([Put(f"left/{number}", b""), Put(f"right/{number}", b"")])

    for turns in range(5):
        tasks = [asyncio.create_task(write(10 * turns + number)) for number in range(10)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [outcome for outcome in outcomes[1::2] if outcome is not None] == []
    await put(store, "after", b"")
    left, right = await keys(store.list("left/")), await keys(store.list("right/"))
    assert [key.removeprefix("left/") for key in left] == [key.removeprefix("right/") for key in right]
    assert {f"left/{number}" for number in range(1, 50, 2)} <= set(left)
    assert len((await store.replay("left/", store.compacted, 1_000)).events) == len(left)


# -- deleting ---------------------------------------------------------------------------------------------------------


async def test_deleting_only_absent_keys_takes_no_revision(store: Store) -> None:
    revision = (await put(store, "a")).mod_revision
    assert await store.txn([Delete("x"), Delete("y", 0)]) == (revision, [None, None])
    assert store.revision == revision


async def test_of_many_deletions_one_counts_and_all_see_the_result(store: Store) -> None:
    await put(store, "a")

    async def delete() -> int:
        revision, _ = await store.txn([Delete("a")])
        assert await store.get("a") is None
        return revision

    before = store.revision
    revisions = set(await asyncio.gather(*(delete() for _ in range(20))))
    assert revisions == {store.revision} and store.revision > before


# -- stamping ---------------------------------------------------------------------------------------------------------


async def test_the_revision_is_stamped_into_the_value(store: Store) -> None:
    for _ in range(9):
        await put(store, "filler")
    sink = RecordingSink()
    store.watch("a", store.revision, sink)
    at, answers = await store.txn([Put("a", b'{"rv":""}', stamp=7), Put("b", b"x", stamp=0), Put("c", b"x", stamp=1)])
    assert [answer.value for answer in answers if answer] == [b'{"rv":"%d"}' % at, b"%dx" % at, b"x%d" % at]
    assert (await store.get("a")) == answers[0]
    assert (await store.list("a")).items == [answers[0]]
    assert [event.now for event in await sink.received(1)] == [answers[0]]


async def test_a_stamp_outside_of_the_value(store: Store) -> None:
    before = store.revision
    for stamp in (-1, 3):
        with pytest.raises(ValueError, match="outside"):
            await store.txn([Put("a", b"ab", stamp=stamp)])
    assert store.revision == before


# -- listing ----------------------------------------------------------------------------------------------------------

NAMES = ["a", "a/", "a/b", "a/b/c", "a/bc", "a0", "aé/x", "a\uffff", "a\U0001f600", "a\U0010ffff", "b"]


async def test_keys_come_in_byte_order(store: Store) -> None:
    for name in reversed(NAMES):
        await put(store, name)
    assert await keys(store.list("")) == sorted(NAMES, key=str.encode)


@pytest.mark.parametrize("prefix", ["", "a", "a/", "a/b", "aé", "a\uffff", "a\U0010ffff", "b", "c", "\U0010ffff"])
@pytest.mark.parametrize("start", ["", "a/b", "a/b\0", "a/zzz", "a\U0001f600", "zzz"])
async def test_prefix_start_limit(prefix: str, start: str) -> None:
    store = MemoryStore()
    for name in NAMES:
        await put(store, name)
    expected = sorted(name for name in NAMES if name.startswith(prefix) and name >= start)
    for limit in range(5):
        page = await store.list(prefix, start=start, limit=limit)
        assert [item.key for item in page.items] == (expected[:limit] if limit else expected)
        assert (page.total, page.more) == (len(expected), bool(limit) and limit < len(expected))


async def test_pages_of_one_revision_while_writers_write(store: Store) -> None:
    made, _ = await store.txn([Put(f"pods/{number:04}", b"old") for number in range(0, 2_000, 2)])
    await store.txn([Put("podsecurity/x", b""), Put("pod", b"")])

    async def write(number: int) -> None:
        key = f"pods/{number:04}"
        match number % 3:
            case 0:
                await store.txn([Delete(key)])
            case 1:
                await store.txn([Put(key, b"new")])
            case 2:
                await store.txn([Put(key, b"newer"), Put(key + "/more", b"")])

    async with asyncio.TaskGroup() as group:
        page = await store.list("pods/", limit=100)
        seen = [*page.items]
        first = page.revision
        while page.more:
            for number in range(len(seen) * 2 - 200, len(seen) * 2 + 400):
                group.create_task(write(number % 2_000))
            await put(store, "tick")
            page = await store.list("pods/", start=seen[-1].key + "\0", limit=100, revision=first)
            assert page.revision == first
            assert page.total == 1_000 - len(seen)
            seen += page.items
    assert store.revision > first + 2_000
    assert seen == [KeyValue(f"pods/{number:04}", b"old", made, made) for number in range(0, 2_000, 2)]


# -- the past ---------------------------------------------------------------------------------------------------------


@dataclass
class Past:
    """The states after each transaction: `states[n]` belongs to the revision `revisions[n]`, and the first to the
    start."""

    states: list[dict[str, KeyValue]]
    revisions: list[int]

    def before(self, revision: int) -> dict[str, KeyValue]:
        return self.states[self.revisions.index(revision) - 1]

    def at(self, revision: int) -> dict[str, KeyValue]:
        return self.states[self.revisions.index(revision)]


async def write_a_past(store: Store) -> Past:
    ops: list[list[Op]] = [
        [Put("a", b"1")],
        [Put("b", b"2"), Put("c", b"2")],
        [Put("a", b"3")],
        [Delete("b"), Put("d", b"4")],
        [Put("b", b"5")],
        [Delete("a"), Delete("c")],
        [Put("a", b"7")],
    ]
    past = Past([{}], [store.revision])
    for each in ops:
        past.revisions.append((await store.txn(each))[0])
        past.states.append({item.key: item for item in (await store.list("")).items})
    return past


async def test_get_and_list_at_every_revision(store: Store) -> None:
    past = await write_a_past(store)
    for revision, state in [*zip(past.revisions, past.states, strict=True)][1:]:
        page = await store.list("", revision=revision)
        assert page == Page([state[key] for key in sorted(state)], revision, False, len(state))
        for key in "abcdx":
            assert await store.get(key, revision) == state.get(key)
        assert (
            await keys(store.list("", start="b", limit=1, revision=revision))
            == [k for k in sorted(state) if k >= "b"][:1]
        )


async def test_the_future_cannot_be_read(store: Store) -> None:
    now = (await put(store, "a")).mod_revision
    with pytest.raises(FutureRevision) as future:
        await store.get("a", now + 1)
    assert (future.value.requested, future.value.current) == (now + 1, now)
    with pytest.raises(FutureRevision):
        await store.list("", revision=now + 1)
    with pytest.raises(FutureRevision):
        await store.compact(now + 1)


async def test_compaction(store: Store) -> None:
    past = await write_a_past(store)
    states, revisions = past.states, past.revisions
    compacted = revisions[4]
    await store.compact(compacted)
    assert store.compacted == compacted
    for revision in revisions[1:5]:
        with pytest.raises(Compacted) as gone:
            await store.get("a", revision)
        assert (gone.value.requested, gone.value.oldest) == (revision, compacted + 1)
        with pytest.raises(Compacted):
            await store.list("", revision=revision)
    for after in revisions[:4]:
        with pytest.raises(Compacted):
            store.watch("", after, RecordingSink())
        with pytest.raises(Compacted):
            await store.replay("", after, 10)
    for number in range(5, 8):
        assert (await store.list("", revision=revisions[number])).items == [
            states[number][k] for k in sorted(states[number])
        ]
    sink = RecordingSink()
    store.watch("", compacted, sink)
    assert [event.revision for event in await sink.received(4)] == [revisions[number] for number in (5, 6, 6, 7)]
    assert [event.before for event in sink.events] == [None, states[5]["a"], states[5]["c"], None]


async def test_the_current_state_can_be_read_after_any_compaction(store: Store) -> None:
    past = await write_a_past(store)
    last, state = past.revisions[7], past.states[7]
    await store.compact(last)
    await store.compact(past.revisions[3])
    assert store.compacted == last
    assert (await store.list("", revision=last)).items == [state[k] for k in sorted(state)]
    assert await store.get("a", last) == await store.get("a")
    sink = RecordingSink()
    store.watch("", last, sink)
    await put(store, "z")
    assert len(await sink.received(1)) == 1


async def test_compaction_with_concurrent_writers(store: Store) -> None:
    async def write(name: str) -> None:
        for number in range(100):
            await put(store, name, b"%d" % number)
            if number % 10 == 9:
                await store.txn([Delete(name)])

    async def compact() -> None:
        while store.revision < 1_000:
            await store.compact(store.revision)
            await put(store, "tick")

    await asyncio.gather(compact(), *(write(f"key/{number}") for number in range(20)))
    await put(store, "key/0", b"last")
    await store.compact(store.revision)
    assert await keys(store.list("key/")) == ["key/0"]


# -- watching ---------------------------------------------------------------------------------------------------------


async def test_a_watch_resumes_after_any_revision(store: Store) -> None:
    live = RecordingSink()
    store.watch("", store.revision, live)
    past = await write_a_past(store)
    everything = await live.received(10)
    for event in everything:
        assert event.now == past.at(event.revision).get(event.key)
        assert event.before == past.before(event.revision).get(event.key)
    for after in past.revisions:
        sink = RecordingSink()
        store.watch("", after, sink)
        expected = [event for event in everything if event.revision > after]
        assert await sink.received(len(expected)) == expected
        for limit in (1, 3, 100):
            assert await replayed(store, "", after, limit) == expected


async def replayed(store: Store, prefix: str, after: int, limit: int) -> list[Event]:
    found: list[Event] = []
    while after < store.revision:
        events, reached = await store.replay(prefix, after, limit)
        assert reached > after
        assert not events or (after < events[0].revision and events[-1].revision <= reached)
        found += events
        after = reached
    return found


async def test_a_replay_joins_live_events_without_a_gap(store: Store) -> None:
    """A reader replays in steps while writers write, and subscribes when it has caught up."""
    begin = store.revision
    writers = [asyncio.create_task(put(store, f"a/b/{number}")) for number in range(300)]
    others = [asyncio.create_task(put(store, f"a/c/{number}")) for number in range(300)]
    after, found, sink = begin, list[Event](), RecordingSink()
    while True:
        events, after = await store.replay("a/b/", after, 7)
        found += events
        if after >= store.revision and len(found) > 50:
            store.watch("a/b/", after, sink)
            break
        await asyncio.sleep(0)
    await asyncio.gather(*writers, *others)
    await sink.received(300 - len(found))
    revisions = [event.revision for event in (*found, *sink.events)]
    assert revisions == sorted(set(revisions)) and len(revisions) == 300


async def test_a_watch_delivers_history_and_live_events_without_a_gap(store: Store) -> None:
    ears: list[RecordingSink] = []
    begin = store.revision
    writers = [asyncio.create_task(put(store, f"a/{number}")) for number in range(300)]
    for _ in range(100):
        ears.append(RecordingSink())
        store.watch("a/", begin, ears[-1])
        await asyncio.sleep(0)
    revisions = sorted(made.mod_revision for made in await asyncio.gather(*writers))
    for sink in ears:
        assert [event.revision for event in await sink.received(300)] == revisions


async def test_the_events_of_a_transaction_are_delivered_together(store: Store) -> None:
    sink = RecordingSink()
    store.watch("", store.revision, sink)
    await asyncio.gather(*(store.txn([Put(f"{n}/{m}", b"") for m in range(5)]) for n in range(50)))
    await sink.received(250)
    ends = [call[-1].revision for call in sink.calls]
    assert ends == sorted(set(ends))
    assert all(call[0].revision > end for call, end in zip(sink.calls[1:], ends, strict=False))


async def test_watches_receive_only_events_of_their_prefix(store: Store) -> None:
    prefixes = ["", "pods", "pods/", "pods/a", "pods/a/", "pods/a/x", "pod", "podsecurity/", "nodes/", "zz"]
    names = ["pods/a/x", "pods/a/xy", "pods/b/x", "podsecurity/x", "nodes/n", "plain", "pods/a/x"]
    ears = {prefix: RecordingSink() for prefix in prefixes}
    for prefix, sink in ears.items():
        store.watch(prefix, store.revision, sink)
    for name in names:
        await put(store, name)
    for prefix, sink in ears.items():
        expected = [name for name in names if name.startswith(prefix)]
        assert [event.key for event in await sink.received(len(expected))] == expected


async def test_a_watch_from_a_future_revision_waits_for_it(store: Store) -> None:
    sink, future = RecordingSink(), store.revision + 3
    store.watch("", future, sink)
    revisions = [(await put(store, "a")).mod_revision for _ in range(20)]
    later = [revision for revision in revisions if revision > future]
    assert [event.revision for event in await sink.received(len(later))] == later


async def test_nothing_is_delivered_after_close(store: Store) -> None:
    sink, other = RecordingSink(), RecordingSink()
    subscription = store.watch("", store.revision, sink)
    store.watch("", store.revision, other)
    await put(store, "a")
    await sink.received(1)
    subscription.close()
    subscription.close()
    await put(store, "b")
    await other.received(2)
    assert len(sink.events) == 1


async def test_subscribers_may_close_and_open_subscriptions_during_delivery(store: Store) -> None:
    second, late = RecordingSink(), RecordingSink()

    def first(events: Sequence[Event], revision: int) -> None:
        doomed.close()
        own.close()
        store.watch("", begin, late)

    begin = store.revision
    own = store.watch("", begin, first)
    doomed = store.watch("", begin, second)
    await put(store, "a")
    await put(store, "b")
    assert [event.key for event in await late.received(2)] == ["a", "b"]
    assert second.events == []


async def test_a_sink_that_raises_does_not_affect_others(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def broken(events: Sequence[Event], revision: int) -> None:
        raise RuntimeError("broken")

    sink = RecordingSink()
    store.watch("", store.revision, broken)
    store.watch("", store.revision, sink)
    made = await put(store, "a")
    await sink.received(1)
    assert f"failed on revision {made.mod_revision}" in caplog.text


async def test_acknowledged_or_delivered_writes_can_be_read(store: Store) -> None:
    def sink(events: Sequence[Event], revision: int) -> None:
        delivered.append(events[-1].revision)
        assert store.revision >= revision

    delivered: list[int] = []
    store.watch("", store.revision, sink)
    for _ in range(30):
        kept = await put(store, "a")
        assert store.revision >= kept.mod_revision
        assert await store.get("a") == kept
        assert delivered[-1] == kept.mod_revision, "subscribers have been called before the writer is answered"


async def test_a_failed_comparison_can_read_its_cause(store: Store) -> None:
    """Also by subscription: a cache that follows the store is as new as the failure."""
    seen: dict[str, int] = {}

    def sink(events: Sequence[Event], revision: int) -> None:
        seen.update((event.key, event.now.mod_revision) for event in events if event.now is not None)

    store.watch("", store.revision, sink)
    made = await put(store, "a", b"0")
    attempts = 0

    async def write(number: int) -> None:
        nonlocal attempts
        expected = made.mod_revision
        while True:
            attempts += 1
            try:
                await put(store, "a", b"%d" % number, expected)
                return
            except CompareFailed as failed:
                assert failed.current is not None and failed.current.mod_revision <= seen["a"] != expected
                expected = seen["a"]

    await asyncio.gather(*map(write, range(10)))
    assert attempts <= 55, "each attempt that fails was beaten by another writer"


# -- other writers ----------------------------------------------------------------------------------------------------


async def test_sync_and_reached(store: Store) -> None:
    assert await store.sync() == store.revision
    made = await put(store, "a")
    assert await store.sync() >= made.mod_revision
    await store.wait_for_revision(made.mod_revision)
    future = made.mod_revision + 5
    waiting = [asyncio.create_task(store.wait_for_revision(future)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    while store.revision < future:
        assert not waiting[1].done()
        await put(store, "a")
    await asyncio.gather(*waiting[1:])


async def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    store = MemoryStore()
    for _ in range(100):
        waiting = asyncio.create_task(store.wait_for_revision(10**15))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert store._waiters == []


@pytest.mark.parametrize("backend", ["memory", "sqlite", "encrypted"])
async def test_sync_of_the_only_writer_does_not_suspend(backend: str, tmp_path: Path) -> None:
    store = await BACKENDS[backend](tmp_path)
    made = await put(store, "a")
    with pytest.raises(StopIteration) as returned:
        store.sync().send(None)
    assert returned.value.value == made.mod_revision
    await store.close()


@pytest.fixture
async def lagging_pair() -> AsyncIterator[tuple[LaggingStore, LaggingStore]]:
    """Two stores on one medium that show everything as late as the contract allows."""
    medium = Medium()
    one, other = LaggingStore(medium), LaggingStore(medium)
    yield one, other
    await one.close()
    await other.close()


@pytest.fixture(params=["lagging", "replica", "ipc", "etcd", "etcd with offset"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores on one medium."""
    if request.param == "lagging":
        medium = Medium()
        stores: tuple[Store, Store] = LaggingStore(medium), LaggingStore(medium)
    elif request.param == "replica":
        stores = open_replica_pair()
    elif request.param == "ipc":
        owner = ServedStore(SqliteStore.open(tmp_path / "store.db"))
        stores = await owner.replica(), await owner.replica()
    else:
        request.getfixturevalue("etcd_endpoint")
        stores = await open_etcd_pair(5_000_000 if request.param == "etcd with offset" else None)
    yield stores
    for each in stores:
        await each.close()


async def test_sync_shows_the_acknowledged_writes_of_the_other_store(pair: tuple[Store, Store]) -> None:
    one, other = pair
    stale = 0
    for number in range(50):
        made = await put(one, "a", b"%d" % number)
        stale += await other.get("a") != made
        assert await other.sync() >= made.mod_revision
        assert await other.get("a") == made
    assert stale or not isinstance(other, LaggingStore), "without sync a store may be behind"


async def test_both_stores_see_one_order_and_their_own_writes(pair: tuple[Store, Store]) -> None:
    ears = RecordingSink(), RecordingSink()
    for store, sink in zip(pair, ears, strict=True):
        store.watch("", store.revision, sink)

    async def count(store: Store) -> None:
        for number in range(30):
            await increment(store, f"counter/{number % 3}")
            await store.txn([Put(f"x/{number}/{id(store)}", b""), Put(f"y/{number}/{id(store)}", b"")])

    await asyncio.gather(*(count(store) for store in pair for _ in range(3)))
    for store in pair:
        await store.sync()
    assert ears[0].events == ears[1].events
    assert {item.value for item in (await pair[0].list("counter/")).items} == {b"60"}
    ends = [call[-1].revision for call in ears[1].calls]
    begins = [call[0].revision for call in ears[1].calls]
    assert all(end < begin for end, begin in zip(ends, begins[1:], strict=False)), "no transaction is split"


async def test_a_watch_resumes_on_the_other_store(pair: tuple[Store, Store]) -> None:
    one, other = pair
    begin = one.revision
    revisions = [(await put(one, f"a/b/{number}")).mod_revision for number in range(40)]
    await other.wait_for_revision(revisions[20])
    sink = RecordingSink()
    other.watch("a/b/", revisions[20], sink)
    assert [event.revision for event in await sink.received(19)] == revisions[21:]
    assert [event.revision for event in await replayed(other, "a/b/", begin, 7)] == revisions


async def test_a_compaction_by_one_store_is_known_to_the_other(pair: tuple[Store, Store]) -> None:
    one, other = pair
    first = await put(one, "a")
    last = await put(one, "a")
    await other.sync()
    await one.compact(last.mod_revision)
    await other.sync()
    assert other.compacted == last.mod_revision
    with pytest.raises(Compacted):
        other.watch("", first.mod_revision, RecordingSink())
    assert await other.get("a") == last


async def test_stores_on_one_medium_compact_it_once_in_a_period(pair: tuple[Store, Store]) -> None:
    """Each keeps what it saw one period ago; when the one that compacts stops, the other takes over."""
    one, other = pair
    seen = {one: one.revision, other: other.revision}

    async def period(*stores: Store) -> list[Store]:
        compacting = []
        for store in stores:
            await put(one, "a")
            await store.sync()
            kept, seen[store] = seen[store], store.revision
            if await store.compact_if_first(kept - 1):
                compacting.append(store)
            for each in pair:
                await each.sync()
                oldest = min(seen[each] for each in stores)
                assert each.compacted <= oldest, "what anyone saw one period ago can be read"
        return compacting

    for _ in range(4):  # until both know of earlier compactions of the medium
        winners = await period(one, other)
    assert len(winners) == 1
    for _ in range(3):
        assert await period(one, other) == winners
    (rest,) = {one, other}.difference(winners)
    await period(rest)  # it may have to learn first that nobody else compacted
    assert await period(rest) == [rest]
    assert await period(*winners) == []
    assert one.compacted == other.compacted


async def test_causes_are_known_to_both_stores(pair: tuple[Store, Store]) -> None:
    begin = pair[0].revision
    for number, store in enumerate((*pair, *pair)):
        await store.txn([Put("a", b"")], b"%d" % number)
    for store in pair:
        await store.sync()
        assert [cause.cause for cause in await store.causes(begin)] == [b"0", b"1", b"2", b"3"]


async def test_an_unavailable_medium_becomes_available_again(lagging_pair: tuple[LaggingStore, LaggingStore]) -> None:
    one, _ = lagging_pair
    made = await put(one, "a")
    one.medium.away = True
    for call in (one.sync(), one.txn([Put("a", b"x")])):
        with pytest.raises(Unavailable):
            await call
    assert one.unavailable and one.failure is None
    assert await one.get("a") == made
    one.medium.away = False
    assert await one.sync() >= made.mod_revision
    assert one.unavailable is None


# -- causes and closing -----------------------------------------------------------------------------------------------


async def test_causes(store: Store) -> None:
    begin, revisions = store.revision, list[int]()
    for number in range(1, 7):
        cause = b"cause %d" % number if number != 3 else b""
        revisions.append((await store.txn([Put("a", b""), Put("b", b"")], cause))[0])
    assert await store.causes(begin, 2) == [Cause(revisions[0], b"cause 1"), Cause(revisions[1], b"cause 2")]
    assert [cause.revision for cause in await store.causes(revisions[1])] == revisions[3:]
    await store.compact(revisions[3])
    assert [cause.revision for cause in await store.causes(revisions[3])] == revisions[4:]
    with pytest.raises(Compacted):
        await store.causes(revisions[2])
    assert store.size() > 0


async def test_causes_are_encoded_once_in_the_order_of_the_calls(store: Store) -> None:
    begin, causes = store.revision, NumberedCauses(joins=False)
    await asyncio.gather(*(store.txn([Put(f"key-{number}", b"")], causes.note(number)) for number in range(20)))
    for _ in range(2):
        found = {each.cause for each in await store.causes(begin)}
        assert found == {b"%d" % number for number in range(20)}
    assert causes.calls == [f"encode {number}" for number in range(20)]


async def test_changes_of_one_key(store: Store) -> None:
    assert await store.changes_of("pods/a/x") == []
    first = await put(store, "pods/a/x", b"1")
    await put(store, "pods/a/y", b"1")
    await put(store, "nodes/x", b"1")
    second = await put(store, "pods/a/x", b"2")
    assert await store.changes_of("pods/a/x") == [
        Event(second.mod_revision, "pods/a/x", second, first),
        Event(first.mod_revision, "pods/a/x", first, None),
    ]
    gone, _ = await store.txn([Delete("pods/a/x"), Put("pods/a/y", b"2")])
    deletion = Event(gone, "pods/a/x", None, second)
    assert await store.changes_of("pods/a/x", limit=1) == [deletion]
    assert [each.revision for each in await store.changes_of("pods/a/x", before=gone)] == [
        second.mod_revision,
        first.mod_revision,
    ]
    assert [each.revision for each in await store.changes_of("pods/a/x", gone, 1)] == [second.mod_revision]
    await store.compact(second.mod_revision)
    assert await store.changes_of("pods/a/x") == [deletion]
    assert await store.changes_of("pods/a/x", before=gone) == []
    again = await put(store, "pods/a/x", b"3")
    assert await store.changes_of("pods/a/x") == [Event(again.mod_revision, "pods/a/x", again, None), deletion]
    await store.compact(store.revision)
    assert await store.changes_of("pods/a/x") == await store.changes_of("pods/a/y") == []


async def test_operations_on_a_closed_store_fail(store: Store) -> None:
    assert store.failure is None
    pending = asyncio.create_task(put(store, "accepted"))
    waiting = asyncio.create_task(store.wait_for_revision(store.revision + 1_000))
    await asyncio.sleep(0)
    await store.close()
    assert (await pending).key == "accepted"
    with pytest.raises(StoreError, match="closed"):
        await waiting
    assert store.failure is not None and "closed" in store.failure
    for call in (
        store.get("a"),
        store.list(""),
        store.txn([Put("a", b"")]),
        store.compact(0),
        store.sync(),
        store.wait_for_revision(1),
        store.replay("", 0, 1),
        store.causes(0),
        store.changes_of("a"),
    ):
        with pytest.raises(StoreError, match="closed"):
            await call
    with pytest.raises(StoreError, match="closed"):
        store.watch("", 0, RecordingSink())
    await store.close()


async def test_a_transaction_within_the_limits(store: Store) -> None:
    count = min(store.limits.operations, 5_000)
    _, made = await store.txn(
        [Put(f"a/b/{number}", bytes(store.limits.size // count // 1_000), 0) for number in range(count)]
    )
    assert None not in made
    assert (await store.list("a/b/", limit=1)).total == count
