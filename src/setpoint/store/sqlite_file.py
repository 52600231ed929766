"""The data file: one SQLite table with a row for each change, oldest first. It does not depend on the event loop.

The id of a row is made of its revision and its index in the transaction, so every write appends. A batch of
transactions is one statement where possible: Python releases its interpreter lock around each statement, and under load
it takes milliseconds to acquire it again.

The revision file (`store/durable_revision.py`) lies beside it: a database that has lost acknowledged revisions, or that
belongs to another cluster, is refused at start unless the caller accepts the loss. While the database is open, `check`
verifies that its files are still the ones that a start would read (`store/sqlite_file_monitor.py`).
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from setpoint.store.durable_revision import (
    REMEDY,
    RevisionFile,
    RevisionRecord,
    check_not_empty,
    check_not_truncated,
    read_revision_record,
    sync_directory,
)
from setpoint.store.history import History
from setpoint.store.interface import Event, KeyValue, StoreError
from setpoint.store.sqlite_file_monitor import FileMonitor, FilesChanged
from setpoint.store.transaction import MAX_OPS

_APPLICATION = 0x53745074
_FORMAT = 1
_MAX_ROWS_PER_INSERT = 64
_PAGE_SIZE = 8_192  # with 4 KiB half of each page would be empty, as the usual object takes a little over 2 KiB
_CHECKPOINT_PAGES = 500  # a larger value makes transactions wait longer for a checkpoint, now about 10 ms
_LOG_LIMIT = 64 << 20
_VACUUM_PAGES = 256
_VACUUM_THRESHOLD = 16 << 20

_SCHEMA = """
CREATE TABLE change (
  id INTEGER PRIMARY KEY,    -- revision * 65536 + place in the transaction
  key TEXT NOT NULL,
  created INTEGER NOT NULL,  -- the key's create_revision; 0: this change is a deletion
  checksum INTEGER NOT NULL,
  cause BLOB,                -- of the whole transaction, on its first row
  value BLOB
);
CREATE TABLE fact (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO fact VALUES ('compacted', 0), ('opened', 0), ('identity', random());
"""

# Obsolete rows are found by revision and key, since a KeyValue does not hold its index in the transaction.
_DELETE = f"""
DELETE FROM change WHERE id IN (
  SELECT change.id FROM json_each(?) AS dead CROSS JOIN change
  ON change.id BETWEEN json_extract(dead.value, '$[0]') * {MAX_OPS}
                   AND json_extract(dead.value, '$[0]') * {MAX_OPS} + {MAX_OPS - 1}
  AND change.key = json_extract(dead.value, '$[1]'))
"""

ObsoleteRow = tuple[int, str]
"""Revision and key of a row that no reader needs any more."""


class SqliteFile:
    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int, record: RevisionRecord | None) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock  # a file descriptor; -1 once closed
        self._record = record
        """The content of the revision file before this process wrote to it."""
        self._revisions: RevisionFile | None = None  # set by `load`
        self._monitor: FileMonitor | None = None  # set by `load`

    @classmethod
    def open(cls, path: Path) -> SqliteFile:
        """Lock the file for this process until `close` or the end of the process, and open it.

        Raises StoreError, and DataLoss if there was a database here and it is missing or empty."""
        lock = acquire_lock(path)
        try:
            record = read_revision_record(path)
            check_not_empty(path, record)
            create_file(path)
            _link_log(path)
            return cls(path, connect(path), lock, record)
        except BaseException:
            _restore_log(path)
            os.close(lock)
            raise

    def load(self) -> tuple[History, list[ObsoleteRow]]:
        """Return the history, and the rows that an interrupted compaction has left, and start updating the revision
        file.

        Raises StoreError, and DataLoss if the revision file proves that revisions are missing."""
        history, obsolete = self.read()
        identity = self.identity()
        if self._record is not None and self._record.revision:  # otherwise nothing was acknowledged
            check_not_truncated(self.path, self._record, identity, history.revision)
        try:
            # Write once, so that a read-only medium is detected now and not by the first transaction.
            self._connection.execute("UPDATE fact SET value = value + 1 WHERE name = 'opened'")
            if identity is None:  # created by a version without identities
                self._connection.execute("INSERT INTO fact VALUES ('identity', random())")
                identity = self.identity() or 0
            self._revisions = RevisionFile(self.path, RevisionRecord(identity, history.revision))
            self._monitor = FileMonitor(self.path)
            _remove_log_link(self.path)
        except (sqlite3.Error, OSError) as error:
            raise to_store_error(self.path, error) from error
        return history, obsolete

    def identity(self) -> int | None:
        """Return the identity of the database, or None if it was created by a version without identities."""
        found = self._connection.execute("SELECT value FROM fact WHERE name = 'identity'").fetchone()
        return int(found[0]) if found is not None else None

    def read(self) -> tuple[History, list[ObsoleteRow]]:
        """Return the same as `load` without checking the revision file. Every row is verified. Raises StoreError."""
        try:
            (compacted,) = self._connection.execute("SELECT value FROM fact WHERE name = 'compacted'").fetchone()
            base: dict[str, KeyValue] = {}
            obsolete: list[ObsoleteRow] = []
            for change, _ in self._changes("id < ?", (compacted + 1) * MAX_OPS):
                before = base.pop(change.key, None)
                if before is not None:
                    obsolete.append((before.mod_revision, change.key))
                if change.value is None:
                    obsolete.append((change.mod_revision, change.key))
                else:
                    base[change.key] = change
            history = History(base.values(), compacted)
            transaction: list[Event] = []
            cause = b""
            for change, row_cause in self._changes("id >= ?", (compacted + 1) * MAX_OPS):
                if transaction and transaction[0].revision != change.mod_revision:
                    history.apply(transaction, cause)
                    transaction, cause = [], b""
                if change.mod_revision > history.revision + 1:
                    raise StoreError(
                        f"{self.path} is damaged: revision {history.revision + 1} is missing; "
                        "restore a backup with `setpoint restore`"
                    )
                cause = cause or row_cause
                before = history.state.get(change.key)
                now = None if change.value is None else change
                transaction.append(Event(change.mod_revision, change.key, now, before))
            if transaction:
                history.apply(transaction, cause)
        except sqlite3.Error as error:
            raise to_store_error(self.path, error) from error
        return history, obsolete

    def _changes(self, where: str, bound: int) -> Iterable[tuple[KeyValue, bytes]]:
        rows = self._connection.execute(
            f"SELECT id, key, created, checksum, cause, value FROM change WHERE {where} ORDER BY id", (bound,)
        )
        for number, key, created, checksum, cause, value in rows:
            # A deletion has no value: this KeyValue's value is None, which its type does not allow, until `read` is
            # done.
            if checksum != _checksum(key, value):
                raise StoreError(f"{self.path} is damaged: {key} at revision {number // MAX_OPS} is not as written")
            yield KeyValue(key, value, created, number // MAX_OPS), cause or b""

    def append(self, transactions: Sequence[tuple[Sequence[Event], bytes]]) -> None:
        """Write transactions durably, all of them or none. Raises sqlite3.Error, OSError."""
        rows: list[tuple[Any, ...]] = []
        for events, cause in transactions:
            number = events[0].revision * MAX_OPS
            for event in events:
                now = event.now
                if now is None:
                    rows.append((number, event.key, 0, _checksum(event.key, None), cause or None, None))
                else:
                    value = now.value
                    checksum = _checksum(event.key, value)
                    rows.append((number, event.key, now.create_revision, checksum, cause or None, value))
                number += 1
                cause = b""
        if len(rows) <= _MAX_ROWS_PER_INSERT:
            self._insert(rows)
        else:
            self._connection.execute("BEGIN IMMEDIATE")
            for at in range(0, len(rows), _MAX_ROWS_PER_INSERT):
                self._insert(rows[at : at + _MAX_ROWS_PER_INSERT])
            self._connection.execute("COMMIT")
        if self._revisions is not None:
            self._revisions.write(transactions[-1][0][0].revision)

    def _insert(self, rows: Sequence[tuple[Any, ...]]) -> None:
        # executemany for one execution: unlike execute it does not query the last rowid, which would release the
        # interpreter lock once more.
        self._connection.executemany(_INSERT[len(rows)], [[field for row in rows for field in row]])

    def check(self) -> None:
        """Verify that the files are still the ones that a start would read, and sync the revision file.

        Raises StoreError, OSError."""
        try:
            if self._monitor is not None:
                self._monitor.check()
        except FilesChanged as found:
            raise StoreError(
                f"{found} while the store was in use: what is written now would be lost; {REMEDY}"
            ) from None
        if self._revisions is not None:
            self._revisions.sync()

    def set_compacted(self, revision: int) -> None:
        """Record durably that history up to `revision` is compacted. Raises sqlite3.Error."""
        self._connection.execute("UPDATE fact SET value = max(value, ?) WHERE name = 'compacted'", (revision,))

    def delete(self, obsolete: Sequence[ObsoleteRow]) -> None:
        """Delete obsolete rows. Raises sqlite3.Error."""
        self._connection.execute(_DELETE, (json.dumps(obsolete),))

    def shrink(self) -> bool:
        """Return some free pages to the file system if more than half of the file is free; otherwise SQLite reuses
        them.

        Returns whether there is more to do. Raises sqlite3.Error."""
        if not self._is_mostly_free():
            return False
        # executescript runs the statement to its end; `execute` would free a single page.
        self._connection.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
        if self._is_mostly_free():
            return True
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if self._monitor is not None:
            self._monitor.log_truncated()
        return False

    def _is_mostly_free(self) -> bool:
        (free,), (pages,), (page_size,) = (
            self._connection.execute(f"PRAGMA {name}").fetchone()
            for name in ("freelist_count", "page_count", "page_size")
        )
        return bool(free * page_size > _VACUUM_THRESHOLD and free > pages // 2)

    def size(self) -> int:
        total = 0
        for path in (self.path, Path(f"{self.path}-wal")):
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def close(self) -> None:
        # Everything acknowledged is durable already; only the cleanup can fail here.
        with suppress(sqlite3.Error):
            self._connection.close()
        if self._revisions is None:
            _restore_log(self.path)
        if self._revisions is not None:
            with suppress(OSError):
                self._revisions.sync()
            self._revisions.close()
        if self._monitor is not None:
            self._monitor.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


_INSERT = [
    "INSERT INTO change (id, key, created, checksum, cause, value) VALUES " + ",".join(["(?,?,?,?,?,?)"] * rows)
    for rows in range(_MAX_ROWS_PER_INSERT + 1)
]


def insert_state(connection: sqlite3.Connection, items: Iterable[KeyValue], row_counts: dict[int, int]) -> None:
    """Write entries with the revisions that they have. Raises sqlite3.Error.

    `row_counts` holds the last row index of each revision, from call to call."""
    connection.execute("BEGIN IMMEDIATE")
    for item in items:
        key, value, revision = item.key, item.value, item.mod_revision
        index = row_counts[revision] = row_counts.get(revision, -1) + 1
        row = (revision * MAX_OPS + index, key, item.create_revision, _checksum(key, value), None, value)
        connection.execute(_INSERT[1], row)
    connection.execute("COMMIT")


def _checksum(key: str, value: bytes | None) -> int:
    return crc32(value or b"", crc32(key.encode()))


def acquire_lock(path: Path) -> int:
    """Lock out other processes and return the descriptor that holds the lock. Raises StoreError.

    The lock is on a file of its own: SQLite holds POSIX locks on the data file, which are lost as soon as anything in
    the process opens and closes that file."""
    try:
        lock = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError as error:
        raise StoreError(f"the data directory {path.parent} does not exist") from error
    except OSError as error:
        raise StoreError(f"the data directory {path.parent} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            raise StoreError(f"the data directory {path.parent} is in use by another process") from error
        raise StoreError(f"the data directory {path.parent} cannot be locked: {error.strerror}") from error
    return lock


def create_file(path: Path) -> None:
    """Create the file if it does not exist, readable by its owner only: it will hold Secrets. Raises StoreError."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        sync_directory(path.parent)
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreError(f"the data file {path} cannot be created: {error.strerror}") from error


def _log_link(path: Path) -> str:
    """Return the name of the second link to the log, which exists until the database is accepted."""
    return f"{path}-wal.spare"


def _link_log(path: Path) -> None:
    """Link the log under a second name, so that it survives a failed start.

    When SQLite closes a connection it merges the log into the database and removes it, even if it has just found the
    log damaged. On file systems without links this does nothing."""
    _remove_log_link(path)
    with suppress(OSError):
        os.link(f"{path}-wal", _log_link(path))


def _restore_log(path: Path) -> None:
    """Restore the log that SQLite has just removed, so that a refused database can be examined."""
    with suppress(OSError):
        os.rename(_log_link(path), f"{path}-wal")


def _remove_log_link(path: Path) -> None:
    with suppress(FileNotFoundError):
        os.unlink(_log_link(path))


def connect(path: Path) -> sqlite3.Connection:
    try:
        # The connection moves to the writer thread; two threads never use it at the same time.
        connection = sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=2 * _MAX_ROWS_PER_INSERT
        )
    except sqlite3.Error as error:
        raise to_store_error(path, error) from error
    try:
        _prepare(path, connection)
    except sqlite3.Error as error:
        connection.close()
        raise to_store_error(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    run = connection.execute
    run("PRAGMA locking_mode = EXCLUSIVE")
    # This also acquires the lock, which this mode holds until the connection is closed.
    is_new = run("PRAGMA page_count").fetchone() == (0,)
    if is_new:
        run(f"PRAGMA page_size = {_PAGE_SIZE}")
        run("PRAGMA auto_vacuum = INCREMENTAL")
    (mode,) = run("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(f"the data file {path} cannot use write-ahead logging on this file system")
    run("PRAGMA synchronous = FULL")
    run("PRAGMA fullfsync = ON")  # on macOS a plain fsync stops at the drive's cache; no effect elsewhere
    run(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    run("PRAGMA secure_delete = ON")  # default only in some builds; a deleted row may have been a Secret
    run(f"PRAGMA journal_size_limit = {_LOG_LIMIT}")
    if is_new:
        connection.executescript(
            f"BEGIN IMMEDIATE; PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_FORMAT};"
            f"{_SCHEMA} COMMIT;"
        )
        # Write it into the file itself: a new database must be recognized even without its log.
        run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    check_format(path, connection)


def check_format(path: Path, connection: sqlite3.Connection) -> None:
    """Raise StoreError unless the database is one of Setpoint in the format of this version."""
    if connection.execute("PRAGMA application_id").fetchone() != (_APPLICATION,):
        raise StoreError(f"{path} is a database of another program, not a Setpoint data file")
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found != _FORMAT:
        raise StoreError(f"{path} has format {found} of another version of Setpoint; this one reads format {_FORMAT}")


def to_store_error(path: Path, error: BaseException) -> StoreError:
    """Return a StoreError that explains in a complete sentence what failed."""
    if isinstance(error, StoreError):
        return error
    code = getattr(error, "sqlite_errorcode", None)
    match code & 0xFF if code is not None else None:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreError(f"the data directory {path.parent} is in use by another process")
        case sqlite3.SQLITE_FULL:
            return StoreError(f"the disk that holds {path} is full")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StoreError(f"{path} is damaged or not a Setpoint data file ({error})")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN:
            return StoreError(f"the data file {path} cannot be opened for writing ({error})")
        case sqlite3.SQLITE_IOERR:
            return StoreError(f"the disk that holds {path} failed ({error})")
        case _:
            return StoreError(f"the data file {path} failed: {error}")
