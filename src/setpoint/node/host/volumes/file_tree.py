"""Walks, measures and removes directory trees whose content is not trusted.

A walk holds two descriptors at a time whatever the depth of the tree, follows no symbolic link, and does not enter
mount points.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from setpoint.node.host.mounts import RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV, mount_points, open_inside

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | os.O_NOFOLLOW | os.O_CLOEXEC
_STAY = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV


class BusyTreeError(OSError):
    """A tree cannot be removed because something is mounted at or below it."""

    def __str__(self) -> str:
        return str(self.strerror)


class Entry(NamedTuple):
    """An entry of a directory during a walk."""

    directory: int
    """The descriptor of the directory that contains the entry; valid until the walk continues."""
    name: str
    is_directory: bool


class TreeUsage(NamedTuple):
    """The space that a tree occupies in its file system."""

    used_bytes: int
    inodes: int


def walk(top: Path, *, skip_mounts: bool = True) -> Iterator[Entry]:
    """Yield all entries below a directory, those of a directory before the directory itself. Entries that disappear
    meanwhile are left out, and so are mount points, at which BusyTreeError is raised unless they are skipped."""
    current = os.open(top, _DIRECTORY)
    levels = [_Level("", _identity(current), *_listed(current))]
    try:
        while True:
            level = levels[-1]
            while level.files:
                yield Entry(current, level.files.pop(), False)
            if level.directories:
                name = level.directories.pop()
                try:
                    inner = open_inside(current, name, _DIRECTORY, _STAY)
                except OSError as error:
                    is_mount = error.errno == errno.EXDEV
                    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP) or (is_mount and skip_mounts):
                        continue
                    if is_mount:
                        raise BusyTreeError(errno.EBUSY, f"{name} below {top} is a mount point") from error
                    raise
                os.close(current)
                current = inner
                levels.append(_Level(name, _identity(current), *_listed(current)))
                continue
            if len(levels) == 1:
                return
            levels.pop()
            outer = os.open("..", _DIRECTORY, dir_fd=current)
            os.close(current)
            current = outer
            if _identity(current) != levels[-1].identity:
                raise OSError(errno.EAGAIN, f"a directory below {top} was moved during the walk")
            yield Entry(current, level.name, True)
    finally:
        os.close(current)


class _Level(NamedTuple):
    name: str
    identity: tuple[int, int]
    """Device and inode of the directory."""
    files: list[str]
    directories: list[str]


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _listed(directory: int) -> tuple[list[str], list[str]]:
    """Return the names of the files and of the directories in a directory."""
    files: list[str] = []
    directories: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            (directories if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
    return files, directories


def remove_tree(top: Path) -> None:
    """Remove a file or a directory tree, which need not exist. Raise BusyTreeError, and remove nothing, if something
    is mounted at or below it."""
    try:
        found = os.lstat(top).st_mode
    except FileNotFoundError:
        return
    mounted = [] if stat.S_ISLNK(found) else mount_points(top)
    if mounted:
        raise BusyTreeError(errno.EBUSY, f"{top} is not removed because {mounted[0].path} is a mount point")
    if not stat.S_ISDIR(found):
        top.unlink(missing_ok=True)
        return
    for entry in walk(top, skip_mounts=False):
        with suppress(FileNotFoundError):
            if entry.is_directory:
                os.rmdir(entry.name, dir_fd=entry.directory)
            else:
                os.unlink(entry.name, dir_fd=entry.directory)
    with suppress(FileNotFoundError):
        top.rmdir()


def measure(top: Path) -> TreeUsage:
    """Return the space that a tree occupies; files with several names count once."""
    used, inodes = os.lstat(top).st_blocks * 512, 1
    linked: set[int] = set()
    for entry in walk(top):
        try:
            found = os.stat(entry.name, dir_fd=entry.directory, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if found.st_nlink > 1 and not entry.is_directory:
            if found.st_ino in linked:
                continue
            linked.add(found.st_ino)
        used += found.st_blocks * 512
        inodes += 1
    return TreeUsage(used, inodes)


def make_directories(path: Path, mode: int) -> None:
    """Create a directory and its missing parents. Those that are created get `mode`, whatever the umask is."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        with suppress(FileExistsError):
            each.mkdir(mode)
            each.chmod(mode)
