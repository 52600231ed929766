"""Checks that nothing else removes, replaces or changes the database's files while the store is open.

SQLite holds its files open and does not notice when their names disappear: it goes on writing into files that no start
will find. A check compares the names with the open files, and the write-ahead log with its content at the previous
check. It reads the log's current generation (about 4 MiB at most under the store's own checkpoints, and never more than
64 MiB) and is meant to run every few seconds, between transactions.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from setpoint.store.interface import StoreError

_DATABASE_MAGIC = b"SQLite format 3\0"
_LOG_MAGICS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_LOG_HEADER, _FRAME_HEADER = 32, 24
_SALTS = slice(16, 24)
"""Position of the salts in the log's header; each frame repeats them at 8 to 16. They change whenever the log is
reset."""
_FRAMES_PER_READ = 128
_MAX_BYTES = 64 << 20


class FilesChanged(StoreError):
    """A file of the database was removed, replaced or changed while it was in use."""


class _LogState(NamedTuple):
    """Summary of the write-ahead log's content. The log is append-only as long as its salts stay the same."""

    salts: bytes
    length: int
    """Size of the header and the frames of this generation, in bytes."""
    checksum: int
    """CRC-32 over the first `length` bytes of the log."""


class FileMonitor:
    """Monitors the database's file and its write-ahead log.

    Close it only after SQLite has closed its own descriptors: closing any descriptor of a file drops the locks that the
    process holds on it."""

    def __init__(self, database: Path) -> None:
        """Start from the current files; the database must be open and its log written to. Raises as `check` does."""
        self._database = database
        self._log_path = Path(f"{database}-wal")
        self._fd = os.open(database, os.O_RDONLY | os.O_CLOEXEC)
        self._log: _LogState | None = None
        try:
            self._log_inode = _inode(os.stat(self._log_path))
            self.check()
        except BaseException:
            self.close()
            raise

    def log_truncated(self) -> None:
        """Record that the store itself has emptied the log by a checkpoint."""
        self._log = None

    def check(self) -> None:
        """Raise FilesChanged if a file changed, or OSError if the files cannot be examined."""
        self._check_database()
        try:
            fd = os.open(self._log_path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise FilesChanged(f"the write-ahead log {self._log_path} was deleted") from None
        try:
            if _inode(os.fstat(fd)) != self._log_inode:
                raise FilesChanged(f"the write-ahead log {self._log_path} was replaced by another file")
            self._log = self._check_log(fd)
        finally:
            os.close(fd)

    def _check_database(self) -> None:
        try:
            named = os.stat(self._database)
        except (FileNotFoundError, NotADirectoryError):
            raise FilesChanged(f"{self._database} was deleted") from None
        if _inode(named) != _inode(os.fstat(self._fd)):
            raise FilesChanged(f"{self._database} was replaced by another file")
        # The length is not checked: a checkpoint, even one that completes an earlier one after a crash, may truncate
        # it.
        if os.pread(self._fd, len(_DATABASE_MAGIC), 0) != _DATABASE_MAGIC:
            raise FilesChanged(f"{self._database} was emptied or overwritten")

    def _check_log(self, fd: int) -> _LogState | None:
        before = self._log
        header = os.pread(fd, _LOG_HEADER, 0)
        if not header and before is None:
            return None  # truncated by the store's own checkpoint
        if header[:4] not in _LOG_MAGICS or len(header) < _LOG_HEADER:
            raise FilesChanged(f"the write-ahead log {self._log_path} was truncated or overwritten")
        salts = header[_SALTS]
        same = before is not None and before.salts == salts
        expected = before.length if same and before is not None else 0
        frame = _FRAME_HEADER + int.from_bytes(header[8:12], "big")
        length, checksum, then = _LOG_HEADER, crc32(header), None
        if length == expected:
            then = checksum
        while length < _MAX_BYTES:
            chunk = os.pread(fd, frame * _FRAMES_PER_READ, length)
            valid = _valid(chunk, frame, salts)
            if length < expected <= length + valid:
                then = crc32(memoryview(chunk)[: expected - length], checksum)
            checksum = crc32(memoryview(chunk)[:valid], checksum)
            length += valid
            if valid < frame * _FRAMES_PER_READ:
                break
        if same and before is not None and then != before.checksum:
            raise FilesChanged(f"the write-ahead log {self._log_path} was truncated or overwritten")
        return _LogState(salts, length, checksum)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _valid(chunk: bytes, frame: int, salts: bytes) -> int:
    """Return the number of bytes, from the start of the chunk, that are whole frames with these salts."""
    at = 0
    while at + frame <= len(chunk) and chunk[at + 8 : at + 16] == salts:
        at += frame
    return at


def _inode(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
