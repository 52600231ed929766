"""Volumes of type hostPath: a path of the node, checked for its type."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from setpoint.meta.goformat import quote
from setpoint.node.host.mounts import O_PATH
from setpoint.node.host.volumes.file_tree import make_directories
from setpoint.node.host.volumes.interface import SetUpError

_DIRECTORY_MODE, _FILE_MODE = 0o755, 0o644
_EXPECTED = {
    "Directory": "directory",
    "File": "file",
    "Socket": "socket file",
    "CharDevice": "character device",
    "BlockDevice": "block device",
}
"""The types of files, as messages name them."""


@dataclass(frozen=True, slots=True)
class HostPath:
    """A hostPath volume of one Pod."""

    name: str
    path: Path
    type: str = ""
    """The type of file that must be there, such as `DirectoryOrCreate`; empty means no check."""
    read_only: bool = False

    def set_up(self) -> None:
        check_no_backsteps(self.path)
        if not self.type:
            return
        wanted = self.type.removesuffix("OrCreate")
        if wanted not in _EXPECTED or self.type not in (wanted, "DirectoryOrCreate", "FileOrCreate"):
            raise SetUpError(f"{self.type} is an invalid volume type")
        if wanted != self.type:
            self._create(wanted)
        try:
            found = file_type(self.path)
        except (OSError, ValueError) as error:
            about = f"{self.path} is not a {_EXPECTED[wanted]}, unable to determine its type"
            raise SetUpError(f"hostPath type check failed, {about}: {error}") from error
        if found != wanted:
            raise SetUpError(f"hostPath type check failed: {self.path} is not a {_EXPECTED[wanted]}, it's a {found}")

    def _create(self, wanted: str) -> None:
        if self.path.exists():
            return
        try:
            if wanted == "Directory":
                make_directories(self.path, _DIRECTORY_MODE)
            else:
                with suppress(FileExistsError):
                    descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
                    os.fchmod(descriptor, _FILE_MODE)
                    os.close(descriptor)
        except OSError as error:
            call = "mkdir" if wanted == "Directory" else "open"
            raise SetUpError(f"{call} {self.path}: {(error.strerror or '').lower()}") from error


def check_no_backsteps(path: Path) -> None:
    """Raise SetUpError if a path of the node contains `..`."""
    if ".." in path.parts:
        raise SetUpError(f"invalid HostPath `{path}`: must not contain '..'")


def file_type(path: Path) -> str:
    """Return the type of a file in the terms of hostPath volumes. Raise ValueError with the kubelet's message if there
    is no such file, or its type is not among them."""
    try:
        descriptor = os.open(path, O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ValueError(f"path {quote(str(path))} does not exist") from None
    try:
        mode = os.fstat(descriptor).st_mode
    finally:
        os.close(descriptor)
    for test, name in (
        (stat.S_ISDIR, "Directory"),
        (stat.S_ISREG, "File"),
        (stat.S_ISSOCK, "Socket"),
        (stat.S_ISCHR, "CharDevice"),
        (stat.S_ISBLK, "BlockDevice"),
    ):
        if test(mode):
            return name
    raise ValueError("only recognise file, directory, socket, block device and character device")
