"""The files that commands read and write: those of this machine, or of another place that the caller provides.

The terminal of the page runs the same commands on a disk in memory. Every command that it offers therefore uses
`CommandIO.files`, and neither `open` nor `Path`.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import BinaryIO, NamedTuple, Protocol


class FileStatus(NamedTuple):
    """The metadata of a file, a directory or a symbolic link."""

    mode: int
    """Type and permissions, as in `os.stat_result.st_mode`."""
    size: int = 0
    uid: int = 0
    gid: int = 0
    modified: int = 0
    """Seconds since the epoch."""
    target: str = ""
    """The target of a symbolic link; empty for others."""

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)


class CommandFiles(Protocol):
    """Files by path. A relative path is relative to the current directory. All methods that can fail raise OSError."""

    def read(self, path: str) -> bytes: ...

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading in pieces. The caller closes it."""
        ...

    def scratch(self) -> BinaryIO:
        """Return a file without a name, for reading and writing, which is gone when it is closed."""
        ...

    def write(self, path: str, data: bytes, *, append: bool = False, private: bool = False) -> None:
        """Create or replace a file, or append to it. A `private` file that is created is accessible to its owner
        only."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; one that does not exist is ignored."""
        ...

    def make_directory(self, path: str, *, private: bool = False) -> None:
        """Create a directory with its parents, as far as they do not exist."""
        ...

    def entries(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def status(self, path: str, *, follow: bool = True) -> FileStatus | None:
        """Return the metadata of a path; None if nothing is there. Without `follow`, a symbolic link is not
        resolved."""
        ...

    def match(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern with wildcards, sorted."""
        ...

    def resolved(self, path: str) -> str:
        """Return the absolute path without symbolic links and `..`."""
        ...

    def temporary(self, prefix: str, suffix: str, data: bytes) -> str:
        """Create a private file of a new name for temporary use, and return its path. The caller removes it."""
        ...


class HostFiles:
    """The files of this machine."""

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def open(self, path: str) -> BinaryIO:
        return open(path, "rb")

    def scratch(self) -> BinaryIO:
        import tempfile  # slow to load, rarely needed

        return tempfile.TemporaryFile()

    def write(self, path: str, data: bytes, *, append: bool = False, private: bool = False) -> None:
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
        with open(os.open(path, flags, 0o600 if private else 0o666), "wb") as file:
            file.write(data)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    def make_directory(self, path: str, *, private: bool = False) -> None:
        os.makedirs(path, 0o700 if private else 0o755, exist_ok=True)

    def entries(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def status(self, path: str, *, follow: bool = True) -> FileStatus | None:
        try:
            found = os.stat(path, follow_symlinks=follow)
            target = os.readlink(path) if stat.S_ISLNK(found.st_mode) else ""
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStatus(found.st_mode, found.st_size, found.st_uid, found.st_gid, int(found.st_mtime), target)

    def match(self, pattern: str) -> list[str]:
        import glob  # rarely needed

        return sorted(glob.glob(pattern))

    def resolved(self, path: str) -> str:
        return os.path.realpath(path)

    def temporary(self, prefix: str, suffix: str, data: bytes) -> str:
        import tempfile  # slow to load, rarely needed

        with tempfile.NamedTemporaryFile(prefix=prefix, suffix=suffix, delete=False) as file:
            file.write(data)
        return file.name


def is_directory(files: CommandFiles, path: str) -> bool:
    found = files.status(path)
    return found is not None and found.is_directory


def is_file(files: CommandFiles, path: str) -> bool:
    found = files.status(path)
    return found is not None and found.is_file


def reason(error: OSError) -> str:
    """Return why a file could not be read, as kubectl words it."""
    return (error.strerror or str(error)).lower()
