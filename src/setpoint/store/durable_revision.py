"""The revision file: what the database beside it must contain at least.

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

_IDENTITY_BITS = (1 << 64) - 1


class Mark(NamedTuple):
    """The content of a revision file."""

    identity: int
    """Of the database: a random signed 64-bit number, chosen when the database was created."""
    revision: int
    """The last one known to be durable."""


def revision_path(database: Path) -> Path:
    return Path(f"{database}-revision")


def read_mark(database: Path) -> Mark | None:
    """Return the content of the database's revision file, or None if it is missing or not as written."""
    try:
        line = revision_path(database).read_bytes()[: len(_line(Mark(0, 0)))]
        identity, revision, _ = line.split()
        mark = Mark(_signed(int(identity, 16)), int(revision))
    except (OSError, ValueError):
        return None
    return mark if line == _line(mark) else None


def forget_mark(database: Path) -> None:
    """Remove the revision file, durably."""
    with suppress(FileNotFoundError):
        revision_path(database).unlink()
    sync_directory(database.parent)


class RevisionFile:
    """An open revision file. Its methods raise OSError."""

    def __init__(self, database: Path, mark: Mark) -> None:
        """Write `mark` durably, replacing whatever the file held."""
        self._path = revision_path(database)
        self._identity = mark.identity
        self._written = self._synced = mark.revision
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
        os.pwrite(self._fd, _line(Mark(self._identity, revision)), 0)
        self._written = revision

    def sync(self) -> None:
        """Make what was written survive a loss of power. A file that somebody has removed is made again."""
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


def _line(mark: Mark) -> bytes:
    """Of the same length for every mark: it fits into one sector and is overwritten in place."""
    text = b"%016x %020d" % (mark.identity & _IDENTITY_BITS, mark.revision)
    return b"%b %08x\n" % (text, crc32(text))


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
