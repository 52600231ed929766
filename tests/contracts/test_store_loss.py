"""A database that has lost acknowledged writes is refused; files that change under an open store stop it."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from setpoint.store import recovery
from setpoint.store.backup_file import BackupFile, SavedState
from setpoint.store.backup_format import encoded
from setpoint.store.durable_revision import DataLoss, read_revision_record, revision_path
from setpoint.store.history import History
from setpoint.store.interface import Compacted, Delete, KeyValue, Put, StoreError
from setpoint.store.maintenance import check_forever
from setpoint.store.recovery import REVISION_GAP, DatabaseExists, DatabaseWriter
from setpoint.store.sqlite import SqliteStore

OBJECTS = 300
REMEDY = "restore a backup with `setpoint restore`, or start with --accept-data-loss"


def files(path: Path) -> list[Path]:
    return [Path(f"{path}{end}") for end in ("", "-wal", "-revision")]


def crash_image(path: Path, to: Path) -> Path:
    """Copy what a crash at this moment would leave behind, and return the path of the copied database."""
    to.mkdir()
    for file in files(path):
        if file.exists():
            shutil.copyfile(file, to / file.name)
    return to / path.name


async def fill(store: SqliteStore, count: int = OBJECTS, size: int = 500) -> None:
    for number in range(count):
        await store.txn([Put(f"key/{number}", b"%d" % number + bytes(size))])


@pytest.fixture
async def crashed(tmp_path: Path) -> Path:
    """The database of a process that was killed after 300 acknowledged writes, some of them in the log only."""
    (tmp_path / "live").mkdir()
    store = SqliteStore.open(tmp_path / "live" / "state.db")
    await fill(store)
    path = crash_image(tmp_path / "live" / "state.db", tmp_path / "crashed")
    await store.close()
    return path


def wal(path: Path) -> Path:
    return Path(f"{path}-wal")


def garble(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for at in range(len(content) // 3, len(content), 997):
        content[at] ^= 0x55
    file.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "the log is removed": (lambda path: wal(path).unlink(), "ends at revision"),
    "the log is emptied": (lambda path: os.truncate(wal(path), 0), "ends at revision"),
    "the log is cut": (lambda path: os.truncate(wal(path), wal(path).stat().st_size // 2), "ends at revision"),
    "the log is garbled": (lambda path: garble(wal(path)), "ends at revision"),
    "the database is emptied": (lambda path: os.truncate(path, 0), "is empty"),
    "the database is deleted": (Path.unlink, "is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_lost_writes_are_refused_until_the_loss_is_accepted(crashed: Path, damage: str) -> None:
    do, what = DAMAGES[damage]
    do(crashed)
    left = {file: file.read_bytes() for file in files(crashed)[1:] if file.exists()}
    for _ in range(2):
        with pytest.raises(DataLoss) as refused:
            SqliteStore.open(crashed)
        # What is left of the log is still there.
        assert {file: file.read_bytes() for file in left} == left
        assert what in str(refused.value)
        assert f"revision {OBJECTS} was acknowledged" in str(refused.value)
        assert REMEDY in str(refused.value)
    store = SqliteStore.open(crashed, accept_data_loss=True)
    # Clients that have seen lost revisions must list anew.
    assert store.revision == OBJECTS + REVISION_GAP
    with pytest.raises(Compacted):
        store.watch("", OBJECTS, lambda events, revision: None)
    revision, _ = await store.txn([Put("new", b"")])
    await store.close()
    again = SqliteStore.open(crashed)
    assert again.revision == revision == OBJECTS + REVISION_GAP + 1
    await again.close()


async def test_the_database_of_another_cluster_is_refused(crashed: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = SqliteStore.open(tmp_path / "other" / "state.db")
    await fill(other, OBJECTS * 2)
    await other.close()
    for file in files(crashed)[:2]:
        file.unlink()
    shutil.copyfile(tmp_path / "other" / "state.db", crashed)
    with pytest.raises(DataLoss, match=r"is not the database that this data directory was last used with.*restore"):
        SqliteStore.open(crashed)
    accepted = SqliteStore.open(crashed, accept_data_loss=True)
    assert accepted.revision == 2 * OBJECTS + REVISION_GAP
    await accepted.close()


async def test_an_older_copy_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = SqliteStore.open(path)
    await fill(store, 10)
    await store.close()
    shutil.copyfile(path, tmp_path / "copy")
    store = SqliteStore.open(path)
    await fill(store, 10)
    await store.close()
    shutil.copyfile(tmp_path / "copy", path)
    with pytest.raises(DataLoss, match="ends at revision 10, but revision 20 was acknowledged"):
        SqliteStore.open(path)


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("damage", ["the database is emptied", "the database is deleted"])
async def test_a_log_without_its_database_is_a_loss_even_if_no_revision_is_known(
    tmp_path: Path, damage: str, left: int
) -> None:
    """Without a revision file, or with one that was written before the first transaction, the log proves the loss."""
    (tmp_path / "live").mkdir()
    store = SqliteStore.open(tmp_path / "live" / "state.db")
    first = revision_path(tmp_path / "live" / "state.db").read_bytes()
    await fill(store, 5)
    path = crash_image(tmp_path / "live" / "state.db", tmp_path / "crashed")
    await store.close()
    revision_path(path).unlink()
    if left:
        revision_path(path).write_bytes(first)
    do, what = DAMAGES[damage]
    do(path)
    content = wal(path).read_bytes()
    with pytest.raises(DataLoss, match=rf"{what}, but its write-ahead log .*-wal is not: the data is lost; {REMEDY}"):
        SqliteStore.open(path)
    assert wal(path).read_bytes() == content
    accepted = SqliteStore.open(path, accept_data_loss=True)
    assert accepted.revision == REVISION_GAP
    await accepted.close()


async def test_a_database_whose_loss_was_accepted_is_refused_elsewhere(crashed: Path, tmp_path: Path) -> None:
    """It continues at a greater revision than any other, and still lacks acknowledged writes."""
    copy = crash_image(crashed, tmp_path / "copy")
    wal(copy).unlink()
    accepted = SqliteStore.open(copy, accept_data_loss=True)
    assert accepted.revision > OBJECTS + 1
    await accepted.close()
    intact = SqliteStore.open(crashed)
    await intact.txn([Put("acknowledged", b"")])
    await intact.close()
    shutil.copyfile(copy, crashed)
    with pytest.raises(DataLoss, match="is not the database that this data directory was last used with"):
        SqliteStore.open(crashed)


# -- no false alarms --------------------------------------------------------------------------------------------------


async def test_no_moment_of_a_crash_makes_a_healthy_database_look_damaged(tmp_path: Path) -> None:
    """Images of the files are taken between transactions; the revision file of each may be any earlier one, as after
    a loss of power, or unreadable."""
    chance = random.Random(12)
    path = tmp_path / "state.db"
    marks: list[bytes] = []
    store = SqliteStore.open(path)
    for turn in range(40):
        await fill(store, chance.randrange(1, 30), chance.choice((10, 3000, 30_000)))
        if chance.random() < 0.2:
            await store.compact(store.revision - 1)
        await store.check()
        marks.append(revision_path(path).read_bytes())
        image = crash_image(path, tmp_path / f"crash-{turn}")
        match chance.randrange(5):
            case 0:
                revision_path(image).write_bytes(chance.choice(marks))
            case 1:
                revision_path(image).write_bytes(chance.choice((b"", bytes(47), marks[-1][:20], b"garbage\n")))
            case 2:
                revision_path(image).unlink()
        after = SqliteStore.open(image)
        assert after.revision == store.revision
        found = read_revision_record(image)
        assert found is not None
        assert found.revision == after.revision
        await after.close()
        shutil.rmtree(image.parent)
    await store.close()
    reopened = SqliteStore.open(path)
    await reopened.close()


@pytest.mark.parametrize("at", [3, 20, 30, 36, 40])
async def test_a_damaged_revision_file_is_ignored(crashed: Path, at: int) -> None:
    """A changed digit of the identity, the revision or the checksum must not make the database look damaged."""
    line = bytearray(revision_path(crashed).read_bytes())
    line[at : at + 1] = b"8" if line[at : at + 1] != b"8" else b"9"
    revision_path(crashed).write_bytes(line)
    assert read_revision_record(crashed) is None
    store = SqliteStore.open(crashed)
    assert store.revision == OBJECTS
    await store.close()


async def test_a_database_without_an_identity_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = SqliteStore.open(path)
    await fill(store, 5)
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM fact WHERE name = 'identity'")
    connection.close()
    revision_path(path).unlink()
    for _ in range(2):
        store = SqliteStore.open(path)
        assert store.revision == 5
        await store.close()


async def test_a_removed_revision_file_is_written_again_while_the_store_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = SqliteStore.open(path)
    await fill(store, 3)
    revision_path(path).unlink()
    await fill(store, 3)
    await store.check()
    found = read_revision_record(path)
    assert found is not None
    assert found.revision == 6
    await fill(store, 1)
    await store.close()
    found = read_revision_record(path)
    assert found is not None
    assert found.revision == 7


async def test_a_crash_during_creation_of_the_database_is_no_loss(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    store = SqliteStore.open(tmp_path / "state.db")
    image = crash_image(tmp_path / "state.db", tmp_path / "crash")
    await store.close()
    os.truncate(image, 0)
    wal(image).unlink()
    again = SqliteStore.open(image)
    assert again.revision == 0
    await again.close()


# -- while the store is in use ----------------------------------------------------------------------------------------


def replace_with_a_copy(file: Path) -> None:
    shutil.copyfile(file, f"{file}.copy")
    os.replace(f"{file}.copy", file)


def overwrite(file: Path, offset: int, content: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(offset)
        opened.write(content)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "database deleted": (Path.unlink, "was deleted"),
    "database replaced": (replace_with_a_copy, "was replaced by another file"),
    "database emptied": (lambda path: os.truncate(path, 0), "was emptied or overwritten"),
    "database overwritten": (lambda path: overwrite(path, 0, bytes(100)), "was emptied or overwritten"),
    "log deleted": (lambda path: wal(path).unlink(), "write-ahead log .* was deleted"),
    "log replaced": (lambda path: replace_with_a_copy(wal(path)), "write-ahead log .* was replaced"),
    "log emptied": (lambda path: os.truncate(wal(path), 0), "write-ahead log .* was truncated or overwritten"),
    "log cut": (lambda path: os.truncate(wal(path), 9000), "write-ahead log .* was truncated or overwritten"),
    "log garbled": (lambda path: overwrite(wal(path), 6000, b"garbled"), "write-ahead log .* was truncated"),
    "directory removed": (lambda path: shutil.rmtree(path.parent), "was deleted"),
    "directory renamed": (lambda path: path.parent.rename(f"{path.parent}.away"), "was deleted"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_store_whose_files_change_stops(tmp_path: Path, change: str) -> None:
    do, what = CHANGES[change]
    path = tmp_path / "data" / "state.db"
    path.parent.mkdir()
    store = SqliteStore.open(path)
    await fill(store, 20)
    await store.check()
    do(path)
    with pytest.raises(StoreError, match=f"{what}.* while the store was in use.*{REMEDY}"):
        await store.check()
    with pytest.raises(StoreError, match=what):
        await store.txn([Put("late", b"")])
    with pytest.raises(StoreError, match=what):
        await store.get("key/1")
    assert "--accept-data-loss" in (store.failure or "")
    await store.close()


async def test_writes_after_an_emptied_log_do_not_hide_it(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = SqliteStore.open(path)
    await fill(store, 20)
    await store.check()
    os.truncate(wal(path), 0)
    await fill(store, 5)
    with pytest.raises(StoreError, match="was truncated or overwritten"):
        await store.check()
    await store.close()


async def test_the_stores_own_checkpoints_and_compactions_are_no_change(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "state.db")
    for turn in range(30):
        await fill(store, 25, 40_000 if turn % 3 else 100)
        await store.check()
        if turn % 10 == 9:
            await store.compact(store.revision)
            await store.check()
    await store.check()
    await store.close()


async def test_a_log_that_the_store_truncated_is_no_change(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "state.db")
    for number in range(60):
        await store.txn([Put(f"key/{number}", bytes(1 << 20))])
    await store.check()
    for number in range(60):
        await store.txn([Delete(f"key/{number}")])
    await store.check()
    await store.compact(store.revision)  # most of the file is free now, so it shrinks
    assert wal(tmp_path / "state.db").stat().st_size == 0
    await store.check()
    await store.check()
    await fill(store, 3)
    await store.check()
    await store.close()


async def test_the_check_runs_until_the_store_fails(tmp_path: Path) -> None:
    class Ticks:
        slept = 0

        async def sleep(self, seconds: float) -> None:
            self.slept += 1
            if self.slept == 3:
                path.unlink()

    path, ticks = tmp_path / "state.db", Ticks()
    store = SqliteStore.open(path)
    await fill(store, 1)
    await check_forever(store, ticks)  # type: ignore[arg-type]
    assert ticks.slept == 3
    assert "was deleted" in (store.failure or "")
    await store.close()


# -- replacing a database ---------------------------------------------------------------------------------------------


def accept(history: History) -> None:
    """Verify nothing."""


async def save(store: SqliteStore, path: Path) -> None:
    async with aclosing(encoded(store, "")) as stream:
        file = BackupFile(path)
        async for chunk in stream:
            file.write(chunk)
        file.finish()


def restore(backup: Path, path: Path, *, replace: bool) -> int:
    saved = SavedState(backup)
    writer = DatabaseWriter(path, replace=replace)
    try:
        for page in saved.pages():
            writer.add(page)
        revision = max(saved.header.revision, writer.replaced_revision) + REVISION_GAP
        writer.finish(revision, accept)
    finally:
        writer.abandon()
    return revision


async def test_a_replaced_database_has_the_new_state_and_a_greater_revision(tmp_path: Path) -> None:
    path, backup = tmp_path / "state.db", tmp_path / "monday"
    store = SqliteStore.open(path)
    await store.txn([Put("a", b"1"), Put("b", b"2"), Put("c", b"3")])
    await fill(store, 10)
    page = await store.list("")
    await save(store, backup)
    await fill(store, 100)
    with pytest.raises(StoreError, match="in use by another process"):
        restore(backup, path, replace=True)
    await store.close()
    with pytest.raises(DatabaseExists, match=r"there is a database at .* already"):
        restore(backup, path, replace=False)

    revision = restore(backup, path, replace=True)
    assert revision == 111 + REVISION_GAP
    restored = SqliteStore.open(path)
    assert restored.revision == revision
    assert (await restored.list("")).items == page.items
    with pytest.raises(Compacted):
        restored.watch("", 111, lambda events, revision: None)
    assert (await restored.txn([Put("a", b"4")]))[0] == revision + 1
    await restored.close()
    # The one that was replaced is still there.
    replaced = SqliteStore.open(tmp_path / "state.db.replaced-1")
    assert replaced.revision == 111
    await replaced.close()


@pytest.mark.parametrize(
    ("step", "left"), [("_rename_replaced", "is missing"), ("remove_revision_file", "is not the database")]
)
async def test_a_crash_during_a_replacement_leaves_a_database_that_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, left: str
) -> None:
    path, backup = tmp_path / "state.db", tmp_path / "backup"
    store = SqliteStore.open(path)
    await fill(store, 10)
    await save(store, backup)
    await store.close()
    real = getattr(recovery, step)

    def crash(at: Path) -> None:
        if step == "_rename_replaced":
            real(at)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(recovery, step, crash)
        restore(backup, path, replace=True)
    with pytest.raises(DataLoss, match=left):
        SqliteStore.open(path)
    assert restore(backup, path, replace=True) >= 10 + REVISION_GAP
    restored = SqliteStore.open(path)
    assert len((await restored.list("")).items) == 10
    await restored.close()


async def test_a_replacement_that_is_not_verified_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = SqliteStore.open(path)
    await fill(store, 3)
    await store.close()
    before = path.read_bytes()
    writer = DatabaseWriter(path, replace=True)
    writer.add([KeyValue("a", b"1", 1, 2)])

    def refuse(history: History) -> None:
        assert [*history.state] == ["a"]
        raise StoreError("no")

    with pytest.raises(StoreError, match="no"):
        writer.finish(5, refuse)
    writer.abandon()
    assert path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["state.db", "state.db-lock", "state.db-revision"]
