"""Log files: a plain one, and one that is rotated by size, with backups limited by age and number."""

from __future__ import annotations

import gzip
import os
import re
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from setpoint.meta.clock import Clock

_STAMP = "%Y-%m-%dT%H-%M-%S"
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}", re.ASCII)
_GZIP = ".gz"


class LogFile:
    """Writes lines to a file descriptor, without buffering."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> None:
        _write_all(self._descriptor, data)

    def close(self) -> None:
        """Do nothing: the descriptor belongs to the caller."""


def _write_all(descriptor: int, data: bytes) -> int:
    """Write all bytes and return their number. Raises OSError."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])
    return written


class RotatingFile:
    """A file that is renamed when it is full. `on_rotated` is called when `tidy` has something to do, which may take
    long."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        max_bytes: int,
        max_age: timedelta | None,
        max_backups: int,
        compress: bool,
        on_rotated: Callable[[], None] = lambda: None,
    ) -> None:
        """`max_bytes` 0 means that the file is never rotated. The file is created if it does not exist. Raises
        OSError."""
        self._path = path
        self._clock = clock
        self._max_bytes = max_bytes
        self._max_age, self._max_backups, self._compress = max_age, max_backups, compress
        self.on_rotated = on_rotated
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def write(self, data: bytes) -> None:
        """Write the data, rotating the file first if it would exceed its maximum size. Raises OSError."""
        maximum = self._max_bytes
        if maximum:
            if len(data) > maximum:
                raise OSError(f"write length {len(data)} exceeds maximum file size {maximum}")
            if self._size + len(data) > maximum:
                self._rotate()
        self._size += _write_all(self._descriptor, data)

    def _rotate(self) -> None:
        before = os.fstat(self._descriptor)
        if self._path.exists():  # otherwise it was moved already, or an earlier attempt failed after the rename
            os.rename(self._path, self._backup_path(self._clock.now()))
        flags = os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC
        fresh = os.open(self._path, flags, before.st_mode & 0o777)
        os.close(self._descriptor)
        self._descriptor, self._size = fresh, 0
        self.on_rotated()

    def _backup_path(self, now: datetime) -> Path:
        stamp = f"{now.strftime(_STAMP)}.{now.microsecond // 1000:03d}"
        return self._path.with_name(f"{self._path.stem}-{stamp}{self._path.suffix}")

    def close(self) -> None:
        os.close(self._descriptor)

    def tidy(self) -> None:
        """Remove backups that are too old or too many, and compress the others if configured. May be called from a
        thread."""
        if not (self._max_backups or self._max_age or self._compress):
            return
        remaining: list[Path] = []
        names: set[str] = set()
        oldest = self._clock.now() - self._max_age if self._max_age is not None else None
        for when, path in self._backups():
            # A file and its compressed copy count as one.
            names.add(path.name.removesuffix(_GZIP))
            too_many = bool(self._max_backups) and len(names) > self._max_backups
            if too_many or (oldest is not None and when < oldest):
                path.unlink(missing_ok=True)
            else:
                remaining.append(path)
        if self._compress:
            for path in remaining:
                if path.suffix != _GZIP:
                    _compress(path)

    def _backups(self) -> list[tuple[datetime, Path]]:
        """Return the backups with their times, newest first."""
        prefix, suffix = f"{self._path.stem}-", self._path.suffix
        found: list[tuple[datetime, Path]] = []
        for path in self._path.parent.iterdir():
            name = path.name.removesuffix(_GZIP)
            if not (name.startswith(prefix) and name.endswith(suffix)) or name == self._path.name:
                continue
            stamp = name[len(prefix) : len(name) - len(suffix)]
            if _TIMESTAMP.fullmatch(stamp):
                try:
                    when = datetime.strptime(stamp + "+0000", f"{_STAMP}.%f%z")
                except ValueError:
                    continue
                found.append((when, path))
        return sorted(found, reverse=True)


def _compress(path: Path) -> None:
    """Compress a file and remove it when the compressed one is complete; an incomplete one is written again."""
    target = path.with_name(path.name + _GZIP)
    mode = path.stat().st_mode & 0o777
    try:
        descriptor = os.open(target, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as out, gzip.GzipFile(fileobj=out, mode="wb") as packed, path.open("rb") as plain:
            shutil.copyfileobj(plain, packed)
    except OSError:
        target.unlink(missing_ok=True)
        raise
    path.unlink()
