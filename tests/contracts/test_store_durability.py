"""Guarantees of durable stores only: history survives a restart, and a failed medium is reported."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from setpoint.store.interface import Compacted, CompareFailed, Delete, Event, Put, StoreError
from setpoint.store.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(path)
    yield store
    await store.close()


def past(store: SqliteStore, after: int) -> list[Event]:
    received: list[Event] = []
    store.watch("", after, lambda events, revision: received.extend(events)).close()
    return received


def on_disk(store: SqliteStore, do: Callable[[sqlite3.Connection], object]) -> None:
    """Lets the test play the medium. Only while nothing is under way."""
    do(store._file._connection)


def change_bytes(path: Path, change: Callable[[bytearray], None]) -> None:
    content = bytearray(path.read_bytes())
    unchanged = bytes(content)
    change(content)
    if content != unchanged:
        path.write_bytes(content)


def child(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60)


# -- restart ----------------------------------------------------------------------------------------------------------


async def test_a_restart_keeps_state_history_causes_and_revision(path: Path) -> None:
    store = SqliteStore.open(path)
    for number in range(1, 6):
        await store.txn([Put("a", b"%d" % number, stamp=1), Put(f"é/{number}", b"")], b"cause %d" % number)
    await store.txn([Delete("a"), Delete("é/3")])
    await store.compact(2)
    await store.txn([Put("last", b"\0\xff")])
    events, causes, page, old = (
        past(store, 2),
        await store.causes(2),
        await store.list(""),
        await store.list("", revision=4),
    )
    await store.close()

    again = SqliteStore.open(path)
    assert (again.revision, again.compacted) == (7, 2)
    assert past(again, 2) == events
    assert await again.causes(2) == causes
    assert await again.list("") == page
    assert await again.list("", revision=4) == old
    with pytest.raises(Compacted):
        again.watch("", 1, lambda events, revision: None)
    assert (await again.txn([Put("a", b"")]))[0] == 8
    await again.close()


async def test_the_revision_survives_the_loss_of_everything(path: Path) -> None:
    store = SqliteStore.open(path)
    for _ in range(5):
        await store.txn([Put("a", b"")])
    await store.txn([Delete("a")])
    await store.compact(6)
    await store.close()
    again = SqliteStore.open(path)
    assert (again.revision, again.compacted) == (6, 6)
    assert (await again.txn([Put("a", b"")]))[0] == 7
    await again.close()


async def test_an_interrupted_compaction_is_finished_by_the_next(path: Path) -> None:
    store = SqliteStore.open(path)
    for number in range(10):
        await store.txn([Put("kept", b"%d" % number), Put(f"gone/{number}", b"")])
    await store.txn([Delete(f"gone/{number}") for number in range(10)])
    on_disk(store, lambda disk: disk.execute("UPDATE fact SET value = 11 WHERE name = 'compacted'"))
    await store.close()

    again = SqliteStore.open(path)
    assert [item.key for item in (await again.list("")).items] == ["kept"]
    await again.txn([Put("new", b"")])
    await again.compact(11)
    await again.compact(12)
    counted: list[tuple[int]] = []
    on_disk(again, lambda disk: counted.extend(disk.execute("SELECT count(*) FROM change")))
    assert counted == [(2,)]
    await again.close()


async def test_compaction_leaves_only_what_is_needed_and_the_file_stops_growing(store: SqliteStore) -> None:
    sizes = []
    for _ in range(12):
        for _ in range(5):
            await asyncio.gather(*(store.txn([Put(f"key/{number}", os.urandom(2_000))]) for number in range(400)))
        await store.compact(store.revision - 1)
        sizes.append(store.size())
    assert max(sizes[6:]) < 1.05 * max(sizes[:6])


async def test_a_file_that_is_mostly_empty_shrinks(store: SqliteStore) -> None:
    await asyncio.gather(*(store.txn([Put(f"key/{number}", bytes(100_000))]) for number in range(400)))
    await asyncio.gather(*(store.txn([Delete(f"key/{number}")]) for number in range(390)))
    before = store.size()
    await store.compact(store.revision)
    assert before > 40_000_000
    assert store.size() < 22_000_000


async def test_the_pragmas_of_the_database(store: SqliteStore) -> None:
    settings: dict[str, object] = {}

    def read(disk: sqlite3.Connection) -> None:
        for name in ("synchronous", "journal_mode", "locking_mode", "auto_vacuum"):
            (settings[name],) = disk.execute(f"PRAGMA {name}").fetchone()

    on_disk(store, read)
    assert settings == {"synchronous": 2, "journal_mode": "wal", "locking_mode": "exclusive", "auto_vacuum": 2}


async def test_the_file_is_readable_by_its_owner_only(store: SqliteStore, path: Path) -> None:
    await store.txn([Put("secret", b"")])
    assert {file.stat().st_mode & 0o077 for file in path.parent.iterdir()} == {0}


# -- nothing is seen before it is durable -----------------------------------------------------------------------------


async def test_writes_are_visible_only_when_durable(store: SqliteStore) -> None:
    await store.txn([Put("a", b"old")])
    received: list[Event] = []
    store.watch("", 1, lambda events, revision: received.extend(events))
    overwrite = asyncio.create_task(store.txn([Put("a", b"new", 1)]))
    loser = asyncio.create_task(store.txn([Put("a", b"never", 1)]))
    delete = asyncio.create_task(store.txn([Delete("a")]))
    noop = asyncio.create_task(store.txn([Delete("a")]))
    await asyncio.sleep(0)
    # All four have started; the writer may be done, but could not report it to the event loop yet.
    assert store.revision == 1
    assert (await store.get("a")) == store.peek("a")
    assert [item.value for item in (await store.list("")).items] == [b"old"]
    assert received == []
    with pytest.raises(CompareFailed) as failed:
        await loser
    assert failed.value.current == store.peek("a")
    assert (await overwrite)[0] == 2
    assert (await delete)[0] == 3
    assert await noop == (3, [None])


async def test_a_failed_write_stops_the_store_and_shows_nothing(path: Path) -> None:
    store = SqliteStore.open(path)
    await store.txn([Put("kept", b"")])
    received: list[Event] = []
    store.watch("", 1, lambda events, revision: received.extend(events))
    on_disk(store, lambda disk: disk.execute("PRAGMA max_page_count = 8").fetchall())
    outcomes = await asyncio.gather(
        *(store.txn([Put(f"big/{number}", bytes(50_000))]) for number in range(10)),
        store.txn([Put("big/0", b"", 7)]),
        store.txn([Delete("big/5")]),
        return_exceptions=True,
    )
    sentence = f"the disk that holds {path} is full"
    assert {(type(outcome), str(outcome)) for outcome in outcomes} == {(StoreError, sentence)}
    assert received == []
    assert (store.revision, store.failure) == (1, sentence)
    for call in (store.get("kept"), store.list(""), store.txn([Put("a", b"")]), store.compact(1), store.causes(0)):
        with pytest.raises(StoreError, match="is full"):
            await call
    for sync in (lambda: store.peek("kept"), lambda: store.watch("", 1, lambda events, revision: None)):
        with pytest.raises(StoreError, match="is full"):
            sync()
    await store.close()

    again = SqliteStore.open(path)
    assert [item.key for item in (await again.list("")).items] == ["kept"]
    assert again.revision == 1
    await again.close()


async def test_a_failure_in_compaction_reaches_all_waiters(path: Path) -> None:
    store = SqliteStore.open(path)
    await store.txn([Put("a", b"")])
    on_disk(store, lambda disk: disk.execute("DROP TABLE fact").fetchall())
    outcomes = await asyncio.gather(store.compact(1), store.txn([Put("b", b"")]), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == [f"the data file {path} failed: no such table: fact"] * 2
    await store.close()


FILL = """
import asyncio, resource, sys
from setpoint.store.interface import Put, StoreError
from setpoint.store.sqlite import SqliteStore

async def main():
    store = SqliteStore.open(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
    async def write(name):
        for number in range(1000):
            await store.txn([Put(f"{name}/{number}", bytes(10_000))])
            print(f"{name}/{number}", flush=True)
    outcomes = await asyncio.gather(*(write(name) for name in range(8)), return_exceptions=True)
    print(*{f"{type(outcome).__name__}: {outcome}" for outcome in outcomes}, sep="|", file=sys.stderr)
    await store.close()

asyncio.run(main())
"""


async def test_a_full_disk_loses_nothing_acknowledged(path: Path) -> None:
    done = child(FILL, path, str(4 << 20))
    acknowledged = set(done.stdout.split())
    assert len(acknowledged) > 50
    assert done.stderr.strip().startswith(f"StoreError: the disk that holds {path} ")
    assert "|" not in done.stderr
    store = SqliteStore.open(path)
    assert acknowledged <= {item.key for item in (await store.list("")).items}
    await store.close()


# -- files that cannot be opened --------------------------------------------------------------------------------------


def refusal(path: Path) -> str:
    with pytest.raises(StoreError) as refused:
        SqliteStore.open(path)
    return str(refused.value)


OPEN = "import sys; from setpoint.store.sqlite import SqliteStore; SqliteStore.open(sys.argv[1])"


async def test_a_store_in_use_by_this_or_another_process(store: SqliteStore, path: Path) -> None:
    sentence = f"the data directory {path.parent} is in use by another process"
    assert refusal(path) == sentence
    # Opening and closing the file within the process must not release the lock.
    change_bytes(path, lambda content: None)
    other = child(OPEN, path)
    assert other.stderr.splitlines()[-1].endswith(f"StoreError: {sentence}")
    await store.txn([Put("a", b"")])


async def test_a_store_can_be_opened_after_close(path: Path) -> None:
    for _ in range(3):
        store = SqliteStore.open(path)
        await store.close()
        await store.close()


def test_a_missing_directory(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no" / "store.db") == f"the data directory {tmp_path / 'no'} does not exist"


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be written: Not a directory" in refusal(tmp_path / "file" / "store.db")


def test_a_path_that_is_a_directory(path: Path) -> None:
    path.mkdir()
    assert "cannot be opened for writing" in refusal(path)


@contextmanager
def mortal() -> Iterator[None]:
    """Run as an unprivileged user, because root may write everywhere."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(was)


@pytest.fixture
def guarded() -> Iterator[Path]:
    """Yield a directory that everyone may enter and no one may write to."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_an_unwritable_directory(guarded: Path) -> None:
    with mortal():
        assert refusal(guarded / "store.db") == f"the data directory {guarded} cannot be written: Permission denied"


def test_an_unwritable_file(guarded: Path) -> None:
    guarded.chmod(0o777)
    (guarded / "store.db").touch(mode=0o444)
    (guarded / "store.db-lock").touch(mode=0o666)
    (guarded / "store.db-lock").chmod(0o666)
    with mortal():
        assert "cannot be opened for writing" in refusal(guarded / "store.db")


def test_a_file_that_is_not_a_database(path: Path) -> None:
    path.write_bytes(b"apiVersion: v1\nkind: Config\n" * 100)
    assert refusal(path) == f"{path} is damaged or not a Setpoint data file (file is not a database)"


def test_a_database_of_another_program(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    assert refusal(path) == f"{path} is a database of another program, not a Setpoint data file"


async def test_a_format_of_another_version(path: Path) -> None:
    store = SqliteStore.open(path)
    on_disk(store, lambda disk: disk.execute("PRAGMA user_version = 99").fetchall())
    await store.close()
    assert refusal(path) == f"{path} has format 99 of another version of Setpoint; this one reads format 1"


async def damaged(path: Path, damage: Callable[[bytearray], None]) -> str:
    store = SqliteStore.open(path)
    for number in range(200):
        await store.txn([Put(f"key/{number}", b"value %d" % number * 100)])
    await store.close()
    change_bytes(path, damage)
    return refusal(path)


async def test_overwritten_pages(path: Path) -> None:
    def rubbish(content: bytearray) -> None:
        content[3 * 4096 : -4096] = b"rubbish!" * ((len(content) - 4 * 4096) // 8)

    assert "is damaged" in await damaged(path, rubbish)


async def test_a_truncated_file(path: Path) -> None:
    def truncate(content: bytearray) -> None:
        del content[len(content) // 2 :]

    assert "is damaged" in await damaged(path, truncate)


async def test_a_single_flipped_bit_in_a_value(path: Path) -> None:
    def flip(content: bytearray) -> None:
        content[content.index(b"value 77value 77") + 40] ^= 1

    assert await damaged(path, flip) == f"{path} is damaged: key/77 at revision 78 is not as written"
