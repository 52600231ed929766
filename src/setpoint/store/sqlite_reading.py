"""Reads the database of a stopped server without changing any of its files.

The lock is shared: servers are kept out, and several readers are not. SQLite would merge a write-ahead log into the
database when it is opened, so a database with a log, which a crash leaves behind, is read from a temporary copy.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from setpoint.store.durable_revision import check_not_empty, check_not_truncated, read_revision_record
from setpoint.store.history import History
from setpoint.store.interface import StoreError
from setpoint.store.sqlite_file import SqliteFile, check_format, connect, to_store_error


@contextmanager
def stopped_database(path: Path) -> Iterator[History]:
    """Yield the verified content of a database, and keep servers from starting on it while the block runs.

    Raises StoreError if there is none, a server uses it or it is damaged; DataLoss if acknowledged writes are
    missing."""
    with _shared_lock(path):
        record = read_revision_record(path)
        check_not_empty(path, record)
        if not path.exists() or not path.stat().st_size:
            raise StoreError(f"there is no database at {path}")
        history, identity = _read(path)
        if record is not None and record.revision:  # otherwise nothing was acknowledged
            check_not_truncated(path, record, identity, history.revision)
        yield history


def read_closed_database(path: Path) -> History:
    """Return the verified content of a database without a log, such as a backup of an earlier version.

    Raises StoreError."""
    return _read_immutable(path)[0]


_Content = tuple[History, int | None]
"""The content of a database and its identity."""


def _read(path: Path) -> _Content:
    log = Path(f"{path}-wal")
    if not log.exists() or not log.stat().st_size:
        return _read_immutable(path)
    with tempfile.TemporaryDirectory(prefix="setpoint-") as directory:
        copy = Path(directory) / path.name
        try:
            for suffix in ("", "-wal"):
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
            with closing(connect(copy)) as connection:
                file = SqliteFile(copy, connection, -1, None)
                return file.read()[0], file.identity()
        except StoreError as error:
            raise StoreError(str(error).replace(str(copy), str(path))) from None
        except OSError as error:
            raise StoreError(
                f"{path} has a write-ahead log and cannot be copied to read it: {error.strerror}"
            ) from error


def _read_immutable(path: Path) -> _Content:
    uri = f"file:{quote(os.fspath(path.absolute()))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            check_format(path, connection)
            file = SqliteFile(path, connection, -1, None)
            return file.read()[0], file.identity()
    except sqlite3.Error as error:
        raise to_store_error(path, error) from error


@contextmanager
def _shared_lock(path: Path) -> Iterator[None]:
    lock = -1
    with suppress(FileNotFoundError):  # then no server has ever opened it
        lock = os.open(f"{path}-lock", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if lock >= 0:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    f"the data directory {path.parent} is in use by another process, which must be stopped first"
                ) from None
        yield
    finally:
        if lock >= 0:
            os.close(lock)
