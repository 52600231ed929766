"""The file system of a simulated container: its own files, and those of the mounted volumes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from posixpath import dirname, normpath
from typing import NamedTuple

_MAX_FILE_BYTES = 1 << 20
_MAX_FILES = 1000
_MAX_LINK_DEPTH = 8
"""The maximum number of symbolic links that are followed."""
_STANDARD_DIRECTORIES = (
    "/",
    "/tmp",
    "/etc",
    "/var",
    "/bin",
    "/dev",
    "/home",
    "/root",
    "/usr",
    "/opt",
    "/proc",
    "/sys",
    "/run",
)
_ALWAYS_WRITABLE = ("/dev/", "/etc/hosts")
"""Paths that are writable even if the root file system is read-only."""


class DiskLimits(NamedTuple):
    """How much a disk holds."""

    files: int = _MAX_FILES
    """The number of files and of directories, of each volume."""
    file_size: int = _MAX_FILE_BYTES
    total_size: int = _MAX_FILES * _MAX_FILE_BYTES
    """The sum of the sizes, of each volume."""


SET_GROUP, STICKY = 0o2000, 0o1000


class User(NamedTuple):
    """The user that a program runs as."""

    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    """Supplementary groups."""
    privileged: bool = False
    allow_privilege_escalation: bool = True
    """Whether a setuid program may run with the rights of its owner."""


class FileStatus(NamedTuple):
    """The metadata of a file or directory."""

    mode: int
    uid: int
    gid: int
    directory: bool
    file_system: str


@dataclass(slots=True)
class Volume:
    """The files of a volume by name. A file that is mounted by itself has an empty name."""

    files: dict[str, str] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    """Directories that were created explicitly; others exist because they contain files."""
    modes: dict[str, int] = field(default_factory=dict)
    """The modes of files that differ from 0644."""
    owners: dict[str, tuple[int, int]] = field(default_factory=dict)
    """User and group of files that differ from those of the volume."""
    mode: int = 0o755
    """The mode of the directories."""
    group: int = 0
    file_system: str = "ext4"
    read_only: bool = False

    def apply_fs_group(self, group: int) -> None:
        """Change group and modes as the kubelet does for a Pod with an fsGroup."""
        self.group = group
        self.mode |= SET_GROUP | (0o550 if self.read_only else 0o770)
        for name in self.files:
            self.modes[name] = self.modes.get(name, 0o644) | (0o440 if self.read_only else 0o660)
            self.owners[name] = (self.owners.get(name, (0, 0))[0], group)


class Mount(NamedTuple):
    """A volume, or a sub-path of it, at a path of a container. `volume` returns the current content."""

    path: str
    volume: Callable[[], Volume]
    sub_path: str = ""
    read_only: bool = False


class Files:
    """The files that a container sees. A directory exists if it was created, contains something, or is a standard
    one."""

    def __init__(
        self,
        mounts: Callable[[], list[Mount]] = list,
        initial: dict[str, str] | None = None,
        user: User = User(),  # noqa: B008 (it never changes)
        read_only: bool = False,
        limits: DiskLimits = DiskLimits(),  # noqa: B008 (it never changes)
    ) -> None:
        self._list_mounts = mounts
        self._limits = limits
        self._mounts: list[Mount] | None = None
        self._container_layer = Volume(
            dict(initial or {}), {dirname(each) for each in initial or ()}, file_system="overlay"
        )
        self._container_layer.read_only = read_only
        self._links: dict[str, str] = {}
        """The targets of symbolic links by path. Links belong to the container, even those within volumes."""
        self.user = user

    def read(self, path: str) -> str | None:
        volume, name, _ = self._locate(path)
        return volume.files.get(name)

    def write_error(self, path: str) -> str:
        """Return why the path cannot be written; empty if it can."""
        path = _normalize(path)
        volume, _, read_only = self._locate(path)
        always_writable = volume is self._container_layer and path.startswith(_ALWAYS_WRITABLE)
        return "Read-only file system" if read_only and not always_writable else ""

    def write(self, path: str, text: str, append: bool = False, mode: int = 0o644) -> bool:
        """Write a file. Return False if the path is read-only or a size limit is exceeded."""
        if path in ("/dev/null", "/dev/stdout", "/dev/stderr"):
            return True
        if self.write_error(path):
            return False
        volume, name, _ = self._locate(path)
        if append:
            text = volume.files.get(name, "") + text
        if not self._fits(volume, name, text):
            return False
        if name not in volume.files:
            if mode != 0o644:
                volume.modes[name] = mode
            if self.user[:2] != (0, 0) or volume.group:
                volume.owners[name] = (self.user.uid, volume.group if volume.mode & SET_GROUP else self.user.gid)
        volume.files[name] = text
        return True

    def _fits(self, volume: Volume, name: str, text: str) -> bool:
        limits = self._limits
        if len(text) > limits.file_size or (name not in volume.files and len(volume.files) >= limits.files):
            return False
        if limits.total_size >= limits.files * limits.file_size:  # implied by the others
            return True
        others = sum(len(each) for key, each in volume.files.items() if key != name)
        return others + len(text) <= limits.total_size

    def link(self, path: str, target: str) -> None:
        if len(self._links) < self._limits.files:
            self._links[_normalize(path)] = target

    def link_at(self, path: str) -> str:
        """Return the target of a symbolic link; empty if there is none."""
        return self._links.get(_normalize(path), "")

    def remove(self, path: str, recursive: bool = False) -> bool:
        if self._links.pop(_normalize(path), ""):
            return True
        volume, name, _ = self._locate(path)
        if self.write_error(path):
            return False
        removed = [name] if name in volume.files else []
        if recursive:
            removed += [each for each in volume.files if each.startswith(name.rstrip("/") + "/")]
            removed_directories = {
                each for each in volume.directories if each == name or each.startswith(name.rstrip("/") + "/")
            }
            volume.directories -= removed_directories
        for each in removed:
            del volume.files[each]
            volume.modes.pop(each, None)
            volume.owners.pop(each, None)
        return bool(removed) or (recursive and bool(removed_directories))

    def make_directory(self, path: str) -> None:
        if not self.write_error(path):
            volume, name, _ = self._locate(path)
            if len(volume.directories) < self._limits.files:
                volume.directories.add(name)

    def change_mode(self, path: str, mode: int) -> None:
        volume, name, _ = self._locate(path)
        if name in volume.files and not self.write_error(path):
            volume.modes[name] = mode

    def change_owner(self, path: str, user: int | None, group: int | None, recursive: bool = False) -> None:
        """Change the owner of files; None leaves the user or the group unchanged. Directories have no owner of their
        own."""
        volume, name, _ = self._locate(path)
        inside = name.rstrip("/") + "/"
        for each in volume.files:
            if each == name or (recursive and each.startswith(inside)):
                before = volume.owners.get(each, (0, volume.group))
                volume.owners[each] = (before[0] if user is None else user, before[1] if group is None else group)

    def is_file(self, path: str) -> bool:
        return self.read(path) is not None

    def is_directory(self, path: str) -> bool:
        path = self.resolved(path)
        return path in _STANDARD_DIRECTORIES or any(
            each.startswith(path.rstrip("/") + "/") for each in self._all_paths()
        )

    def entries(self, path: str) -> list[str]:
        """Return the names in a directory."""
        inside = self.resolved(path).rstrip("/") + "/"
        everything = (*self._all_paths(), *self._links)
        names = {each[len(inside) :].partition("/")[0] for each in everything if each.startswith(inside)}
        return sorted(name for name in names if name)

    def status(self, path: str) -> FileStatus | None:
        volume, name, _ = self._locate(path)
        if name in volume.files:
            owner = volume.owners.get(name, (0, volume.group))
            return FileStatus(volume.modes.get(name, 0o644), *owner, False, volume.file_system)
        if not self.is_directory(path):
            return None
        mode = 0o777 | STICKY if _normalize(path) == "/tmp" else volume.mode
        return FileStatus(mode, 0, volume.group, True, volume.file_system)

    def texts(self) -> dict[str, str]:
        """Return the contents of all files by path, except those of volumes."""
        return dict(self._container_layer.files)

    def mount_points(self) -> list[tuple[str, str]]:
        """Return type and path of each mounted file system."""
        mounted = sorted((mount.volume().file_system, mount.path) for mount in self._sorted_mounts())
        return [(self._container_layer.file_system, "/"), *mounted]

    def _all_paths(self) -> list[str]:
        found = [*self._container_layer.files, *(f"{each}/" for each in sorted(self._container_layer.directories))]
        for mount in self._sorted_mounts():
            found.append(f"{mount.path}/")
            volume, inside = mount.volume(), f"{mount.sub_path}/" if mount.sub_path else ""
            for name in (*volume.files, *(f"{each}/" for each in sorted(volume.directories))):
                if name == mount.sub_path:
                    found[-1] = mount.path
                elif name.startswith(inside):
                    found.append(f"{mount.path}/{name[len(inside) :]}")
        return found

    def resolved(self, path: str) -> str:
        """Return the path with symbolic links resolved."""
        path = _normalize(path)
        for _ in range(_MAX_LINK_DEPTH if self._links else 0):
            for link, target in self._links.items():
                if path == link or path.startswith(f"{link}/"):
                    absolute = target if target.startswith("/") else f"{dirname(link)}/{target}"
                    path = _normalize(absolute + path[len(link) :])
                    break
            else:
                return path
        return path

    def _sorted_mounts(self) -> list[Mount]:
        if self._mounts is None:
            self._mounts = sorted(
                (mount._replace(path=_normalize(mount.path)) for mount in self._list_mounts()),
                key=lambda each: -len(each.path),
            )
        return self._mounts

    def _locate(self, path: str) -> tuple[Volume, str, bool]:
        """Return the volume of a path, the name there, and whether it is read-only."""
        path = self.resolved(path)
        for mount in self._sorted_mounts():
            if path == mount.path or path.startswith(mount.path + "/"):
                volume = mount.volume()
                # The kubelet writes projected volumes behind a link.
                name = path[len(mount.path) + 1 :].removeprefix("..data/")
                name = "/".join(part for part in (mount.sub_path, name) if part)
                return volume, name, volume.read_only or mount.read_only
        return self._container_layer, path, self._container_layer.read_only


def _normalize(path: str) -> str:
    return normpath(path if path.startswith("/") else f"/{path}").replace("//", "/")
