"""Backups of a database, and what can be done after a loss. None of it is called while the database is open.

A backup is a database of its own that holds the state at one revision, without the history before it. Whatever takes
the place of another database, a restored backup or the remains of a damaged one, continues at a revision far beyond
anything that clients have seen: revisions never go back, and a client with an older one is told to list anew.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from setpoint.store.durable_revision import forget_mark, read_mark, sync_directory
from setpoint.store.interface import KeyValue, StoreError
from setpoint.store.sqlite_file import SqliteFile, connect, create_file, explained, insert_state, take_lock
from setpoint.store.transaction import MOST_OPS

log = logging.getLogger("setpoint.store")

REVISION_GAP = 1_000_000_000
"""How far the revision is advanced. It must exceed the number of revisions that were lost without a trace; etcd's
documentation recommends the same number."""
_BESIDES = ("", "-wal", "-revision")


class BackupWriter:
    """Writes a backup: `add` all keys of one revision, then `finish`. Until then there is no file under its name."""

    def __init__(self, path: Path) -> None:
        """Raises StoreError if there is such a file already, or it cannot be made."""
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
        """Raises StoreError."""
        with _explaining(self._partial):
            insert_state(self._connection, items, self._places)

    def finish(self, revision: int) -> None:
        """All keys were added, as of this revision. Raises StoreError."""
        with _explaining(self._partial):
            self._connection.execute("UPDATE fact SET value = ? WHERE name = 'compacted'", (revision,))
            self._connection.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, without a log
            self._connection.close()
            _sync(self._partial)
            os.rename(self._partial, self._path)
            sync_directory(self._path.parent)

    def abandon(self) -> None:
        """Remove what was written; nothing if it is finished."""
        with suppress(sqlite3.Error):
            self._connection.close()
        _remove(self._partial)


def restore(backup: Path, path: Path, *, replace: bool) -> int:
    """Make the database at `path` from a backup, and return the revision at which it continues. A database that is
    there already is refused, or set aside under another name if it is to be replaced. Raises StoreError."""
    with _locked(path), _explaining(path):
        if not replace and path.exists() and path.stat().st_size:
            raise StoreError(
                f"there is a database at {path} already; with --force it is kept under another name and the backup "
                "takes its place"
            )
        mark = read_mark(path)
        fresh = Path(f"{path}.restoring")
        _remove(fresh)
        create_file(fresh)
        try:
            revision = _copy(backup, fresh, mark.revision if mark is not None else 0)
        except BaseException:
            _remove(fresh)
            raise
        # Until the end the revision file stays: a crash in between leaves a database that is refused, not a new one.
        _set_aside(path)
        os.rename(fresh, path)
        forget_mark(path)
        return revision


def _copy(backup: Path, fresh: Path, replaced: int) -> int:
    """Raises StoreError in the words of somebody who knows the backup's name."""
    try:
        shutil.copyfile(backup, fresh)
    except OSError as error:
        raise StoreError(f"the backup {backup} cannot be read: {error.strerror}") from error
    if not fresh.stat().st_size:
        raise StoreError(f"the backup {backup} is empty")
    try:
        with _explaining(fresh):
            return _take_over(fresh, replaced)
    except StoreError as error:
        raise StoreError(str(error).replace(str(fresh), str(backup))) from None


def accept_loss(path: Path) -> None:
    """Let the next `SqliteFile.open` use what is left of a database that it has refused. Files that hold nothing that
    can be used are set aside, not deleted. Raises StoreError."""
    with _locked(path), _explaining(path):
        mark = read_mark(path)
        if not path.exists() or not path.stat().st_size:
            _set_aside(path)
            create_file(path)
        _take_over(path, mark.revision if mark is not None else 0)
        forget_mark(path)


def _take_over(path: Path, replaced: int) -> int:
    """Give the database a new identity and a revision beyond its own and the replaced one; return that revision. Every
    row is read and verified. Raises StoreError, sqlite3.Error."""
    connection = connect(path)
    try:
        revision = max(SqliteFile(path, connection, -1, None).read()[0].revision, replaced) + REVISION_GAP
        if revision >= (1 << 63) // MOST_OPS:
            raise StoreError(f"{path} cannot continue: it has used up its revisions")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE fact SET value = ? WHERE name = 'compacted'", (revision,))
        connection.execute("REPLACE INTO fact VALUES ('identity', random())")
        connection.execute("COMMIT")
    finally:
        connection.close()
    return revision


def _set_aside(path: Path) -> None:
    """Give a database and its log names that nobody uses; an empty file is simply removed. Raises OSError."""
    number = 1
    while Path(f"{path}.replaced-{number}").exists():
        number += 1
    for end in ("", "-wal"):
        old = Path(f"{path}{end}")
        with suppress(FileNotFoundError):
            if old.stat().st_size:
                # The log's name must match that of its database, if somebody is to open it again.
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
    for end in _BESIDES:
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{end}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = take_lock(path)
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise explained(path, error) from error
    except OSError as error:
        raise StoreError(f"the directory {path.parent} cannot be written: {error.strerror}") from error
