"""Backups of a database, and recovery after a loss. All of it requires that the database is closed.

A backup is a database of its own that holds the state at one revision, without the history before it. A database that
replaces another one, be it a restored backup or what is left of a damaged one, continues at a revision far beyond any
that clients have seen: revisions never go back, and a client with an older one has to list again.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from setpoint.store.durable_revision import read_revision_record, remove_revision_file, sync_directory
from setpoint.store.interface import KeyValue, StoreError
from setpoint.store.sqlite_file import SqliteFile, acquire_lock, connect, create_file, insert_state, to_store_error
from setpoint.store.transaction import MAX_OPS

log = logging.getLogger("setpoint.store")

REVISION_GAP = 1_000_000_000
"""Number of revisions to skip. It must exceed the number of revisions that were lost without a trace; etcd's
documentation recommends the same number."""
_FILE_SUFFIXES = ("", "-wal", "-revision")


class BackupWriter:
    """Writes a backup: `add` all keys of one revision, then `finish`, which creates the file under its name."""

    def __init__(self, path: Path) -> None:
        """Create a partial file. Raises StoreError if `path` exists or the file cannot be created."""
        if path.exists():
            raise StoreError(f"{path} exists already; a backup overwrites nothing")
        self._path = path
        self._partial = Path(f"{path}.partial")
        _remove(self._partial)
        create_file(self._partial)
        self._connection = connect(self._partial)
        self._connection.execute("PRAGMA synchronous = OFF")  # the file is synced once, when it is complete
        self._places: dict[int, int] = {}

    def add(self, items: Iterable[KeyValue]) -> None:
        """Write entries to the backup. Raises StoreError."""
        with _store_errors(self._partial):
            insert_state(self._connection, items, self._places)

    def finish(self, revision: int) -> None:
        """Complete the backup, with all keys added as of `revision`. Raises StoreError."""
        with _store_errors(self._partial):
            self._connection.execute("UPDATE fact SET value = ? WHERE name = 'compacted'", (revision,))
            self._connection.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, without a log
            self._connection.close()
            _sync(self._partial)
            os.rename(self._partial, self._path)
            sync_directory(self._path.parent)

    def abandon(self) -> None:
        """Remove the partial file; do nothing if the backup is finished."""
        with suppress(sqlite3.Error):
            self._connection.close()
        _remove(self._partial)


def restore(backup: Path, path: Path, *, replace: bool) -> int:
    """Create the database at `path` from a backup, and return the revision at which it continues.

    An existing database is an error, or is renamed if `replace` is set. Raises StoreError."""
    with _locked(path), _store_errors(path):
        if not replace and path.exists() and path.stat().st_size:
            raise StoreError(
                f"there is a database at {path} already; with --force it is renamed and replaced by the backup"
            )
        record = read_revision_record(path)
        fresh = Path(f"{path}.restoring")
        _remove(fresh)
        create_file(fresh)
        try:
            revision = _copy(backup, fresh, record.revision if record is not None else 0)
        except BaseException:
            _remove(fresh)
            raise
        # The revision file is removed last: after a crash in between, the next start refuses the database.
        _rename_replaced(path)
        os.rename(fresh, path)
        remove_revision_file(path)
        return revision


def _copy(backup: Path, fresh: Path, replaced: int) -> int:
    """Copy the backup and advance its revision. Raises StoreError with a message that names the backup."""
    try:
        shutil.copyfile(backup, fresh)
    except OSError as error:
        raise StoreError(f"the backup {backup} cannot be read: {error.strerror}") from error
    if not fresh.stat().st_size:
        raise StoreError(f"the backup {backup} is empty")
    try:
        with _store_errors(fresh):
            return _advance_revision(fresh, replaced)
    except StoreError as error:
        raise StoreError(str(error).replace(str(fresh), str(backup))) from None


def accept_loss(path: Path) -> None:
    """Let the next `SqliteFile.open` use what is left of a database that it has refused.

    Files without usable content are renamed, not deleted. Raises StoreError."""
    with _locked(path), _store_errors(path):
        record = read_revision_record(path)
        if not path.exists() or not path.stat().st_size:
            _rename_replaced(path)
            create_file(path)
        _advance_revision(path, record.revision if record is not None else 0)
        remove_revision_file(path)


def _advance_revision(path: Path, replaced: int) -> int:
    """Give the database a new identity and a revision beyond its own and the replaced one; return that revision.

    Every row is read and verified. Raises StoreError, sqlite3.Error."""
    connection = connect(path)
    try:
        revision = max(SqliteFile(path, connection, -1, None).read()[0].revision, replaced) + REVISION_GAP
        if revision >= (1 << 63) // MAX_OPS:
            raise StoreError(f"{path} cannot continue: it has used up its revisions")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE fact SET value = ? WHERE name = 'compacted'", (revision,))
        connection.execute("REPLACE INTO fact VALUES ('identity', random())")
        connection.execute("COMMIT")
    finally:
        connection.close()
    return revision


def _rename_replaced(path: Path) -> None:
    """Rename a database and its log to unused names; an empty file is removed. Raises OSError."""
    number = 1
    while Path(f"{path}.replaced-{number}").exists():
        number += 1
    for end in ("", "-wal"):
        old = Path(f"{path}{end}")
        with suppress(FileNotFoundError):
            if old.stat().st_size:
                # The log's name must match that of its database, so that both can be opened again.
                aside = Path(f"{path}.replaced-{number}{end}")
                os.rename(old, aside)
                log.warning("%s was renamed to %s", old, aside)
            else:
                old.unlink()
    sync_directory(path.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove(path: Path) -> None:
    for end in _FILE_SUFFIXES:
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{end}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = acquire_lock(path)
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def _store_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise to_store_error(path, error) from error
    except OSError as error:
        raise StoreError(f"the directory {path.parent} cannot be written: {error.strerror}") from error
