"""Writes the files of projected volumes, so that containers see either all old files or all new ones.

The layout is the kubelet's: the files are in a directory that is named after the time, the link `..data` points to that
directory, and the names that containers use are links into `..data`. An update renames one link.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from setpoint.meta.clock import Clock
from setpoint.meta.goformat import quote
from setpoint.meta.objects import ObjView
from setpoint.node.host.mounts import mount_tmpfs
from setpoint.node.host.volumes.empty_dir import create_directory, is_tmpfs
from setpoint.node.host.volumes.file_tree import remove_tree
from setpoint.node.host.volumes.interface import SetUpError
from setpoint.node.host.volumes.ownership import apply_fs_group

PLUGINS = {
    "configMap": "kubernetes.io~configmap",
    "secret": "kubernetes.io~secret",
    "downwardAPI": "kubernetes.io~downward-api",
    "projected": "kubernetes.io~projected",
}
_DATA, _NEW_DATA = "..data", "..data_tmp"
_MAX_NAME, _MAX_PATH = 255, 4096
_MAX_ATTEMPTS = 1000


class ProjectedFile(NamedTuple):
    """A file to be written."""

    content: bytes
    mode: int
    user: int | None = None
    """The owner; None is root."""


Payload = Mapping[str, ProjectedFile]
"""The files of a volume, by their path in it."""


@dataclass(frozen=True, slots=True)
class ProjectedVolume:
    """A projected volume of one Pod, with its current content."""

    name: str
    path: Path
    clock: Clock
    in_memory: bool
    payload: Payload | None
    """The files; None if a source is missing, and `problem` describes it."""
    problem: str = ""
    size: int | None = None
    """The maximum size of a tmpfs in bytes; None is half of the node's memory."""
    fs_group: int | None = None
    nested: Sequence[str] = ()
    """Directories that other volumes are mounted at, relative to this volume."""

    @property
    def read_only(self) -> bool:
        return True

    @property
    def has_content(self) -> bool:
        """Whether content was written before. It stays while a source is missing."""
        return os.path.lexists(self.path / _DATA) and (not self.in_memory or is_tmpfs(self.path))

    def set_up(self) -> None:
        if self.payload is None:
            raise SetUpError(self.problem)
        files = checked(self.payload)
        if not self.path.is_dir() or (self.in_memory and not is_tmpfs(self.path)):
            create_directory(self.path)
            if self.in_memory:
                mount_tmpfs(self.path, self.size)
        for each in self.nested:
            (self.path / each).mkdir(0o755, parents=True, exist_ok=True)
        AtomicWriter(self.path, self.clock, self.fs_group).write(files)


def checked(payload: Payload) -> dict[str, ProjectedFile]:
    """Return the files by normalized path. Raise SetUpError if a path does not denote a file inside of the volume."""
    return {_checked_path(path): file for path, file in payload.items()}


def _checked_path(path: str) -> str:
    if not path:
        raise SetUpError(f"invalid path: must not be empty: {quote(path)}")
    if path.startswith("/"):
        raise SetUpError(f"invalid path: must be relative path: {path}")
    if len(path.encode()) > _MAX_PATH:
        raise SetUpError(f"invalid path: must be less than or equal to {_MAX_PATH} characters")
    parts = path.split("/")
    for part in parts:
        if part == "..":
            raise SetUpError(f"invalid path: must not contain '..': {path}")
        if len(part.encode()) > _MAX_NAME:
            raise SetUpError(f"invalid path: filenames must be less than or equal to {_MAX_NAME} characters")
    if parts[0].startswith(".."):
        raise SetUpError(f"invalid path: must not start with '..': {path}")
    return posixpath.normpath(path)


class AtomicWriter:
    """Writes the files of one volume."""

    def __init__(self, directory: Path, clock: Clock, fs_group: int | None = None) -> None:
        self._directory = directory
        self._clock = clock
        self._fs_group = fs_group

    def write(self, files: Payload) -> bool:
        """Make the volume contain exactly these files. Return whether its content was changed."""
        data = self._directory / _DATA
        old = os.readlink(data) if os.path.lexists(data) else ""
        self._remove_remains(old)
        removed = _top_names(_paths_below(self._directory / old) if old else ()) - _top_names(files)
        changed = not old or self._differs(self._directory / old, files)
        if changed:
            new = self._new_directory()
            self._write_files(new, files)
            if self._fs_group is not None:
                apply_fs_group(self._directory, self._fs_group, read_only=True)
            link = self._directory / _NEW_DATA
            link.symlink_to(new.name)
            link.rename(data)
        for name in _top_names(files):
            self._create_link(name, files)
        for name in removed:
            if (self._directory / name).is_symlink():
                (self._directory / name).unlink()
        if changed and old:
            remove_tree(self._directory / old)
        return changed

    def _remove_remains(self, current: str) -> None:
        """Remove what an interrupted write left."""
        (self._directory / _NEW_DATA).unlink(missing_ok=True)
        with os.scandir(self._directory) as entries:
            remains = [
                each.name
                for each in entries
                if each.name.startswith("..")
                and each.name not in (_DATA, current)
                and each.is_dir(follow_symlinks=False)
            ]
        for name in remains:
            remove_tree(self._directory / name)

    def _differs(self, current: Path, files: Payload) -> bool:
        if _paths_below(current) != set(files):
            return True
        return any((current / path).read_bytes() != file.content for path, file in files.items())

    def _new_directory(self) -> Path:
        now = self._clock.now()
        prefix = now.strftime("..%Y_%m_%d_%H_%M_%S.")
        for number in range(_MAX_ATTEMPTS):
            new = self._directory / f"{prefix}{now.microsecond * 1000 + number:09d}"
            with suppress(FileExistsError):
                new.mkdir()
                new.chmod(0o755)
                return new
        raise SetUpError(f"{self._directory} contains too many directories of the current time")

    def _write_files(self, new: Path, files: Payload) -> None:
        for path, file in files.items():
            target = new / path
            _make_parents(new, target.parent)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as written:
                written.write(file.content)
                os.fchmod(descriptor, file.mode)
                if file.user is not None:
                    os.fchown(descriptor, file.user, -1)

    def _create_link(self, name: str, files: Payload) -> None:
        visible = self._directory / name
        if os.path.lexists(visible):
            return
        visible.symlink_to(f"{_DATA}/{name}")
        user = files[name].user if name in files else None
        if user is not None:
            os.chown(visible, user, -1, follow_symlinks=False)


def _make_parents(top: Path, parent: Path) -> None:
    """Create the directories between a volume's directory and a file, for all users whatever the umask is."""
    missing = []
    while parent != top and not parent.is_dir():
        missing.append(parent)
        parent = parent.parent
    for each in reversed(missing):
        each.mkdir()
        each.chmod(0o755)


def _paths_below(top: Path) -> set[str]:
    """Return the paths of all files below a directory, relative to it."""
    return {
        os.path.relpath(os.path.join(directory, name), top) for directory, _, names in os.walk(top) for name in names
    }


def _top_names(paths: set[str] | Payload | tuple[()]) -> set[str]:
    return {path.partition("/")[0] for path in paths}


def nested_mount_points(spec: ObjView, volume: str) -> list[str]:
    """Return the paths inside of a volume at which containers mount other volumes. They must exist in read-only
    volumes before. Paths below another of them are left out."""
    found: list[str] = []
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(field) or ():
            mounts = container.get("volumeMounts") or ()
            paths = sorted(posixpath.normpath(each["mountPath"]) for each in mounts)
            for own in (posixpath.normpath(each["mountPath"]) for each in mounts if each["name"] == volume):
                outer: list[str] = []
                for path in paths:
                    if path.startswith(own.rstrip("/") + "/") and not any(path.startswith(each) for each in outer):
                        outer.append(path + "/")
                        found.append(path[len(own.rstrip("/")) + 1 :])
    return found
