"""Backup files: written under a temporary name, verified, and renamed; verified again before they are restored.

A backup file of an earlier version is a SQLite database; it can be read too. No function here needs an event loop.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from setpoint.store.backup_format import BackupHeader, Decoder, InvalidBackup
from setpoint.store.durable_revision import sync_directory
from setpoint.store.history import History
from setpoint.store.interface import KeyValue, StoreError
from setpoint.store.sqlite_reading import read_closed_database

PARTIAL_SUFFIX = ".partial"
_CHUNK = 1 << 20
_PAGE_SIZE = 500
_SQLITE = b"SQLite format 3\0"


class BackupFile:
    """A backup that is being written: `write` all of its bytes, then `finish`, which creates the file under its name.

    The file is readable by its owner only, because it holds Secrets."""

    def __init__(self, path: Path) -> None:
        """Create the temporary file. Raises StoreError if `path` exists or the file cannot be created."""
        if path.exists():
            raise StoreError(f"{path} exists already; a backup overwrites nothing")
        self._path = path
        self._partial = Path(f"{path}{PARTIAL_SUFFIX}")
        self._decoder = Decoder()
        try:
            with suppress(FileNotFoundError):
                self._partial.unlink()  # of an interrupted backup
            self._fd = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._failed(error) from error

    def write(self, data: bytes) -> None:
        """Verify and append bytes. Raises InvalidBackup if they are not those of a backup, and StoreError."""
        self._decoder.feed(data)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            raise self._failed(error) from error

    def finish(self) -> BackupHeader:
        """Make the file durable, read it again to verify it, and rename it. Raises InvalidBackup, StoreError."""
        header = self._decoder.finish()
        try:
            os.fsync(self._fd)
            self._close()
            if _verify(self._partial) != header:
                raise InvalidBackup("is damaged: it is not as written")
            os.rename(self._partial, self._path)
            sync_directory(self._path.parent)
        except OSError as error:
            raise self._failed(error) from error
        return header

    def abandon(self) -> None:
        """Remove the temporary file; do nothing if the backup is finished."""
        self._close()
        with suppress(OSError):
            self._partial.unlink()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _failed(self, error: OSError) -> StoreError:
        return StoreError(f"the backup {self._path} cannot be written: {error.strerror}")


class SavedState:
    """A backup that was read once and found complete and undamaged."""

    def __init__(self, path: Path) -> None:
        """Verify the file. Raises StoreError with a sentence that says what is wrong with it."""
        self._path = path
        self._database: History | None = None
        with self._explained():
            with path.open("rb") as file:
                is_database = file.read(len(_SQLITE)) == _SQLITE
            if is_database:
                self._database = history = read_closed_database(path)
                self.header = BackupHeader(history.revision, len(history.state), "", "")
            else:
                self.header = _verify(path)

    def pages(self) -> Iterator[Sequence[KeyValue]]:
        """Yield the entries in byte order of their keys. Raises StoreError."""
        if self._database is not None:
            state = self._database.state
            keys = sorted(state)
            for at in range(0, len(keys), _PAGE_SIZE):
                yield [state[key] for key in keys[at : at + _PAGE_SIZE]]
            return
        with self._explained():
            yield from _decoded(self._path, Decoder())

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except InvalidBackup as error:
            raise StoreError(f"the backup {self._path} {error}") from None
        except StoreError as error:
            raise StoreError(f"the backup {self._path} cannot be read: {error}") from None
        except OSError as error:
            raise StoreError(f"the backup {self._path} cannot be read: {error.strerror}") from error


def _verify(path: Path) -> BackupHeader:
    """Read a whole file. Raises InvalidBackup, OSError."""
    decoder = Decoder()
    for _ in _decoded(path, decoder):
        pass
    return decoder.finish()


def _decoded(path: Path, decoder: Decoder) -> Iterator[Sequence[KeyValue]]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            if records := decoder.feed(chunk):
                yield records
    decoder.finish()
