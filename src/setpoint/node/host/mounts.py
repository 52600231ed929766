"""System calls for mounts and for path resolution that cannot leave a directory.

All functions block and run in the agent's `BlockingPool`. Python has no functions for these system calls, so that they
are called in the C library.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC = 32, 4096, 16384
PROPAGATIONS = {"private": 1 << 18, "slave": 1 << 19, "shared": 1 << 20}
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8

RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 1, 2, 4, 8
INSIDE = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
"""Path resolution that follows symbolic links only inside of the directory."""
O_PATH = getattr(os, "O_PATH", 0)

# The numbers of system calls since Linux 5.1 are the same on all architectures.
_OPEN_TREE, _MOVE_MOUNT, _OPENAT2 = 428, 429, 437
_OPEN_TREE_CLONE, _AT_EMPTY_PATH, _AT_FDCWD, _MOVE_MOUNT_F_EMPTY_PATH = 1, 0x1000, -100, 4
_MAX_RESOLUTIONS = 128
"""How often a resolution is repeated that the kernel gave up because of a concurrent rename."""
_MOUNT_INFO = "/proc/self/mountinfo"
_ESCAPE = re.compile(r"\\([0-7]{3})")
_SPECIAL = re.compile(r"[ \t\n\\]")
"""The characters that a mountinfo file escapes."""


class MountError(OSError):
    """A system call for a mount failed; the message contains the call and its path."""

    def __str__(self) -> str:
        return str(self.strerror)


class MountPoint(NamedTuple):
    """A mount in the agent's mount namespace."""

    id: int
    parent: int
    device: str
    """Major and minor number of the file system, such as `8:1`."""
    root: str
    """The directory or file of the file system that is mounted."""
    path: str
    """The path of the mount point."""
    options: frozenset[str]
    """The options of this mount, such as `ro`."""
    propagation: tuple[str, ...]
    """The optional fields, such as `shared:1`; empty for a private mount."""
    file_system: str
    source: str
    super_options: frozenset[str]
    """The options of the file system."""


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _call(text: str, result: int) -> int:
    """Return the result of a system call, or raise MountError if it failed; `text` describes the call."""
    if result >= 0:
        return result
    number = ctypes.get_errno()
    if number == errno.ENOSYS:
        raise MountError(number, f"{text}: the kernel does not support this system call; Linux 5.6 or later is needed")
    raise MountError(number, f"{text}: {os.strerror(number)}")


def _mount(text: str, source: str, target: str, file_system: str, flags: int, data: str = "") -> None:
    result = _libc().mount(
        os.fsencode(source), os.fsencode(target), file_system.encode(), ctypes.c_ulong(flags), data.encode() or None
    )
    _call(text, result)


# -- mounts -----------------------------------------------------------------------------------------------------------


def bind(source: str | Path, target: str | Path, *, recursive: bool = False, read_only: bool = False) -> None:
    """Mount `source` at `target`, which must exist. Symbolic links in both paths are followed."""
    text = f"bind mount of {source} at {target}"
    _mount(text, str(source), str(target), "", MS_BIND | (MS_REC if recursive else 0))
    if read_only:
        try:
            remount_read_only(target)
        except MountError:
            unmount(target)
            raise


def remount_read_only(target: str | Path) -> None:
    """Make a bind mount read-only. Other mounts of the same file system are not changed."""
    # Flags that are not repeated would be cleared, which the kernel refuses for locked ones.
    kept = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _mount(f"read-only remount of {target}", "none", str(target), "", MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def mount_tmpfs(target: str | Path, size: int | None = None, *, flags: int = 0) -> None:
    """Mount a tmpfs. Its content is never swapped out if the kernel supports that. `size` is its maximum in bytes;
    None is the kernel's default, half of the memory."""
    options = [f"size={size}"] if size else []
    text = f"mount of tmpfs at {target}"
    try:
        _mount(text, "tmpfs", str(target), "tmpfs", flags, ",".join([*options, "noswap"]))
    except MountError as error:
        if error.errno != errno.EINVAL:
            raise
        _mount(text, "tmpfs", str(target), "tmpfs", flags, ",".join(options))


def set_propagation(target: str | Path, propagation: str, *, recursive: bool = False) -> None:
    """Set the propagation of a mount to `private`, `slave` or `shared`."""
    flags = PROPAGATIONS[propagation] | (MS_REC if recursive else 0)
    _mount(f"change of mount propagation of {target} to {propagation}", "none", str(target), "", flags)


def unmount(target: str | Path, *, lazy: bool = False) -> None:
    """Unmount the topmost mount at `target`. A lazy unmount hides it at once, and ends it when nothing uses it."""
    flags = _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazy else 0)
    _call(f"unmount of {target}", _libc().umount2(os.fsencode(target), ctypes.c_int(flags)))


# -- mountinfo --------------------------------------------------------------------------------------------------------


def parse_mount_info(lines: Iterable[str]) -> Iterator[MountPoint]:
    """Yield the mounts in the lines of a mountinfo file, in the order in which they were mounted."""
    for line in lines:
        fields, separator, rest = line.rstrip("\n").partition(" - ")
        before, after = fields.split(" "), rest.split(" ")
        if not separator or len(before) < 6 or len(after) < 3:
            continue
        yield MountPoint(
            int(before[0]),
            int(before[1]),
            before[2],
            _unescaped(before[3]),
            _unescaped(before[4]),
            frozenset(before[5].split(",")),
            tuple(before[6:]),
            after[0],
            _unescaped(after[1]),
            frozenset(after[2].split(",")),
        )


def mount_points(below: str | Path = "/") -> list[MountPoint]:
    """Return the mounts at and below a path, in the order in which they were mounted. Symbolic links in the path are
    resolved."""
    top = os.path.realpath(below)
    prefix, escaped = top.rstrip("/") + "/", _SPECIAL.sub(lambda found: f"\\{ord(found[0]):03o}", top)
    with open(_MOUNT_INFO, encoding="utf-8", errors="surrogateescape") as lines:
        # A node has thousands of mounts: lines that do not contain the path are not parsed.
        found = parse_mount_info(line for line in lines if escaped in line)
        return [each for each in found if each.path == top or each.path.startswith(prefix)]


def _unescaped(text: str) -> str:
    """Decode the octal escapes of spaces, tabs, newlines and backslashes."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text) if "\\" in text else text


# -- resolution inside of a directory ---------------------------------------------------------------------------------


def open_inside(directory: int, path: str, flags: int, resolve: int = INSIDE) -> int:
    """Return a descriptor of a path relative to a directory. Raise OSError if the path, or a symbolic link in it,
    leads outside, even if it is changed at the same time."""
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, resolve)
    text = f"open of {path} inside of its volume"
    for attempt in range(_MAX_RESOLUTIONS):
        result = _libc().syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(directory),
            os.fsencode(path),
            ctypes.c_char_p(how),
            ctypes.c_size_t(len(how)),
        )
        if result >= 0 or ctypes.get_errno() != errno.EAGAIN or attempt == _MAX_RESOLUTIONS - 1:
            return _call(text, int(result))
    raise AssertionError("the last attempt returns or raises")


def bind_descriptor(descriptor: int, target: str | Path) -> None:
    """Mount an open file or directory at `target`. The path under which it was opened is not resolved again."""
    text = f"bind mount at {target}"
    flags = _OPEN_TREE_CLONE | _AT_EMPTY_PATH | os.O_CLOEXEC
    result = _libc().syscall(ctypes.c_long(_OPEN_TREE), ctypes.c_int(descriptor), b"", ctypes.c_uint(flags))
    tree = _call(text, int(result))
    try:
        result = _libc().syscall(
            ctypes.c_long(_MOVE_MOUNT),
            ctypes.c_int(tree),
            b"",
            ctypes.c_int(_AT_FDCWD),
            os.fsencode(target),
            ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH),
        )
        _call(text, int(result))
    finally:
        os.close(tree)
