"""Gives the files of a volume to the Pod's fsGroup."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from setpoint.meta.objects import ObjView
from setpoint.node.host.mounts import O_PATH
from setpoint.node.host.volumes.file_tree import walk

ON_ROOT_MISMATCH = "OnRootMismatch"
_READ_WRITE, _READ_ONLY, _EXECUTE = 0o660, 0o440, 0o110


class FsGroup(NamedTuple):
    """The group that owns the files of a Pod's volumes."""

    group: int
    policy: str = "Always"
    """When persistent volumes are changed: `Always` or `OnRootMismatch`."""


def fs_group_of(spec: ObjView) -> FsGroup | None:
    """Return the fsGroup of a Pod; None if it has none."""
    context = spec.get("securityContext") or {}
    group = context.get("fsGroup")
    return None if group is None else FsGroup(group, context.get("fsGroupChangePolicy") or "Always")


def apply_fs_group(top: Path, group: int, *, read_only: bool = False) -> None:
    """Give a volume to a group, with all its files: the group can read them, and write them unless the volume is
    read-only. New files in its directories get the same group. Files that cannot be changed are left as they are."""
    for entry in walk(top):
        _change(entry.name, group, read_only, entry.directory)
    _change(str(top), group, read_only, None)


def matches_fs_group(top: Path, group: int, *, read_only: bool = False) -> bool:
    """Return whether the directory of a volume belongs to the group, with the necessary permissions."""
    try:
        found = os.stat(top)
    except OSError:
        return False
    wanted = (_READ_ONLY if read_only else _READ_WRITE) | _EXECUTE
    if found.st_gid != group or not stat.S_ISDIR(found.st_mode):
        return False
    return found.st_mode & wanted == wanted and bool(found.st_mode & stat.S_ISGID)


def _change(name: str, group: int, read_only: bool, directory: int | None) -> None:
    # The descriptor denotes the same file in all calls, even if a container replaces it by a symbolic link.
    try:
        descriptor = os.open(name, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise
        return
    try:
        found = os.fstat(descriptor)
        if stat.S_ISLNK(found.st_mode):
            with suppress(OSError):
                os.chown(name, -1, group, dir_fd=directory, follow_symlinks=False)
            return
        itself = f"/proc/self/fd/{descriptor}"
        with suppress(OSError):
            os.chown(itself, -1, group)
        mask = _READ_ONLY if read_only else _READ_WRITE
        if stat.S_ISDIR(found.st_mode):
            mask |= stat.S_ISGID | _EXECUTE
        with suppress(OSError):
            os.chmod(itself, stat.S_IMODE(found.st_mode) | mask)
    finally:
        os.close(descriptor)
