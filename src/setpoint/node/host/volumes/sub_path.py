"""Prepares sub-paths of volumes as bind mounts. Containers can change their volumes while this happens.

A path is resolved once, by the kernel, inside of the volume, and the result is mounted by its descriptor: no symbolic
link that a container creates or swaps leads to another directory of the node (CVE-2017-1002101, CVE-2021-25741).
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from setpoint.node.host.mounts import (
    INSIDE,
    O_PATH,
    RESOLVE_NO_SYMLINKS,
    bind_descriptor,
    mount_points,
    open_inside,
    unmount,
)
from setpoint.node.host.volumes.file_tree import make_directories, remove_tree

_DIRECTORY = getattr(os, "O_DIRECTORY", 0)


def create_missing(volume: Path, sub_path: str) -> None:
    """Create the directories of a sub-path that do not exist, with the mode of the volume's directory. Nothing is
    created behind a link that leads outside of the volume."""
    parts = [part for part in sub_path.split("/") if part not in ("", ".")]
    parent = os.open(volume, O_PATH | _DIRECTORY | os.O_CLOEXEC)
    try:
        mode = stat.S_IMODE(os.fstat(parent).st_mode)
        top = os.dup(parent)
        try:
            for count, name in enumerate(parts, start=1):
                flags = O_PATH | (_DIRECTORY if count < len(parts) else 0)
                try:
                    # The path is resolved from the volume's directory: links may lead to any place inside of it.
                    child = open_inside(top, "/".join(parts[:count]), flags)
                except OSError as error:
                    if error.errno == errno.EXDEV:
                        return
                    if error.errno != errno.ENOENT:
                        raise
                    child = _create(parent, name, mode)
                os.close(parent)
                parent = child
        finally:
            os.close(top)
    finally:
        os.close(parent)


def _create(parent: int, name: str, mode: int) -> int:
    """Create a directory and return its descriptor."""
    created = False
    with suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=parent)
        created = True
    # Between the two calls the directory may be replaced by a link, which is then refused.
    child = open_inside(parent, name, os.O_RDONLY | _DIRECTORY, INSIDE | RESOLVE_NO_SYMLINKS)
    try:
        if created:
            os.fchmod(child, mode)
    except OSError:
        os.close(child)
        raise
    return child


def bind_sub_path(volume: Path, sub_path: str, target: Path) -> None:
    """Mount a sub-path of a volume at `target`. A mount of the same file or directory that exists is kept, one of
    another is replaced: it belongs to an earlier run of the container."""
    top = os.open(volume, O_PATH | _DIRECTORY | os.O_CLOEXEC)
    try:
        source = open_inside(top, sub_path, O_PATH)
    finally:
        os.close(top)
    try:
        found = os.fstat(source)
        real = os.path.realpath(target)
        for _ in [each for each in mount_points(target) if each.path == real]:
            if os.path.samestat(os.lstat(target), found):
                return
            unmount(target, lazy=True)
        _create_target(target, stat.S_ISDIR(found.st_mode))
        bind_descriptor(source, target)
    finally:
        os.close(source)


def _create_target(target: Path, is_directory: bool) -> None:
    make_directories(target.parent, 0o750)
    if target.is_dir() is not is_directory:
        remove_tree(target)
    if is_directory:
        target.mkdir(0o750, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640))
