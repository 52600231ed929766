"""Compacted changes in a file: what is read from it is what was there."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from effort import tries
from stopped_clock import StoppedClock

from setpoint.apiserver.history.marks import MarkKeeper
from setpoint.apiserver.history.reader import HistoryReader, Version
from setpoint.meta.cause import WriteCause, encode
from setpoint.meta.errors import Expired
from setpoint.store.archive import FileArchive, Retention
from setpoint.store.archive_file import ArchiveFile
from setpoint.store.encryption import AesGcm, EncryptedStore, KeyedProvider, NamedKey, Transformer
from setpoint.store.interface import Delete, KeyValue, Op, Put, Store
from setpoint.store.memory import MemoryStore
from setpoint.store.sqlite import SqliteStore

LEASE = "coordination.k8s.io/leases/kube-system/x"


class World:
    """A store with an archive, and the state that its readers saw at each revision."""

    def __init__(self, folder: Path, seed: int, retention: Retention | None = None) -> None:
        self.folder = folder
        self.clock = StoppedClock()
        self.random = random.Random(seed)
        self.retention = retention or Retention()
        self.seen: dict[int, dict[str, KeyValue]] = {}
        self.keys: dict[int, set[str]] = {}
        self.times: dict[int, int] = {}
        self.store: Any = None
        self.archive: Any = None

    async def open(self, store: Any) -> None:
        self.store = store
        self.archive = FileArchive(self.folder / "history.db", self.retention, self.clock, threads=False)
        await self.archive.follow(store)
        self.reader = HistoryReader(store)

    async def write(self) -> None:
        rng, state = self.random, self.seen[max(self.seen)] if self.seen else {}
        ops: list[Op] = []
        for key in rng.sample([f"core/pods/{ns}/{n}" for ns in "ab" for n in range(4)] + [LEASE], rng.randrange(1, 4)):
            if key in state and rng.random() < 0.3:
                ops.append(Delete(key))
            else:
                filler = "x" * rng.choice((0, 10, 2000, 40_000))
                ops.append(Put(key, f'{{"n":{rng.randrange(10)},"filler":"{filler}"}}'.encode()))
        await self.clock.advance(rng.randrange(0, 3000) / 1000)
        at = int(self.clock.now().timestamp() * 1000)
        revision, _ = await self.store.txn(ops, encode(WriteCause(at, "update", f"user-{at % 7}")))
        self.seen[revision] = {item.key: item for item in (await self.store.list("")).items}
        self.keys[revision] = {op.key for op in ops}
        self.times[revision] = at

    async def verify(self, revisions: int = 0) -> None:
        reader = self.reader
        readable = [revision for revision in self.seen if revision >= reader.oldest]
        for revision in self.random.sample(readable, min(revisions, len(readable))) if revisions else readable:
            kept = revision <= self.store.compacted and revision < max(self.seen)
            then = self.seen[revision]
            expected = [_version(each) for key, each in sorted(then.items()) if key.startswith("core/")]
            assert await reader.list_at("core/", revision) == expected, revision
            for key in ("core/pods/a/0", "core/pods/b/3"):
                found = await reader.at(key, revision)
                assert found == (_version(then[key]) if key in then else None), (revision, key)
            if kept:
                with pytest.raises(Expired):
                    await reader.at(LEASE, revision)
            cause = await reader.cause(revision)
            if revision > self.store.compacted or self.keys[revision] != {LEASE}:
                assert cause is not None and cause.at == self.times[revision], revision
        for revision in self.seen.keys() - {*readable}:
            with pytest.raises(Expired):
                await reader.list_at("core/", revision)

    async def verify_versions(self) -> None:
        for key in ("core/pods/a/0", "core/pods/b/3"):
            states = [(revision, state.get(key)) for revision, state in sorted(self.seen.items())]
            changes = [
                Version(key, revision, now.create_revision if now else 0, now.value if now else None)
                for (revision, now), (_, before) in zip(states, [(0, None), *states], strict=False)
                if now != before
            ]
            found = await self.reader.versions(key)
            assert found == changes[::-1][: len(found)]
            assert not found or found[-1].revision in (*range(self.reader.oldest + 1), found[-1].created)
            assert await self.reader.versions(key, limit=3) == found[:3]
            if len(found) > 4:
                middle = found[len(found) // 2].revision
                assert (
                    await self.reader.versions(key, before=middle, limit=2)
                    == [each for each in found if each.revision < middle][:2]
                )


def _version(stored: KeyValue) -> Version:
    return Version(stored.key, stored.mod_revision, stored.create_revision, stored.value)


@pytest.mark.parametrize("seed", range(tries(4, 100)))
async def test_every_revision_is_what_a_reader_saw(tmp_path: Path, seed: int) -> None:
    """On SQLite, with compactions, retention by time and by size, and restarts."""
    size = 512 << 20 if seed % 2 else 150_000
    world = World(tmp_path, seed, Retention(seconds=120.0, size=size))
    await world.open(SqliteStore.open(tmp_path / "state.db"))
    for _ in range(120):
        await world.write()
        choice = world.random.random()
        if choice < 0.06:
            await world.store.compact(world.random.randint(max(1, world.store.compacted), world.store.revision))
        elif choice < 0.08:
            await world.store.close()
            await world.archive.close()
            await world.open(SqliteStore.open(tmp_path / "state.db"))
        elif choice < 0.1:
            await world.verify(5)
    await world.verify()
    await world.verify_versions()
    first = min(each for each in world.seen if each >= world.reader.oldest and world.keys[each] != {LEASE})
    assert first < world.store.compacted  # the archive was read
    at = world.times[first]
    last = max(revision for revision, written in world.times.items() if written == at)
    assert await world.reader.revision_at(at) in range(first, last + 1)
    writes = await world.reader.writes(world.reader.oldest - 1, 1000)
    kept = {revision: keys - {LEASE} for revision, keys in world.keys.items() if revision >= world.reader.oldest}
    assert {each.revision: {*each.keys} - {LEASE} for each in writes if {*each.keys} - {LEASE}} == {
        revision: keys for revision, keys in kept.items() if keys
    }
    assert (tmp_path / "history.db").stat().st_mode & 0o777 == 0o600
    await world.store.close()
    await world.archive.close()


class _Observed:
    """A connection that calls a function after each statement that may write."""

    def __init__(self, connection: sqlite3.Connection, after: Callable[[], None]) -> None:
        self._connection = connection
        self._after = after

    def execute(self, sql: str, *args: Any) -> Any:
        result = self._connection.execute(sql, *args)
        if not sql.startswith(("SELECT", "PRAGMA")):
            self._after()
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


async def test_killed_at_any_write(tmp_path: Path) -> None:
    """Copies of the files after single statements are what a killed process leaves. Each is a complete history."""
    home = tmp_path / "home"
    home.mkdir()
    world = World(home, 11, Retention(seconds=40.0))
    await world.open(SqliteStore.open(home / "state.db"))
    statements, copies = 0, list[Path]()

    def copy() -> None:
        nonlocal statements
        statements += 1
        if statements % tries(9, 1) == 0:
            copied = tmp_path / f"copy-{statements}"
            shutil.copytree(home, copied)
            copies.append(copied)

    world.archive._file._connection = _Observed(world.archive._file._connection, copy)
    for number in range(60):
        await world.write()
        if number % 15 == 14:
            await world.store.compact(world.store.revision - 3)
    oldest, live = world.archive.oldest, (world.store, world.archive)
    assert oldest > 1 and len(copies) > tries(12, 150)
    for copied in copies:
        world.folder = copied
        await world.open(SqliteStore.open(copied / "state.db"))
        complete, written = {**world.seen}, ({**world.keys}, {**world.times})
        world.seen = {revision: state for revision, state in complete.items() if revision <= world.store.revision}
        assert world.reader.oldest <= oldest
        await world.verify(tries(4, 100))
        await world.write()  # and it goes on from there
        await world.store.compact(world.store.revision)
        await world.verify(tries(4, 100))
        await world.store.close()
        await world.archive.close()
        world.seen, (world.keys, world.times) = complete, written
    for each in live:
        await each.close()


async def test_a_lost_file_costs_the_history_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path, 3)
    await world.open(store := MemoryStore())
    for _ in range(30):
        await world.write()
    await store.compact(20)
    await world.archive.close()
    # Damaged, replaced by something else, of another store: a new one begins.
    path = tmp_path / "history.db"
    good = path.read_bytes()
    for content in (b"not a database" * 1000, good[:5000] + b"\0" * 50_000, b""):
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        path.write_bytes(content)
        await world.open(store)
        assert world.reader.oldest == store.compacted + 1
        await world.write()
        await store.compact(store.compacted + 2)
        await world.verify()
        await world.archive.close()
    assert "is lost" in caplog.text
    # The history of another store is not shown as that of this one.
    other = World(tmp_path, 4)
    await other.open(MemoryStore())
    await other.write()
    assert other.reader.oldest == 1 and "another store" in caplog.text
    await other.archive.close()
    # What was compacted without the archive is a gap: versions before it are known, states are not.
    await world.open(store)
    await world.write()
    await store.compact(store.revision)
    await world.write()
    begin = store.revision
    await store.compact(begin)
    assert world.reader.oldest <= begin
    await world.archive.close()
    store._archive = None
    for _ in range(10):
        await world.write()
    await store.compact(store.revision - 1)
    await world.open(store)
    assert world.reader.oldest == store.revision
    await world.write()
    await store.compact(store.revision)
    assert world.reader.oldest > begin
    await world.verify()
    assert await world.archive.transactions(0, 1)
    await world.archive.close()


async def test_encrypted_values_stay_encrypted(tmp_path: Path) -> None:
    class Always:
        def for_key(self, key: str) -> Transformer | None:
            return Transformer([KeyedProvider("aesgcm", "AES", [NamedKey("one", AesGcm(b"k" * 32, random.randbytes))])])

    backend = MemoryStore()
    world = World(tmp_path, 5)
    await world.open(backend)
    store: Store = EncryptedStore(backend, Always())
    world.store, world.reader = store, HistoryReader(store)
    for _ in range(30):
        await world.write()
    # Copies of marked states are encrypted too.
    await MarkKeeper(HistoryReader(backend), world.archive, lambda: {"m": "20"}, world.clock).keep_all()
    await store.compact(25)
    await world.verify()
    await world.verify_versions()
    assert store.archive is not None and store.archive.keeps(20)
    assert await store.archive.marked("core/", 20) == await world.reader.list_at("core/", 20)
    await world.archive.close()
    assert b"filler" not in (tmp_path / "history.db").read_bytes()


async def test_a_disk_that_is_full_costs_the_history_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, 6)
    await world.open(store := MemoryStore())
    file: ArchiveFile = world.archive._file

    def fail(*_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(file, "append", fail)
    for _ in range(40):
        await world.write()
    await store.compact(20)
    await store.compact(30)
    assert store.compacted == 30 and world.reader.oldest == 31
    assert caplog.text.count("changes are missing from the history") == 1
    await world.verify()
    monkeypatch.undo()
    await store.compact(35)
    assert world.reader.oldest == 31
    await world.verify()
    await world.archive.close()


async def test_reading_while_the_store_is_written_and_compacted(tmp_path: Path) -> None:
    world = World(tmp_path, 8)
    store = MemoryStore()
    world.archive = FileArchive(tmp_path / "history.db", Retention(), world.clock)  # with its threads
    await world.archive.follow(store)
    world.store, world.reader = store, HistoryReader(store)
    for _ in range(10):
        await world.write()
    done, count = False, 0

    async def read(seed: int) -> None:
        nonlocal count
        rng = random.Random(seed)
        while not done:
            revision = rng.choice([*world.seen])
            then = world.seen[revision]
            expected = [_version(each) for key, each in sorted(then.items()) if key.startswith("core/")]
            assert await world.reader.list_at("core/", revision) == expected, revision
            key = f"core/pods/a/{rng.randrange(4)}"
            found = await world.reader.at(key, revision)
            assert found == (_version(then[key]) if key in then else None), (revision, key)
            count += 1
            await asyncio.sleep(0)

    reading = [asyncio.ensure_future(read(seed)) for seed in range(3)]
    writes = 0
    while (writes < tries(120, 2000) or count < tries(60, 1000)) and not any(task.done() for task in reading):
        writes += 1
        await world.write()
        await asyncio.sleep(0 if writes < 2000 else 0.01)
        if writes % 7 == 6:
            await store.compact(store.revision - world.random.randrange(3))
    done = True
    await asyncio.gather(*reading)
    await world.archive.close()


async def test_marked_states_are_kept_beyond_the_retention(tmp_path: Path) -> None:
    """Copies are made of marked revisions, survive trimming and a restart, and end with the mark."""
    world = World(tmp_path, 7, Retention(seconds=5.0))
    marks: dict[str, str] = {}
    await world.open(SqliteStore.open(tmp_path / "state.db"))
    keeper = MarkKeeper(world.reader, world.archive, lambda: marks, world.clock)
    for number in range(60):
        await world.write()
        if number in (10, 11):
            marks[f"m{number}"] = str(world.store.revision)
            await keeper.keep_all()
        if number % 10 == 9:
            await world.clock.advance(70)
            await world.store.compact(world.store.revision)
    first, second = sorted(map(int, marks.values()))
    assert {*world.archive.marks} == {first, second} and second < world.reader.oldest
    await world.store.close()
    await world.archive.close()
    await world.open(SqliteStore.open(tmp_path / "state.db"))
    reader = world.reader
    for revision in (first, second):
        then = {key: each for key, each in world.seen[revision].items() if key.startswith("core/")}
        assert await reader.list_at("core/", revision) == [_version(then[key]) for key in sorted(then)]
        for key in [f"core/pods/a/{number}" for number in range(4)]:
            assert await reader.at(key, revision) == (_version(then[key]) if key in then else None)
        assert await reader.time_of(revision) == world.times[revision]
        with pytest.raises(Expired):
            await reader.at(LEASE, revision)
    with pytest.raises(Expired):
        await reader.list_at("core/", second + 1)
    keeper = MarkKeeper(reader, world.archive, lambda: marks, world.clock)
    del marks["m10"]
    await keeper.keep_all()
    assert {*world.archive.marks} == {second}
    with pytest.raises(Expired):
        await reader.list_at("core/", first)
    assert await reader.list_at("core/", second)
    # A mark that is older than the history, one that names no revision, and one for which there is no space.
    marks |= {"old": "1", "bad": "x"}
    await keeper.keep_all()
    assert {*world.archive.marks} == {second}
    await world.archive.close()
    world.retention = Retention(size=100)
    await world.open(world.store)
    keeper = MarkKeeper(world.reader, world.archive, lambda: {"now": str(world.store.revision)}, world.clock)
    await keeper.keep_all()
    assert not world.archive.marks
    await world.store.close()
    await world.archive.close()
