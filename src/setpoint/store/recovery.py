"""Creation of databases from the state of another store or a backup, and recovery after a loss.

All of it requires that the database is closed. A database that replaces another one, be it from a restored backup or
what is left of a damaged one, continues at a revision far beyond any that clients have seen: revisions never go back,
and a client with an older one has to list again.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from setpoint.store.durable_revision import read_revision_record, remove_revision_file, sync_directory
from setpoint.store.history import History
from setpoint.store.interface import KeyValue, StoreError
from setpoint.store.sqlite_file import SqliteFile, acquire_lock, connect, create_file, insert_state, to_store_error
from setpoint.store.sqlite_reading import read_closed_database
from setpoint.store.transaction import MAX_OPS

log = logging.getLogger("setpoint.store")

REVISION_GAP = 1_000_000_000
"""Number of revisions to skip. It must exceed the number of revisions that were lost without a trace; etcd's
documentation recommends the same number."""
_FILE_SUFFIXES = ("", "-wal", "-revision")


class DatabaseExists(StoreError):
    """A database would have to be replaced."""


class DatabaseWriter:
    """Creates the database of a data directory: `add` all entries of one state in order, then `finish`.

    Until then the new database has another name, and nothing else has changed; the directory is locked."""

    def __init__(self, path: Path, *, replace: bool = False) -> None:
        """Lock the directory and create a new database beside `path`. Raises StoreError if there is a database already,
        unless `replace` is set, or if a server uses it."""
        self._path = path
        self._new = Path(f"{path}.restoring")
        self._lock = acquire_lock(path)
        self._row_counts: dict[int, int] = {}
        self._connection: sqlite3.Connection | None = None
        try:
            with _store_errors(path):
                if not replace and path.exists() and path.stat().st_size:
                    raise DatabaseExists(f"there is a database at {path} already")
                record = read_revision_record(path)
                self.replaced_revision = record.revision if record is not None else 0
                """The last revision of the database that was or is at `path`, as far as it is known; 0 if none was."""
                _remove(self._new)  # of an interrupted attempt
                create_file(self._new)
                self._connection = connect(self._new)
                self._connection.execute("PRAGMA synchronous = OFF")  # the file is synced once, when it is complete
        except BaseException:
            self.abandon()
            raise

    def add(self, items: Iterable[KeyValue]) -> None:
        """Write entries with the revisions that they have. Raises StoreError."""
        assert self._connection is not None
        with _store_errors(self._path):
            insert_state(self._connection, items, self._row_counts)

    def finish(self, revision: int, verify: Callable[[History], None]) -> None:
        """Let the new database continue at `revision`, and put it in place of the former one, which is renamed.

        `verify` is called with the new database as it was read again; if it raises, nothing has changed. Raises
        StoreError."""
        assert self._connection is not None
        if revision >= (1 << 63) // MAX_OPS:
            raise StoreError(f"{self._path} cannot continue at revision {revision}: that is the end of all revisions")
        with _store_errors(self._path):
            self._connection.execute("UPDATE fact SET value = ? WHERE name = 'compacted'", (revision,))
            self._connection.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, without a log
            self._connection.close()
            _sync(self._new)
            verify(read_closed_database(self._new))
            # The revision file is removed last: after a crash in between, the next start refuses the database.
            _rename_replaced(self._path)
            os.rename(self._new, self._path)
            remove_revision_file(self._path)

    def abandon(self) -> None:
        """Remove what was written, unless the database is finished, and unlock the directory."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        _remove(self._new)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


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
