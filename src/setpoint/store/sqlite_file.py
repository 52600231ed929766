"""The data file: one SQLite table with a row for each change, oldest first. Nothing here knows of the event loop.

A row is named by its revision and its place in the transaction, so writing is always appending. A batch of
transactions is one statement where possible: Python gives up its interpreter lock around each statement, and under
load it takes milliseconds to get it back.

Beside it lies the revision file (`store/durable_revision.py`): a database that has lost acknowledged revisions, or that
belongs to another cluster, is refused at the start unless the caller accepts the loss. While it is open, `check` finds
out whether its files are still the ones that a start would read (`store/sqlite_watch.py`).
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

from setpoint.store.data_loss import REMEDY, refuse_empty, refuse_loss
from setpoint.store.durable_revision import Mark, RevisionFile, read_mark, sync_directory
from setpoint.store.history import History
from setpoint.store.interface import Event, KeyValue, StoreError
from setpoint.store.sqlite_watch import FilesChanged, FileWatch
from setpoint.store.transaction import MOST_OPS

_APPLICATION = 0x53745074
_FORMAT = 1
_ROWS_AT_ONCE = 64
_PAGE_SIZE = 8_192  # of 4 KiB, half would be empty with the usual object of 2 KiB and a little
_CHECKPOINT_PAGES = 500  # the larger, the longer somebody waits behind a checkpoint: now some 10 ms
_LOG_LIMIT = 64 << 20
_VACUUM_PAGES = 256
_WORTH_VACUUMING = 16 << 20

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

# The dead are found by revision and key, since a KeyValue does not know its place in its transaction.
_DELETE = f"""
DELETE FROM change WHERE id IN (
  SELECT change.id FROM json_each(?1) AS dead CROSS JOIN change
  ON change.id BETWEEN json_extract(dead.value, '$[0]') * {MOST_OPS}
                   AND json_extract(dead.value, '$[0]') * {MOST_OPS} + {MOST_OPS - 1}
  AND change.key = json_extract(dead.value, '$[1]'))
"""

Dead = tuple[int, str]
"""A row that no reader needs any more: its revision and key."""


class SqliteFile:
    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int, mark: Mark | None) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock  # a file descriptor; -1 once closed
        self._mark = mark
        """The content of the revision file before this process wrote to it."""
        self._revisions: RevisionFile | None = None  # from `load` on
        self._watch: FileWatch | None = None  # from `load` on

    @classmethod
    def open(cls, path: Path) -> SqliteFile:
        """Take the file for this process alone, until `close` or the end of the process. Raises StoreError, and
        DataLoss if there was a database here and it is missing or empty."""
        lock = take_lock(path)
        try:
            mark = read_mark(path)
            refuse_empty(path, mark)
            create_file(path)
            _link_log(path)
            return cls(path, connect(path), lock, mark)
        except BaseException:
            _put_log_back(path)
            os.close(lock)
            raise

    def load(self) -> tuple[History, list[Dead]]:
        """Return everything the file knows, and the rows that an interrupted compaction left behind. From now on the
        revision file is kept. Raises StoreError, and DataLoss if the revision file says that there was more."""
        history, dead = self.read()
        identity = self._identity()
        if self._mark is not None and self._mark.revision:  # else nothing was acknowledged
            refuse_loss(self.path, self._mark, identity, history.revision)
        try:
            # A write, so that a medium that refuses them is found now and not at the first transaction.
            self._connection.execute("UPDATE fact SET value = value + 1 WHERE name = 'opened'")
            if identity is None:  # created before databases had one
                self._connection.execute("INSERT INTO fact VALUES ('identity', random())")
                identity = self._identity() or 0
            self._revisions = RevisionFile(self.path, Mark(identity, history.revision))
            self._watch = FileWatch(self.path)
            _unlink_spare(self.path)
        except (sqlite3.Error, OSError) as error:
            raise explained(self.path, error) from error
        return history, dead

    def _identity(self) -> int | None:
        found = self._connection.execute("SELECT value FROM fact WHERE name = 'identity'").fetchone()
        return int(found[0]) if found is not None else None

    def read(self) -> tuple[History, list[Dead]]:
        """The same, without looking at the revision file. Every row is verified. Raises StoreError."""
        try:
            (compacted,) = self._connection.execute("SELECT value FROM fact WHERE name = 'compacted'").fetchone()
            base: dict[str, KeyValue] = {}
            dead: list[Dead] = []
            for change, _ in self._changes("id < ?", (compacted + 1) * MOST_OPS):
                before = base.pop(change.key, None)
                if before is not None:
                    dead.append((before.mod_revision, change.key))
                if change.value is None:
                    dead.append((change.mod_revision, change.key))
                else:
                    base[change.key] = change
            history = History(base.values(), compacted)
            transaction: list[Event] = []
            cause = b""
            for change, its_cause in self._changes("id >= ?", (compacted + 1) * MOST_OPS):
                if transaction and transaction[0].revision != change.mod_revision:
                    history.apply(transaction, cause)
                    transaction, cause = [], b""
                if change.mod_revision > history.revision + 1:
                    raise StoreError(
                        f"{self.path} is damaged: revision {history.revision + 1} is missing; "
                        "restore a backup with `setpoint restore`"
                    )
                cause = cause or its_cause
                before = history.state.get(change.key)
                now = None if change.value is None else change
                transaction.append(Event(change.mod_revision, change.key, now, before))
            if transaction:
                history.apply(transaction, cause)
        except sqlite3.Error as error:
            raise explained(self.path, error) from error
        return history, dead

    def _changes(self, where: str, bound: int) -> Iterable[tuple[KeyValue, bytes]]:
        rows = self._connection.execute(
            f"SELECT id, key, created, checksum, cause, value FROM change WHERE {where} ORDER BY id", (bound,)
        )
        for number, key, created, checksum, cause, value in rows:
            # A deletion has no value; KeyValue is bent a little to carry that as far as `load`.
            if checksum != _checksum(key, value):
                raise StoreError(f"{self.path} is damaged: {key} at revision {number // MOST_OPS} is not as written")
            yield KeyValue(key, value, created, number // MOST_OPS), cause or b""

    def append(self, transactions: Sequence[tuple[Sequence[Event], bytes]]) -> None:
        """All of them durable when this returns, or none. Raises sqlite3.Error, OSError."""
        rows: list[tuple[Any, ...]] = []
        for events, cause in transactions:
            number = events[0].revision * MOST_OPS
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
        if len(rows) <= _ROWS_AT_ONCE:
            self._insert(rows)
        else:
            self._connection.execute("BEGIN IMMEDIATE")
            for at in range(0, len(rows), _ROWS_AT_ONCE):
                self._insert(rows[at : at + _ROWS_AT_ONCE])
            self._connection.execute("COMMIT")
        if self._revisions is not None:
            self._revisions.write(transactions[-1][0][0].revision)

    def _insert(self, rows: Sequence[tuple[Any, ...]]) -> None:
        # executemany for one execution: unlike execute it does not look up the last rowid, which lets go of the
        # interpreter lock once more.
        self._connection.executemany(_INSERT[len(rows)], [[field for row in rows for field in row]])

    def check(self) -> None:
        """Make sure that the files are still the ones that a start would read, and make the revision file survive a
        loss of power. Raises StoreError, OSError."""
        try:
            if self._watch is not None:
                self._watch.check()
        except FilesChanged as found:
            raise StoreError(
                f"{found} while the store was in use: what is written now would be lost; {REMEDY}"
            ) from None
        if self._revisions is not None:
            self._revisions.sync()

    def compacted(self, revision: int) -> None:
        """From now on, durably, nobody asks for what was before. Raises sqlite3.Error."""
        self._connection.execute("UPDATE fact SET value = max(value, ?) WHERE name = 'compacted'", (revision,))

    def delete(self, dead: Sequence[Dead]) -> None:
        """Raises sqlite3.Error."""
        self._connection.execute(_DELETE, (json.dumps(dead),))

    def shrink(self) -> bool:
        """Gives a little of the free space back if more than half of the file is free; freed pages are otherwise used
        again. Says whether there is more to give. Raises sqlite3.Error."""
        if not self._is_mostly_free():
            return False
        # As a script, because that runs the statement to its end; `execute` would free a single page.
        self._connection.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
        if self._is_mostly_free():
            return True
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if self._watch is not None:
            self._watch.log_truncated()
        return False

    def _is_mostly_free(self) -> bool:
        (free,), (pages,), (page_size,) = (
            self._connection.execute(f"PRAGMA {name}").fetchone()
            for name in ("freelist_count", "page_count", "page_size")
        )
        return bool(free * page_size > _WORTH_VACUUMING and free > pages // 2)

    def size(self) -> int:
        total = 0
        for path in (self.path, Path(f"{self.path}-wal")):
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def close(self) -> None:
        # Everything acknowledged is durable already; what fails here is only tidying up.
        with suppress(sqlite3.Error):
            self._connection.close()
        if self._revisions is None:
            _put_log_back(self.path)
        if self._revisions is not None:
            with suppress(OSError):
                self._revisions.sync()
            self._revisions.close()
        if self._watch is not None:
            self._watch.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


_INSERT = [
    "INSERT INTO change (id, key, created, checksum, cause, value) VALUES " + ",".join(["(?,?,?,?,?,?)"] * rows)
    for rows in range(_ROWS_AT_ONCE + 1)
]


def insert_state(connection: sqlite3.Connection, items: Iterable[KeyValue], places: dict[int, int]) -> None:
    """Write keys with the revisions that they have. `places` counts the rows of each revision, from call to call.
    Raises sqlite3.Error."""
    connection.execute("BEGIN IMMEDIATE")
    for key, value, created, revision in items:
        place = places[revision] = places.get(revision, -1) + 1
        row = (revision * MOST_OPS + place, key, created, _checksum(key, value), None, value)
        connection.execute(_INSERT[1], row)
    connection.execute("COMMIT")


def _checksum(key: str, value: bytes | None) -> int:
    return crc32(value or b"", crc32(key.encode()))


def take_lock(path: Path) -> int:
    """Lock out other processes and return the descriptor that holds the lock. Raises StoreError.

    Not on the data file itself: there SQLite has locks of its own, of the kind that is
    lost as soon as anything in the process opens and closes the file."""
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
    """Make sure that the file exists, readable by its owner alone: it will hold Secrets. Raises StoreError."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        sync_directory(path.parent)
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreError(f"the data file {path} cannot be created: {error.strerror}") from error


def _spare(path: Path) -> str:
    """A second name for the log, until the database is accepted."""
    return f"{path}-wal.spare"


def _link_log(path: Path) -> None:
    """SQLite merges the log into the database and removes it when a connection is closed, also one that only found out
    that the log is damaged. File systems without links do without the second name."""
    _unlink_spare(path)
    with suppress(OSError):
        os.link(f"{path}-wal", _spare(path))


def _put_log_back(path: Path) -> None:
    """The database was refused: somebody may want to examine what SQLite has just removed."""
    with suppress(OSError):
        os.rename(_spare(path), f"{path}-wal")


def _unlink_spare(path: Path) -> None:
    with suppress(FileNotFoundError):
        os.unlink(_spare(path))


def connect(path: Path) -> sqlite3.Connection:
    try:
        # The writer's thread takes the connection over; no two threads ever use it at once.
        connection = sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=2 * _ROWS_AT_ONCE
        )
    except sqlite3.Error as error:
        raise explained(path, error) from error
    try:
        _prepare(path, connection)
    except sqlite3.Error as error:
        connection.close()
        raise explained(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    run = connection.execute
    run("PRAGMA locking_mode = EXCLUSIVE")
    # This also takes the lock, which in this mode is kept.
    is_new = run("PRAGMA page_count").fetchone() == (0,)
    if is_new:
        run(f"PRAGMA page_size = {_PAGE_SIZE}")
        run("PRAGMA auto_vacuum = INCREMENTAL")
    (mode,) = run("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(f"the data file {path} cannot be written ahead on this file system")
    run("PRAGMA synchronous = FULL")
    run("PRAGMA fullfsync = ON")  # on macOS a plain fsync stops at the drive's cache; elsewhere this is nothing
    run(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    run("PRAGMA secure_delete = ON")  # the default of some builds only; what is deleted may have been a Secret
    run(f"PRAGMA journal_size_limit = {_LOG_LIMIT}")
    if is_new:
        connection.executescript(
            f"BEGIN IMMEDIATE; PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_FORMAT};"
            f"{_SCHEMA} COMMIT;"
        )
        # Into the file itself: without its log, a young database must still be known as ours.
        run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if run("PRAGMA application_id").fetchone() != (_APPLICATION,):
        raise StoreError(f"{path} is a database of another program, not a Setpoint data file")
    (found,) = run("PRAGMA user_version").fetchone()
    if found != _FORMAT:
        raise StoreError(f"{path} has format {found} of another version of Setpoint; this one reads format {_FORMAT}")


def explained(path: Path, error: BaseException) -> StoreError:
    """What went wrong with the file, in a sentence for people."""
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
