"""The files of a workspace, as commands read and write them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from io import BytesIO
from posixpath import dirname, normpath
from typing import BinaryIO

from setpoint.cli.files import FileStatus
from setpoint.node.runtime.files import Files
from setpoint.node.runtime.shell.expansion import match_paths


class DiskFiles:
    """A disk in memory (`CommandFiles`). Relative paths are in the current directory of the shell."""

    def __init__(self, files: Files, directory: Callable[[], str], suffix: Callable[[], str]) -> None:
        """`suffix` returns random characters for unique names."""
        self._files = files
        self._directory = directory
        self._suffix = suffix

    def read(self, path: str) -> bytes:
        absolute = self._absolute(path)
        text = self._files.read(absolute)
        if text is None:
            raise _error(errno.EISDIR if self._files.is_directory(absolute) else errno.ENOENT, path)
        return text.encode("utf-8", "surrogateescape")

    def open(self, path: str) -> BinaryIO:
        return BytesIO(self.read(path))

    def scratch(self) -> BinaryIO:
        return _Scratch()

    def write(self, path: str, data: bytes, *, append: bool = False, private: bool = False) -> None:
        absolute = self._absolute(path)
        if self._files.is_directory(absolute):
            raise _error(errno.EISDIR, path)
        if not self._files.is_directory(dirname(absolute)):
            raise _error(errno.ENOENT, path)
        mode = 0o600 if private else 0o644
        if not self._files.write(absolute, data.decode("utf-8", "surrogateescape"), append, mode):
            raise _error(errno.ENOSPC, path)

    def remove(self, path: str) -> None:
        self._files.remove(self._absolute(path))

    def make_directory(self, path: str, *, private: bool = False) -> None:
        absolute = self._absolute(path)
        if self._files.is_file(absolute):
            raise _error(errno.EEXIST, path)
        self._files.make_directory(absolute)
        if not self._files.is_directory(absolute):
            raise _error(errno.ENOSPC, path)

    def entries(self, path: str) -> list[str]:
        absolute = self._absolute(path)
        if not self._files.is_directory(absolute):
            raise _error(errno.ENOTDIR if self._files.is_file(absolute) else errno.ENOENT, path)
        return self._files.entries(absolute)

    def status(self, path: str, *, follow: bool = True) -> FileStatus | None:
        if not path:
            return None
        absolute = self._absolute(path)
        target = "" if follow else self._files.link_at(absolute)
        if target:
            return FileStatus(stat.S_IFLNK | 0o777, len(target), target=target)
        found = self._files.status(absolute)
        if found is None:
            return None
        if found.directory:
            return FileStatus(stat.S_IFDIR | found.mode, uid=found.uid, gid=found.gid)
        return FileStatus(stat.S_IFREG | found.mode, len(self.read(path)), found.uid, found.gid)

    def match(self, pattern: str) -> list[str]:
        return match_paths(self._files, self._directory(), pattern)

    def resolved(self, path: str) -> str:
        return self._files.resolved(self._absolute(path))

    def temporary(self, prefix: str, suffix: str, data: bytes) -> str:
        path = f"/tmp/{prefix}{self._suffix()}{suffix}"
        self.write(path, data, private=True)
        return path

    def _absolute(self, path: str) -> str:
        return normpath(path if path.startswith("/") else f"{self._directory()}/{path}")


class _Scratch(BytesIO):
    """A file without a name, of bounded size."""

    _MAX = 4 << 20

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self.tell() + len(data) > self._MAX:
            raise _error(errno.ENOSPC, "temporary file")
        return super().write(data)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
