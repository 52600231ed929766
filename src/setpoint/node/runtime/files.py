"""The files that a simulated container sees: its own, and those of the volumes mounted into it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from posixpath import dirname, normpath
from typing import NamedTuple

_MOST_BYTES = 1 << 20
_MOST_NAMES = 1000
_MOST_LINKS = 8
"""How many symbolic links are followed, one after the other."""
_ALWAYS = ("/", "/tmp", "/etc", "/var", "/bin", "/dev", "/home", "/root", "/usr", "/opt", "/proc", "/sys", "/run")
_ALWAYS_WRITABLE = ("/dev/", "/etc/hosts")
"""Even where the root file system is read-only."""

SET_GROUP, STICKY = 0o2000, 0o1000


class User(NamedTuple):
    """Whom a program runs as."""

    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    """Further ones."""
    privileged: bool = False
    may_rise: bool = True
    """To the rights of a program's owner, where the program says so."""


class Status(NamedTuple):
    """What is to be known of a file or directory besides its content."""

    mode: int
    uid: int
    gid: int
    directory: bool
    file_system: str


@dataclass(slots=True)
class Volume:
    """Files that belong together. Names map to texts; the name of a file that is mounted by itself is empty."""

    files: dict[str, str] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    """Those that were made: others are there because something is in them."""
    modes: dict[str, int] = field(default_factory=dict)
    """Of files that have not the usual one."""
    owners: dict[str, tuple[int, int]] = field(default_factory=dict)
    """User and group of files that are not the volume's own."""
    mode: int = 0o755
    """Of the directories."""
    group: int = 0
    file_system: str = "ext4"
    read_only: bool = False

    def give_to_group(self, group: int) -> None:
        """As the kubelet does for a Pod with an fsGroup."""
        self.group = group
        self.mode |= SET_GROUP | (0o550 if self.read_only else 0o770)
        for name in self.files:
            self.modes[name] = self.modes.get(name, 0o644) | (0o440 if self.read_only else 0o660)
            self.owners[name] = (self.owners.get(name, (0, 0))[0], group)


class Mount(NamedTuple):
    """Where a container sees a volume, or what is below some path in it. What is asked for may change over time."""

    path: str
    volume: Callable[[], Volume]
    below: str = ""
    read_only: bool = False


class Files:
    """A directory is there when something is in it, when it was made, or by nature."""

    def __init__(
        self,
        mounts: Callable[[], list[Mount]] = list,
        given: dict[str, str] | None = None,
        user: User = User(),  # noqa: B008 (it never changes)
        read_only: bool = False,
    ) -> None:
        self._asked = mounts
        self._mounts: list[Mount] | None = None
        self._own = Volume(dict(given or {}), {dirname(each) for each in given or ()}, file_system="overlay")
        self._own.read_only = read_only
        self._links: dict[str, str] = {}
        """Symbolic links, by path: what they lead to. They belong to the container, also within volumes."""
        self.user = user

    def read(self, path: str) -> str | None:
        volume, name, _ = self._place(path)
        return volume.files.get(name)

    def refusal(self, path: str) -> str:
        """Why nothing can be written there; empty when it can."""
        path = _clean(path)
        volume, _, read_only = self._place(path)
        own_exception = volume is self._own and path.startswith(_ALWAYS_WRITABLE)
        return "Read-only file system" if read_only and not own_exception else ""

    def write(self, path: str, text: str, append: bool = False, mode: int = 0o644) -> bool:
        """False when it is refused, or there is no room."""
        if path in ("/dev/null", "/dev/stdout", "/dev/stderr"):
            return True
        if self.refusal(path):
            return False
        volume, name, _ = self._place(path)
        if append:
            text = volume.files.get(name, "") + text
        if len(text) > _MOST_BYTES or len(volume.files) > _MOST_NAMES:
            return False
        if name not in volume.files:
            if mode != 0o644:
                volume.modes[name] = mode
            if self.user[:2] != (0, 0) or volume.group:
                volume.owners[name] = (self.user.uid, volume.group if volume.mode & SET_GROUP else self.user.gid)
        volume.files[name] = text
        return True

    def link(self, path: str, target: str) -> None:
        if len(self._links) < _MOST_NAMES:
            self._links[_clean(path)] = target

    def link_at(self, path: str) -> str:
        """Return what a symbolic link leads to; empty if there is none."""
        return self._links.get(_clean(path), "")

    def remove(self, path: str, recursive: bool = False) -> bool:
        if self._links.pop(_clean(path), ""):
            return True
        volume, name, _ = self._place(path)
        if self.refusal(path):
            return False
        gone = [name] if name in volume.files else []
        if recursive:
            gone += [each for each in volume.files if each.startswith(name.rstrip("/") + "/")]
            made = {each for each in volume.directories if each == name or each.startswith(name.rstrip("/") + "/")}
            volume.directories -= made
        for each in gone:
            del volume.files[each]
            volume.modes.pop(each, None)
            volume.owners.pop(each, None)
        return bool(gone) or (recursive and bool(made))

    def make_directory(self, path: str) -> None:
        if not self.refusal(path):
            volume, name, _ = self._place(path)
            if len(volume.directories) <= _MOST_NAMES:
                volume.directories.add(name)

    def change_mode(self, path: str, mode: int) -> None:
        volume, name, _ = self._place(path)
        if name in volume.files and not self.refusal(path):
            volume.modes[name] = mode

    def change_owner(self, path: str, user: int | None, group: int | None, recursive: bool = False) -> None:
        """None leaves the user or the group as it is. Directories have no owner of their own."""
        volume, name, _ = self._place(path)
        inside = name.rstrip("/") + "/"
        for each in volume.files:
            if each == name or (recursive and each.startswith(inside)):
                before = volume.owners.get(each, (0, volume.group))
                volume.owners[each] = (before[0] if user is None else user, before[1] if group is None else group)

    def is_file(self, path: str) -> bool:
        return self.read(path) is not None

    def is_directory(self, path: str) -> bool:
        path = self.resolved(path)
        return path in _ALWAYS or any(each.startswith(path.rstrip("/") + "/") for each in self._everything())

    def entries(self, path: str) -> list[str]:
        """The names in a directory."""
        inside = self.resolved(path).rstrip("/") + "/"
        everything = (*self._everything(), *self._links)
        names = {each[len(inside) :].partition("/")[0] for each in everything if each.startswith(inside)}
        return sorted(name for name in names if name)

    def status(self, path: str) -> Status | None:
        volume, name, _ = self._place(path)
        if name in volume.files:
            owner = volume.owners.get(name, (0, volume.group))
            return Status(volume.modes.get(name, 0o644), *owner, False, volume.file_system)
        if not self.is_directory(path):
            return None
        mode = 0o777 | STICKY if _clean(path) == "/tmp" else volume.mode
        return Status(mode, 0, volume.group, True, volume.file_system)

    def mount_points(self) -> list[tuple[str, str]]:
        """The kind of each file system, and where it is."""
        mounted = sorted((mount.volume().file_system, mount.path) for mount in self._mounted())
        return [(self._own.file_system, "/"), *mounted]

    def _everything(self) -> list[str]:
        found = [*self._own.files, *(f"{each}/" for each in sorted(self._own.directories))]
        for mount in self._mounted():
            found.append(f"{mount.path}/")
            volume, inside = mount.volume(), f"{mount.below}/" if mount.below else ""
            for name in (*volume.files, *(f"{each}/" for each in sorted(volume.directories))):
                if name == mount.below:
                    found[-1] = mount.path
                elif name.startswith(inside):
                    found.append(f"{mount.path}/{name[len(inside) :]}")
        return found

    def resolved(self, path: str) -> str:
        """Return the path behind symbolic links, as far as they lead somewhere."""
        path = _clean(path)
        for _ in range(_MOST_LINKS if self._links else 0):
            for link, target in self._links.items():
                if path == link or path.startswith(f"{link}/"):
                    absolute = target if target.startswith("/") else f"{dirname(link)}/{target}"
                    path = _clean(absolute + path[len(link) :])
                    break
            else:
                return path
        return path

    def _mounted(self) -> list[Mount]:
        if self._mounts is None:
            self._mounts = sorted(
                (mount._replace(path=_clean(mount.path)) for mount in self._asked()), key=lambda each: -len(each.path)
            )
        return self._mounts

    def _place(self, path: str) -> tuple[Volume, str, bool]:
        """The volume, the name in it, and whether it is read-only there."""
        path = self.resolved(path)
        for mount in self._mounted():
            if path == mount.path or path.startswith(mount.path + "/"):
                volume = mount.volume()
                # The kubelet writes those it keeps up to date behind a link.
                name = path[len(mount.path) + 1 :].removeprefix("..data/")
                name = "/".join(part for part in (mount.below, name) if part)
                return volume, name, volume.read_only or mount.read_only
        return self._own, path, self._own.read_only


def _clean(path: str) -> str:
    return normpath(path if path.startswith("/") else f"/{path}").replace("//", "/")
