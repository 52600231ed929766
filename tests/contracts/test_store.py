"""What `setpoint.store.interface` promises, held against every backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from os import urandom
from pathlib import Path

import pytest

from setpoint.store.encryption.ciphers import AesGcm
from setpoint.store.encryption.encrypted_store import EncryptedStore
from setpoint.store.encryption.providers import Keys, NamedKey, Transformer
from setpoint.store.interface import (
    Cause,
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
)
from setpoint.store.memory import MemoryStore
from setpoint.store.sqlite import SqliteStore


async def open_memory(folder: Path) -> Store:
    return MemoryStore()


async def open_sqlite(folder: Path) -> Store:
    return SqliteStore.open(folder / "store.db")


async def open_encrypted(folder: Path) -> Store:
    transformer = Transformer([Keys("aesgcm", "AES", [NamedKey("one", AesGcm(b"k" * 32, urandom))])])
    return EncryptedStore(MemoryStore(), Always(transformer))


@dataclass
class Always:
    transformer: Transformer

    def for_key(self, key: str) -> Transformer:
        return self.transformer


BACKENDS: dict[str, Callable[[Path], Awaitable[Store]]] = {
    "memory": open_memory, "sqlite": open_sqlite, "encrypted": open_encrypted,
}  # fmt: skip


@pytest.fixture(params=BACKENDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store = await BACKENDS[request.param](tmp_path)
    yield store
    await store.close()


class Ear:
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

    async def heard(self, count: int) -> list[Event]:
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
    assert (store.revision, store.compacted) == (0, 0)
    assert await store.get("a") is None
    assert await store.list("") == Page([], 0, False, 0)


async def test_what_is_put_can_be_read(store: Store) -> None:
    revision, answers = await store.txn([Put("a/b", b"one")])
    assert (revision, answers) == (1, [KeyValue("a/b", b"one", 1, 1)])
    assert await store.get("a/b") == KeyValue("a/b", b"one", 1, 1)
    assert store.revision == 1


async def test_an_overwrite_keeps_the_create_revision_and_a_re_creation_does_not(store: Store) -> None:
    await put(store, "a", b"1")
    assert await put(store, "a", b"2") == KeyValue("a", b"2", 1, 2)
    await store.txn([Delete("a")])
    assert await put(store, "a", b"3") == KeyValue("a", b"3", 4, 4)


async def test_all_operations_of_a_transaction_share_its_revision(store: Store) -> None:
    await put(store, "b", b"old")
    revision, answers = await store.txn([Put("c", b"3"), Delete("b"), Put("a", b"1", 0), Delete("absent")])
    assert revision == 2
    assert answers == [KeyValue("c", b"3", 2, 2), None, KeyValue("a", b"1", 2, 2), None]
    assert await keys(store.list("")) == ["a", "c"]


async def test_a_transaction_without_operations_changes_nothing(store: Store) -> None:
    await put(store, "a")
    assert await store.txn([]) == (1, [])
    assert store.revision == 1


async def test_values_of_three_mebibytes(store: Store) -> None:
    value = bytes(range(256)) * (3 << 12)
    await put(store, "big", value)
    assert (await store.get("big")) == KeyValue("big", value, 1, 1)


@pytest.mark.parametrize("key", ["", "a\0b", "\ud800"])
async def test_what_cannot_be_a_key(store: Store, key: str) -> None:
    with pytest.raises(ValueError):
        await store.txn([Put("fine", b""), Put(key, b"")])
    assert store.revision == 0


async def test_one_key_twice_in_a_transaction(store: Store) -> None:
    with pytest.raises(ValueError, match="twice"):
        await store.txn([Put("a", b""), Delete("a")])


# -- compare and swap -------------------------------------------------------------------------------------------------


async def test_expectations_that_hold(store: Store) -> None:
    await put(store, "a", b"1", 0)
    await put(store, "a", b"2", 1)
    await put(store, "a", b"3", None)
    assert (await store.txn([Delete("a", 3)]))[0] == 4
    assert await store.txn([Delete("a", 0)]) == (4, [None])


@pytest.mark.parametrize(
    ("op", "current"),
    [
        (Put("a", b"x", 0), KeyValue("a", b"1", 1, 1)),
        (Put("a", b"x", 7), KeyValue("a", b"1", 1, 1)),
        (Delete("a", 7), KeyValue("a", b"1", 1, 1)),
        (Delete("a", 0), KeyValue("a", b"1", 1, 1)),
        (Put("b", b"x", 1), None),
        (Delete("b", 1), None),
    ],
)
async def test_expectations_that_do_not(store: Store, op: Op, current: KeyValue | None) -> None:
    await put(store, "a", b"1")
    with pytest.raises(CompareFailed) as failed:
        await store.txn([Put("other", b""), op])
    assert (failed.value.key, failed.value.current) == (op.key, current)
    assert store.revision == 1
    assert await store.get("other") is None


async def test_of_many_creations_one_wins_and_the_losers_see_it(store: Store) -> None:
    async def create(number: int) -> bool:
        try:
            await put(store, "prize", b"%d" % number, 0)
        except CompareFailed as failed:
            assert failed.current is not None
            assert failed.current == await store.get("prize")
            return False
        return True

    assert sum(await asyncio.gather(*map(create, range(100)))) == 1
    assert store.revision == 1


async def increment(store: Store, key: str) -> None:
    current = await store.get(key)
    while True:
        value = int(current.value) if current else 0
        try:
            await store.txn([Put(key, b"%d" % (value + 1), current.mod_revision if current else 0)])
            return
        except CompareFailed as failed:
            # To retry from what the failure carries is never stale.
            assert failed.current == await store.get(key)
            current = failed.current


async def test_no_increment_is_lost_among_thousands_of_writers(store: Store) -> None:
    ear = Ear()
    store.watch("counter/", 0, ear)
    await asyncio.gather(*(increment(store, f"counter/{number % 200}") for number in range(5_000)))
    assert {item.value for item in (await store.list("counter/")).items} == {b"25"}
    assert store.revision == 5_000
    assert [event.revision for event in await ear.heard(5_000)] == [*range(1, 5_001)]


async def test_creation_and_deletion_race(store: Store) -> None:
    """A creation that meets a creation under way, itself to be deleted, ends in either way but never in nonsense."""

    async def create() -> None:
        try:
            await put(store, "a", b"", 0)
        except CompareFailed as failed:
            assert failed.current is not None

    await asyncio.gather(*(step for _ in range(50) for step in (create(), store.txn([Delete("a")]), create())))
    ear = Ear()
    store.watch("", 0, ear)
    for event, following in zip(ear.events, ear.events[1:], strict=False):
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
    assert store.revision == len(left) + 1


# -- deleting ---------------------------------------------------------------------------------------------------------


async def test_to_delete_only_absent_keys_takes_no_revision(store: Store) -> None:
    await put(store, "a")
    assert await store.txn([Delete("x"), Delete("y", 0)]) == (1, [None, None])
    assert store.revision == 1


async def test_of_many_deletions_one_counts_and_all_see_it_done(store: Store) -> None:
    await put(store, "a")

    async def delete() -> int:
        revision, _ = await store.txn([Delete("a")])
        assert await store.get("a") is None
        return revision

    assert set(await asyncio.gather(*(delete() for _ in range(20)))) == {2}


# -- stamping ---------------------------------------------------------------------------------------------------------


async def test_the_revision_is_stamped_into_the_value(store: Store) -> None:
    for _ in range(9):
        await put(store, "filler")
    ear = Ear()
    store.watch("a", 0, ear)
    _, answers = await store.txn([Put("a", b'{"rv":""}', stamp=7), Put("b", b"x", stamp=0), Put("c", b"x", stamp=1)])
    assert [answer.value for answer in answers if answer] == [b'{"rv":"10"}', b"10x", b"x10"]
    assert (await store.get("a")) == answers[0]
    assert (await store.list("a")).items == [answers[0]]
    assert [event.now for event in await ear.heard(1)] == [answers[0]]


async def test_a_stamp_outside_of_the_value(store: Store) -> None:
    for stamp in (-1, 3):
        with pytest.raises(ValueError, match="outside"):
            await store.txn([Put("a", b"ab", stamp=stamp)])
    assert store.revision == 0


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
    await store.txn([Put(f"pods/{number:04}", b"old") for number in range(0, 2_000, 2)])
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
    assert seen == [KeyValue(f"pods/{number:04}", b"old", 1, 1) for number in range(0, 2_000, 2)]


# -- the past ---------------------------------------------------------------------------------------------------------


async def write_a_past(store: Store) -> list[dict[str, KeyValue]]:
    """The states by revision."""
    ops: list[list[Op]] = [
        [Put("a", b"1")],
        [Put("b", b"2"), Put("c", b"2")],
        [Put("a", b"3")],
        [Delete("b"), Put("d", b"4")],
        [Put("b", b"5")],
        [Delete("a"), Delete("c")],
        [Put("a", b"7")],
    ]
    states: list[dict[str, KeyValue]] = [{}]
    for each in ops:
        await store.txn(each)
        states.append({item.key: item for item in (await store.list("")).items})
    return states


async def test_get_and_list_at_every_revision(store: Store) -> None:
    states = await write_a_past(store)
    for revision, state in [*enumerate(states)][1:]:
        page = await store.list("", revision=revision)
        assert page == Page([state[key] for key in sorted(state)], revision, False, len(state))
        for key in "abcdx":
            assert await store.get(key, revision) == state.get(key)
        assert (
            await keys(store.list("", start="b", limit=1, revision=revision))
            == [k for k in sorted(state) if k >= "b"][:1]
        )


async def test_the_future_cannot_be_read(store: Store) -> None:
    await put(store, "a")
    with pytest.raises(FutureRevision) as future:
        await store.get("a", 2)
    assert (future.value.asked, future.value.current) == (2, 1)
    with pytest.raises(FutureRevision):
        await store.list("", revision=2)
    with pytest.raises(FutureRevision):
        await store.compact(2)


async def test_compaction(store: Store) -> None:
    states = await write_a_past(store)
    await store.compact(4)
    assert store.compacted == 4
    for revision in range(1, 5):
        with pytest.raises(Compacted) as gone:
            await store.get("a", revision)
        assert (gone.value.asked, gone.value.oldest) == (revision, 5)
        with pytest.raises(Compacted):
            await store.list("", revision=revision)
    for after in range(4):
        with pytest.raises(Compacted):
            store.watch("", after, Ear())
    for revision in range(5, 8):
        assert (await store.list("", revision=revision)).items == [
            states[revision][k] for k in sorted(states[revision])
        ]
    ear = Ear()
    store.watch("", 4, ear)
    assert [event.revision for event in await ear.heard(4)] == [5, 6, 6, 7]
    assert [event.before for event in ear.events] == [None, states[5]["a"], states[5]["c"], None]


async def test_the_present_can_be_read_whatever_was_compacted(store: Store) -> None:
    states = await write_a_past(store)
    await store.compact(7)
    await store.compact(3)
    assert store.compacted == 7
    assert (await store.list("", revision=7)).items == [states[7][k] for k in sorted(states[7])]
    assert await store.get("a", 7) == await store.get("a")
    ear = Ear()
    store.watch("", 7, ear)
    await put(store, "z")
    assert len(await ear.heard(1)) == 1


async def test_compaction_amid_writers(store: Store) -> None:
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
    live = Ear()
    store.watch("", 0, live)
    states = await write_a_past(store)
    everything = await live.heard(10)
    for event in everything:
        assert event.now == states[event.revision].get(event.key)
        assert event.before == states[event.revision - 1].get(event.key)
    for after in range(8):
        ear = Ear()
        store.watch("", after, ear)
        expected = [event for event in everything if event.revision > after]
        assert await ear.heard(len(expected)) == expected


async def test_a_watch_hears_past_and_present_without_a_seam(store: Store) -> None:
    ears: list[Ear] = []
    writers = [asyncio.create_task(put(store, f"a/{number}")) for number in range(300)]
    for _ in range(100):
        ears.append(Ear())
        store.watch("a/", 0, ears[-1])
        await asyncio.sleep(0)
    await asyncio.gather(*writers)
    for ear in ears:
        assert [event.revision for event in await ear.heard(300)] == [*range(1, 301)]


async def test_the_events_of_a_transaction_come_together(store: Store) -> None:
    ear = Ear()
    store.watch("", 0, ear)
    await asyncio.gather(*(store.txn([Put(f"{n}/{m}", b"") for m in range(5)]) for n in range(50)))
    await ear.heard(250)
    ends = [call[-1].revision for call in ear.calls]
    assert ends == sorted(set(ends))
    assert all(call[0].revision > end for call, end in zip(ear.calls[1:], ends, strict=False))


async def test_each_prefix_hears_its_own(store: Store) -> None:
    prefixes = ["", "pods", "pods/", "pods/a", "pods/a/", "pods/a/x", "pod", "podsecurity/", "nodes/", "zz"]
    names = ["pods/a/x", "pods/a/xy", "pods/b/x", "podsecurity/x", "nodes/n", "plain", "pods/a/x"]
    ears = {prefix: Ear() for prefix in prefixes}
    for prefix, ear in ears.items():
        store.watch(prefix, 0, ear)
    for name in names:
        await put(store, name)
    for prefix, ear in ears.items():
        expected = [name for name in names if name.startswith(prefix)]
        assert [event.key for event in await ear.heard(len(expected))] == expected


async def test_a_watch_from_the_future_waits_for_it(store: Store) -> None:
    ear = Ear()
    store.watch("", 3, ear)
    for _ in range(5):
        await put(store, "a")
    assert [event.revision for event in await ear.heard(2)] == [4, 5]


async def test_nothing_is_heard_after_close(store: Store) -> None:
    ear, other = Ear(), Ear()
    subscription = store.watch("", 0, ear)
    store.watch("", 0, other)
    await put(store, "a")
    await ear.heard(1)
    subscription.close()
    subscription.close()
    await put(store, "b")
    await other.heard(2)
    assert len(ear.events) == 1


async def test_subscribers_may_close_each_other_and_open_new_ones_while_they_are_told(store: Store) -> None:
    second, late = Ear(), Ear()

    def first(events: Sequence[Event], revision: int) -> None:
        doomed.close()
        own.close()
        store.watch("", 0, late)

    own = store.watch("", 0, first)
    doomed = store.watch("", 0, second)
    await put(store, "a")
    await put(store, "b")
    assert [event.revision for event in await late.heard(2)] == [1, 2]
    assert second.events == []


async def test_a_sink_that_raises_harms_nobody_else(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def broken(events: Sequence[Event], revision: int) -> None:
        raise RuntimeError("broken")

    ear = Ear()
    store.watch("", 0, broken)
    store.watch("", 0, ear)
    assert (await put(store, "a")).mod_revision == 1
    await ear.heard(1)
    assert "failed on revision 1" in caplog.text


async def test_what_was_acknowledged_or_heard_can_be_read(store: Store) -> None:
    def sink(events: Sequence[Event], revision: int) -> None:
        told.append(revision)
        assert store.revision >= revision

    told: list[int] = []
    store.watch("", 0, sink)
    for _ in range(3):
        kept = await put(store, "a")
        assert store.revision >= kept.mod_revision
        assert await store.get("a") == kept


# -- causes and closing -----------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite"])
def causal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryStore | SqliteStore]:
    yield MemoryStore() if request.param == "memory" else SqliteStore.open(tmp_path / "causal.db")


async def test_causes(causal: MemoryStore | SqliteStore) -> None:
    for number in range(1, 7):
        await causal.txn([Put("a", b""), Put("b", b"")], b"cause %d" % number if number != 3 else b"")
    assert await causal.causes(0, 2) == [Cause(1, b"cause 1"), Cause(2, b"cause 2")]
    assert [cause.revision for cause in await causal.causes(2)] == [4, 5, 6]
    await causal.compact(4)
    assert [cause.revision for cause in await causal.causes(4)] == [5, 6]
    with pytest.raises(Compacted):
        await causal.causes(3)
    await causal.close()


async def test_a_closed_store_says_so(store: Store) -> None:
    pending = asyncio.create_task(put(store, "accepted"))
    await asyncio.sleep(0)
    await store.close()
    assert (await pending).mod_revision == 1
    for call in (store.get("a"), store.list(""), store.txn([Put("a", b"")]), store.compact(0)):
        with pytest.raises(StoreError, match="closed"):
            await call
    with pytest.raises(StoreError, match="closed"):
        store.watch("", 0, Ear())
    await store.close()
