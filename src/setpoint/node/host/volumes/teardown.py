"""Unmounts and removes the volumes of a Pod that the mount table and the directories show. All functions block."""

from __future__ import annotations

import errno
from pathlib import Path

from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.mounts import MountError, mount_points, unmount
from setpoint.node.host.volumes.file_tree import remove_tree

_GONE = (errno.EINVAL, errno.ENOENT)
"""Errors of an unmount after which nothing is mounted at the path."""


def unmount_below(top: Path, *, lazy: bool = False) -> list[str]:
    """Unmount everything at and below a directory, and return an error message for each mount that is still there."""
    problems = []
    # A mount is unmounted before the one that contains it.
    for each in sorted(mount_points(top), key=lambda found: -len(found.path)):
        try:
            unmount(each.path, lazy=lazy)
        except MountError as error:
            if error.errno not in _GONE:
                problems.append(str(error))
    return problems


def remove_volumes(directories: NodeDirectories, uid: str) -> None:
    """Remove the directories of a Pod's volumes with the data in them. Raise OSError, and remove nothing that is
    mounted, if something is still mounted there."""
    remove_tree(directories.sub_paths(uid))
    for name in ("volumes", "plugins"):
        remove_tree(directories.pod(uid) / name)
