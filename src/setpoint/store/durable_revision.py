"""The revision file, and the detection of acknowledged writes that are missing from the database beside it.

The file `<database>-revision` holds the identity of the database and the last revision that is known to be durable, in
one line of text with a checksum. A revision is written here only after the commit that made it durable has returned,
so the file may be behind the database and is never ahead of it: neither a crash nor a loss of power can make a healthy
database look damaged. A database that ends before this revision has lost acknowledged writes.

A missing or unreadable revision file proves nothing; it is written anew.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from setpoint.store.interface import StoreError

_IDENTITY_BITS = (1 << 64) - 1
REMEDY = "restore a backup with `setpoint restore`, or start with --accept-data-loss to go on with what is left"


class RevisionRecord(NamedTuple):
    """The content of a revision file."""

    identity: int
    """Identity of the database: a random signed 64-bit number, chosen when the database was created."""
    revision: int
    """Last revision that is known to be durable."""


def revision_path(database: Path) -> Path:
    return Path(f"{database}-revision")


def read_revision_record(database: Path) -> RevisionRecord | None:
    """Return the content of the database's revision file, or None if it is missing or not as written."""
    try:
        line = revision_path(database).read_bytes()[: len(_line(RevisionRecord(0, 0)))]
        identity, revision, _ = line.split()
        record = RevisionRecord(_signed(int(identity, 16)), int(revision))
    except (OSError, ValueError):
        return None
    return record if line == _line(record) else None


def remove_revision_file(database: Path) -> None:
    """Remove the revision file, durably."""
    with suppress(FileNotFoundError):
        revision_path(database).unlink()
    sync_directory(database.parent)


class RevisionFile:
    """An open revision file. Its methods raise OSError."""

    def __init__(self, database: Path, record: RevisionRecord) -> None:
        """Write `record` durably, replacing whatever the file held."""
        self._path = revision_path(database)
        self._identity = record.identity
        self._written = self._synced = record.revision
        self._fd = -1
        self._create()

    def _create(self) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self.write(self._written)
            os.fsync(self._fd)
            sync_directory(self._path.parent)
        except BaseException:
            self.close()
            raise

    def write(self, revision: int) -> None:
        """Record that `revision` is durable. The record survives a crash of the process at once, and a loss of power
        after the next `sync` or when the kernel writes the page back."""
        os.pwrite(self._fd, _line(RevisionRecord(self._identity, revision)), 0)
        self._written = revision

    def sync(self) -> None:
        """Make what was written survive a loss of power, and create the file again if it was removed."""
        if not self._is_in_place():
            self.close()
            self._create()
        elif self._written != self._synced:
            os.fsync(self._fd)
        self._synced = self._written

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    folder = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _line(record: RevisionRecord) -> bytes:
    """Encode a record. All records have the same length, fit into one sector and are overwritten in place."""
    text = b"%016x %020d" % (record.identity & _IDENTITY_BITS, record.revision)
    return b"%b %08x\n" % (text, crc32(text))


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


class DataLoss(StoreError):
    """Acknowledged revisions are not in the database, or the database is another cluster's."""


def check_not_empty(path: Path, record: RevisionRecord | None) -> None:
    """Raise DataLoss if the file is missing or empty though it held data.

    SQLite would take an empty file for a new database and discard its write-ahead log."""
    try:
        if path.stat().st_size:
            return
        what = "is empty"
    except FileNotFoundError:
        what = "is missing"
    except OSError:
        return  # SqliteFile.open reports the error
    if record is not None and record.revision:
        raise DataLoss(f"{path} {what}, but revision {record.revision} was acknowledged: the data is lost; {REMEDY}")
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        raise DataLoss(f"{path} {what}, but its write-ahead log {log} is not: the data is lost; {REMEDY}")


def check_not_truncated(path: Path, record: RevisionRecord, identity: int | None, revision: int) -> None:
    """Raise DataLoss if the database is not the one that `record` was written for, or ends before its revision."""
    if identity != record.identity:
        raise DataLoss(
            f"{path} is not the database that this data directory was last used with, but another cluster's or an "
            f"older one: put that one back, {REMEDY}"
        )
    if revision < record.revision:
        raise DataLoss(
            f"{path} ends at revision {revision}, but revision {record.revision} was acknowledged: its write-ahead log "
            f"was removed or damaged, or the file is an older copy; {REMEDY}"
        )
