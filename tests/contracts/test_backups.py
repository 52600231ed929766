"""A backup of any store is the state at one revision, and is restored into any store, or refused with a reason."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
from etcd_process import etcd_process
from lagging_store import LaggingStore
from stopped_clock import StoppedClock

from setpoint.apiserver.encoding import stamp_offset, without_stamp
from setpoint.cluster.apiserver import open_etcd, open_store
from setpoint.cluster.backups import INCOMPLETE, back_up, restore, write_backup
from setpoint.cluster.config import ApiServerConfig, ConfigError
from setpoint.cluster.store_location import EtcdAccess, StoreLocation, running_servers
from setpoint.meta.times import format_time
from setpoint.store.backup_file import SavedState
from setpoint.store.backup_format import Decoder, InvalidBackup, encoded
from setpoint.store.encryption import AesGcm, EncryptedStore, KeyedProvider, NamedKey, Transformer, Transformers
from setpoint.store.interface import Compacted, CompareFailed, Delete, KeyValue, Put, Store
from setpoint.store.memory import MemoryStore
from setpoint.store.recovery import REVISION_GAP
from setpoint.store.snapshot import Snapshot
from setpoint.store.sqlite import SqliteStore
from setpoint.system import SystemClock
from setpoint.tasks import TaskRegistry

CLOCK = SystemClock()
_prefixes = count()


@pytest.fixture(scope="module")
def etcd_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    with etcd_process(tmp_path_factory.mktemp("etcd")) as running:
        yield (running.endpoint,)


@pytest.fixture(params=["sqlite", "etcd"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    """An empty store."""
    return new_location(request, tmp_path)


def new_location(request: pytest.FixtureRequest, tmp_path: Path, kind: str = "") -> StoreLocation:
    number = next(_prefixes)
    if (kind or request.param) == "sqlite":
        return StoreLocation(tmp_path / f"data-{number}" / "state.db")
    return StoreLocation(None, request.getfixturevalue("etcd_servers"), EtcdAccess(f"/backup-{number}"))


@asynccontextmanager
async def opened(location: StoreLocation) -> AsyncIterator[Store]:
    """The store as a server uses it."""
    if location.database is not None:
        location.database.parent.mkdir(exist_ok=True)
        config = ApiServerConfig(location.database.parent)
    else:
        config = location.config()
    store = await open_store(config, CLOCK)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture(params=["memory", "lagging", "sqlite", "etcd"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param in ("memory", "lagging"):
        in_memory = MemoryStore() if request.param == "memory" else LaggingStore()
        yield in_memory
        await in_memory.close()
        return
    async with opened(new_location(request, tmp_path)) as store:
        yield store


def put(key: str, note: str, expect: int | None = None) -> Put:
    """Write an object as the API server does, with its resourceVersion."""
    obj = {"metadata": {"name": key.rpartition("/")[2], "uid": f"uid-{key}"}, "note": note}
    value, stamp = stamp_offset(orjson.dumps(obj))
    return Put(key, value, expect, stamp)


async def contents(store: Store) -> list[KeyValue]:
    return [*(await store.list("")).items]


def without_revisions(items: list[KeyValue]) -> dict[str, bytes]:
    return {item.key: without_stamp(item.value, item.mod_revision)[0] for item in items}


async def save(store: Store, path: Path) -> int:
    async with aclosing(encoded(store, format_time(CLOCK.now()))) as stream:
        return (await write_backup(path, stream)).revision


async def fill(store: Store, keys: int = 500) -> None:
    for start in range(0, keys, 50):
        await store.txn([put(f"core/things/{number:04}", "first") for number in range(start, start + 50)])


class Writers:
    """Eight writers that create, change and delete at random, and the state after every revision."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.revisions = 0
        self._done = False

    async def run(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self._done:
            key = f"core/things/{chance.randrange(700):04}"
            op = Delete(key) if chance.random() < 0.3 else put(key, f"by {seed} at {self.revisions}")
            try:
                await self.store.txn([op])
            except CompareFailed:
                continue
            self.revisions += 1
            await asyncio.sleep(0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            for seed in range(8):
                tasks.create_task(self.run(seed))
            try:
                yield
            finally:
                self._done = True


async def test_a_backup_is_the_state_at_one_revision_while_eight_writers_write(
    store: Store, location: StoreLocation, tmp_path: Path
) -> None:
    await fill(store)
    writers = Writers(store)
    async with writers.running():
        async with aclosing(encoded(store, "")) as stream:

            async def slow() -> AsyncIterator[bytes]:
                async for chunk in stream:
                    yield chunk
                    before = writers.revisions
                    async with asyncio.timeout(20):
                        while writers.revisions < before + 8:  # noqa: ASYNC110
                            await asyncio.sleep(0)

            header = await write_backup(tmp_path / "backup", slow())
        assert store.revision > header.revision
        expected = [*(await store.list("", revision=header.revision)).items]
    assert header.keys == len(expected)
    assert [item for page in SavedState(tmp_path / "backup").pages() for item in page] == expected

    written = await restore(tmp_path / "backup", location, CLOCK, replace=False)
    assert written.keys == len(expected)
    async with opened(location) as restored:
        found = await contents(restored)
        assert without_revisions(found) == without_revisions(expected)
        if location.database is not None:
            assert found == expected
        for item in found:
            assert orjson.loads(item.value)["metadata"]["resourceVersion"] == str(item.mod_revision)
        assert restored.revision >= written.revision > header.revision + REVISION_GAP // 2
        with pytest.raises(Compacted):
            restored.watch("", header.revision, lambda events, revision: None)
        changed = found[0]
        revision, _ = await restored.txn([put(changed.key, "later", changed.mod_revision)])
        assert revision > written.revision


async def test_a_snapshot_survives_compaction_and_keeps_only_what_was_not_read(store: Store) -> None:
    await fill(store, 650)
    expected = await contents(store)
    async with Snapshot(store) as snapshot:
        pages = snapshot.pages()
        found = [*(await anext(pages))]
        gone = expected[100:300] + expected[600:]
        await store.txn([Delete(item.key) for item in gone])
        await store.txn([put(expected[250].key, "again"), put("core/things/0610x", "new"), put("a", "new")])
        await store.compact(store.revision)
        async for page in pages:
            found += page
    assert found == expected


async def test_a_restore_replaces_only_if_it_is_told_to(location: StoreLocation, tmp_path: Path) -> None:
    memory = MemoryStore()
    await memory.txn([put("core/things/a", "of the backup")])
    await save(memory, tmp_path / "backup")
    async with opened(location) as store:
        await fill(store, 50)
        before, revision = await contents(store), store.revision
    with pytest.raises(ConfigError, match="already; with --force"):
        await restore(tmp_path / "backup", location, CLOCK, replace=False)
    async with opened(location) as store:
        assert await contents(store) == before
    written = await restore(tmp_path / "backup", location, CLOCK, replace=True)
    assert written.revision > revision + REVISION_GAP // 2
    async with opened(location) as store:
        assert [item.key for item in await contents(store)] == ["core/things/a"]
    # What was replaced is still there.
    if location.database is None:
        saved = SavedState(tmp_path / "backup.replaced-1")
        assert [item for page in saved.pages() for item in page] == before
    else:
        assert (location.database.parent / "state.db.replaced-1").exists()


async def test_a_restore_refuses_a_store_that_servers_use(
    request: pytest.FixtureRequest, location: StoreLocation, tmp_path: Path
) -> None:
    await save(MemoryStore(), tmp_path / "backup")
    async with opened(location) as store:
        labels = {"apiserver.kubernetes.io/identity": "kube-apiserver"}
        lease = {"metadata": {"labels": labels}, "spec": {"renewTime": format_time(CLOCK.now())}}
        await store.txn([Put("coordination.k8s.io/leases/kube-system/apiserver-1", orjson.dumps(lease))])
        expected = "in use by another process" if location.database is not None else "apiserver-1 renewed"
        with pytest.raises(ConfigError, match=expected):
            await restore(tmp_path / "backup", location, CLOCK, replace=True)
        assert len(await contents(store)) == 1


async def test_large_values_are_sent_in_slices() -> None:
    store = MemoryStore()
    await store.txn([put("core/things/huge", "x" * 3_000_000), put("core/things/small", "y")])
    await store.txn([Put("core/things/empty", b""), put("core/things/large", "z" * 300_000)])
    decoder = Decoder()
    found = [item async for chunk in encoded(store, "") if len(chunk) <= 512 << 10 for item in decoder.feed(chunk)]
    decoder.finish()
    assert found == await contents(store)


@pytest.mark.parametrize("size", [7, 1000, 1 << 20])
async def test_a_backup_may_arrive_in_chunks_of_any_size(tmp_path: Path, size: int) -> None:
    store = MemoryStore()
    for number in range(250):
        await store.txn([Put(f"ключ/{number}", bytes([number]) * number), Put(f"other/{number}", b"")])
    whole = b"".join([chunk async for chunk in encoded(store, "")])

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(whole), size):
            yield whole[at : at + size]

    await write_backup(tmp_path / "backup", chunks())
    assert (tmp_path / "backup").read_bytes() == whole
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    assert [item for page in SavedState(tmp_path / "backup").pages() for item in page] == await contents(store)


async def whole_backup() -> bytes:
    store = MemoryStore()
    await fill(store, 100)
    return b"".join([chunk async for chunk in encoded(store, "")])


DAMAGES = {
    "empty": "is incomplete",
    "foreign": "is not a Setpoint backup",
    "newer": "has format 9 of another version",
    "truncated": r"is incomplete: it ends after \d+ of 100 keys",
    "without digest": "is incomplete: it ends after 100 of 100 keys",
    "bit": "is damaged: its SHA-256 digest does not match",
    "length": "is damaged",
    "longer": "is damaged: there is more data",
    "header": "is damaged: its header",
}


def damaged(whole: bytes, how: str) -> bytes:
    match how:
        case "empty":
            return b""
        case "foreign":
            return b"<html>not a backup</html>" * 100
        case "newer":
            return whole.replace(b"backup 2", b"backup 9", 1)
        case "truncated":
            return whole[: len(whole) // 2]
        case "without digest":
            return whole[:-1]
        case "bit":
            return whole.replace(b'"note":"first"', b'"note":"worst"', 1)
        case "length":
            at = whole.index(b"core/things/0000") - 24
            return whole[:at] + b"\xff" * 8 + whole[at + 8 :]
        case "longer":
            return whole + b"x"
        case "header":
            return whole.replace(b'"revision"', b'"revisiom"', 1)
    raise AssertionError(how)


@pytest.mark.parametrize("how", DAMAGES)
async def test_a_damaged_file_is_refused_and_nothing_changes(location: StoreLocation, tmp_path: Path, how: str) -> None:
    backup = tmp_path / "backup"
    backup.write_bytes(damaged(await whole_backup(), how))
    with pytest.raises(ConfigError, match=f"^the backup {backup} {DAMAGES[how]}"):
        await restore(backup, location, CLOCK, replace=True)
    if location.database is not None:
        assert not location.database.parent.exists()
    else:
        async with opened(location) as store:
            assert await contents(store) == []


@pytest.mark.parametrize("how", DAMAGES)
async def test_an_incomplete_stream_leaves_no_file(tmp_path: Path, how: str) -> None:
    whole = damaged(await whole_backup(), how)

    async def once() -> AsyncIterator[bytes]:
        yield whole

    with pytest.raises(ConfigError, match=f"the server did not send a complete backup: what it sent {DAMAGES[how]}"):
        await write_backup(tmp_path / "backup", once())
    assert not os.listdir(tmp_path)


async def test_every_flipped_byte_is_found() -> None:
    whole = await whole_backup()
    for at in range(0, len(whole), 37):
        changed = bytearray(whole)
        changed[at] ^= 1
        decoder = Decoder()
        with pytest.raises(InvalidBackup):
            decoder.feed(bytes(changed))
            decoder.finish()


@pytest.mark.parametrize("step", ["write", "fsync", "rename"])
async def test_a_full_disk_leaves_no_file_and_a_clear_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = MemoryStore()
    await fill(store, 100)

    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, full)
    with pytest.raises(ConfigError, match="backup cannot be written: No space left on device"):
        await save(store, tmp_path / "backup")
    assert not os.listdir(tmp_path)


async def test_a_backup_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "backup").write_text("precious")
    with pytest.raises(ConfigError, match="exists already; a backup overwrites nothing"):
        await save(MemoryStore(), tmp_path / "backup")
    assert (tmp_path / "backup").read_text() == "precious"


async def test_what_is_no_cluster_is_not_backed_up(location: StoreLocation, tmp_path: Path) -> None:
    """A misspelled prefix, or the rest of a restore that was interrupted."""
    for mark, why in (None, "there are no objects at"), (INCOMPLETE, "holds a part of a cluster only"):
        async with opened(location) as store:
            if mark is not None:
                await store.txn([Put(mark, b""), put("core/things/one", "a part")])
        with pytest.raises(ConfigError, match=why):
            await back_up(location, tmp_path / "backup", CLOCK)
        assert not (tmp_path / "backup").exists()


async def test_a_stopped_cluster_is_backed_up_without_a_change(tmp_path: Path) -> None:
    location = StoreLocation(tmp_path / "data" / "state.db")
    with pytest.raises(ConfigError, match="there is no database at"):
        await back_up(location, tmp_path / "backup", CLOCK)
    async with opened(location) as store:
        await fill(store, 50)
        expected = await contents(store)
        with pytest.raises(ConfigError, match="in use by another process"):
            await back_up(location, tmp_path / "backup", CLOCK)
    before = files(tmp_path / "data")
    assert (await back_up(location, tmp_path / "backup", CLOCK)).revision == 1
    assert files(tmp_path / "data") == before
    assert [item for page in SavedState(tmp_path / "backup").pages() for item in page] == expected


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


async def test_a_crashed_cluster_is_backed_up_with_its_log_and_without_a_change(tmp_path: Path) -> None:
    location, crashed = StoreLocation(tmp_path / "data" / "state.db"), tmp_path / "crashed"
    crashed.mkdir()
    async with opened(location) as store:
        await fill(store, 50)
        expected = await contents(store)
        for name, content in files(tmp_path / "data").items():
            (crashed / name).write_bytes(content)
    before = files(crashed)
    assert before["state.db-wal"]
    await back_up(replace(location, database=crashed / "state.db"), tmp_path / "backup", CLOCK)
    assert files(crashed) == before
    assert [item for page in SavedState(tmp_path / "backup").pages() for item in page] == expected
    # Without its log it has lost what was acknowledged, and is refused.
    (crashed / "state.db-wal").unlink()
    with pytest.raises(ConfigError, match="revision 1 was acknowledged"):
        await back_up(replace(location, database=crashed / "state.db"), tmp_path / "another", CLOCK)


async def test_the_backup_of_an_earlier_version_is_restored(location: StoreLocation, tmp_path: Path) -> None:
    """It is a database with the state alone, as `setpoint backup` of version 0.2 wrote it."""
    old = tmp_path / "old.db"
    former = SqliteStore.open(old)
    await fill(former, 50)
    expected = await contents(former)
    await former.close()
    connection = sqlite3.connect(old)
    connection.execute("UPDATE fact SET value = 1 WHERE name = 'compacted'")
    connection.commit()
    connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    connection.close()
    await restore(old, location, CLOCK, replace=False)
    async with opened(location) as store:
        assert without_revisions(await contents(store)) == without_revisions(expected)
    old.write_bytes(old.read_bytes().replace(b'"note":"first"', b'"note":"worst"', 1))
    with pytest.raises(ConfigError, match=r"the backup .* cannot be read: .* is damaged"):
        await restore(old, location, CLOCK, replace=True)


async def test_accept_data_loss_starts_with_a_truncated_database(tmp_path: Path) -> None:
    store = await open_store(ApiServerConfig(tmp_path), CLOCK)
    await store.txn([Put("a", b"1")])
    await store.close()
    (tmp_path / "state.db").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"state\.db is empty, but revision 1 was acknowledged"):
        await open_store(ApiServerConfig(tmp_path), CLOCK)
    left = await open_store(ApiServerConfig(tmp_path, accept_data_loss=True), CLOCK)
    assert await left.get("a") is None
    await left.close()


async def test_an_interrupted_restore_into_etcd_is_refused_and_repeated(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = new_location(request, tmp_path, "etcd")
    memory = MemoryStore()
    await fill(memory, 300)
    await save(memory, tmp_path / "backup")

    def interrupt(written: int, total: int) -> None:
        if written >= 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await restore(tmp_path / "backup", location, CLOCK, replace=False, progress=interrupt)
    with pytest.raises(ConfigError, match="a part of a cluster only: repeat"):
        await open_store(location.config(), CLOCK)
    store = await open_etcd(location.config(), CLOCK)
    assert await store.get(INCOMPLETE) is not None and await store.get("core/things/0000") is not None
    revision = store.revision
    await store.close()
    written = await restore(tmp_path / "backup", location, CLOCK, replace=False)
    assert written.revision > revision
    async with opened(location) as store:
        assert without_revisions(await contents(store)) == without_revisions(await contents(memory))


class Ended(Exception):
    """The end of a process."""


async def test_a_restore_that_ends_at_any_request_leaves_a_whole_cluster_or_a_refused_one(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing between the old and the new content looks like a cluster without objects, in which a server would begin
    a new one."""
    from setpoint.store.etcd.client import EtcdClient

    location, memory = new_location(request, tmp_path, "etcd"), MemoryStore()
    await fill(memory, 300)
    await save(memory, tmp_path / "backup")
    async with opened(location) as store:
        await store.txn([put("core/things/old", "one")])
    real, left, refused = EtcdClient.call, 0, 0

    async def call(client: EtcdClient, *args: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Ended
        return await real(client, *args, **options)

    for requests in count():
        left = requests
        monkeypatch.setattr(EtcdClient, "call", call)
        try:
            await restore(tmp_path / "backup", location, CLOCK, replace=True)
        except Ended:
            monkeypatch.setattr(EtcdClient, "call", real)
        else:
            break
        try:
            store = await open_store(location.config(), CLOCK)
        except ConfigError as error:
            assert "a part of a cluster only: repeat" in str(error)
            refused += 1
        else:
            assert not refused and await store.get("core/things/old") is not None, f"ended before request {requests}"
            await store.close()
    monkeypatch.setattr(EtcdClient, "call", real)
    assert refused > 3 and requests > 6
    async with opened(location) as store:
        assert without_revisions(await contents(store)) == without_revisions(await contents(memory))


async def test_a_store_that_fails_ends_the_backup(tmp_path: Path) -> None:
    store = MemoryStore()
    await fill(store, 500)
    async with aclosing(encoded(store, "")) as stream:
        await anext(stream)
        await store.close()
        with pytest.raises(ConfigError, match="closed"):
            await write_backup(tmp_path / "backup", stream)


async def test_encrypted_values_stay_encrypted(location: StoreLocation, tmp_path: Path) -> None:
    keys = [NamedKey("one", AesGcm(b"k" * 32, os.urandom))]
    transformers = Transformers({("", "secrets"): Transformer([KeyedProvider("aesgcm", "AES", keys)])})
    memory = MemoryStore()
    await EncryptedStore(memory, transformers).txn([put("core/secrets/a", "hidden")])
    await save(memory, tmp_path / "backup")
    assert b"hidden" not in (tmp_path / "backup").read_bytes()
    await restore(tmp_path / "backup", location, CLOCK, replace=False)
    async with opened(location) as store:
        stored = await store.get("core/secrets/a")
        assert stored is not None and b"hidden" not in stored.value
        found = await EncryptedStore(store, transformers).get("core/secrets/a")
        assert found is not None
        obj = orjson.loads(found.value)
        assert (obj["note"], obj["metadata"]["resourceVersion"]) == ("hidden", str(found.mod_revision))


async def test_servers_are_seen_although_their_leases_are_encrypted(tmp_path: Path) -> None:
    store, clock, found = MemoryStore(), StoppedClock(), list[Sequence[str]]()
    key = "coordination.k8s.io/leases/kube-system/apiserver-1"
    await store.txn([Put(key, b"k8s:enc:one")])

    async def look() -> None:
        found.append(await running_servers(store, clock))

    tasks = TaskRegistry()
    tasks.start(look())
    await clock.advance(5)
    await store.txn([Put(key, b"k8s:enc:two")])
    await clock.advance(10)
    tasks.start(look())
    await clock.advance(15)
    assert found == [["apiserver-1"], []]


async def test_a_directory_with_a_member_of_etcd_has_no_database(tmp_path: Path) -> None:
    await save(MemoryStore(), tmp_path / "backup")
    location = StoreLocation(tmp_path / "data" / "state.db")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "etcd-member.json").touch()
    with pytest.raises(ConfigError, match="are in its member of etcd: `setpoint member run`"):
        await restore(tmp_path / "backup", location, CLOCK, replace=True)
    with pytest.raises(ConfigError, match="are in its member of etcd: `setpoint member run`"):
        await back_up(location, tmp_path / "another", CLOCK)
