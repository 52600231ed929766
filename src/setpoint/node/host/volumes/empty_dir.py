"""Volumes of type emptyDir: a directory on the node's disk, or a tmpfs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from setpoint.kinds.core.pod_demand import pod_limits
from setpoint.meta.objects import ObjView
from setpoint.meta.quantity import parse
from setpoint.node.host.mounts import mount_points, mount_tmpfs
from setpoint.node.host.volumes.file_tree import make_directories, measure
from setpoint.node.host.volumes.interface import SetUpError, VolumeUsage
from setpoint.node.host.volumes.ownership import apply_fs_group

PLUGIN = "kubernetes.io~empty-dir"
MEMORY = "Memory"
_MODE = 0o777


@dataclass(frozen=True, slots=True)
class EmptyDir:
    """An emptyDir volume of one Pod."""

    name: str
    path: Path
    ready: Path
    """A file that exists if the volume was set up, so that files of containers keep their owners afterwards."""
    medium: str = ""
    """`Memory` for a tmpfs, empty for the node's disk."""
    size: int | None = None
    """The maximum size of a tmpfs in bytes; None is half of the node's memory."""
    fs_group: int | None = None

    @property
    def read_only(self) -> bool:
        return False

    def set_up(self) -> None:
        if self.medium not in ("", MEMORY):
            kind = "huge pages are" if self.medium.startswith("HugePages") else "this medium is"
            raise SetUpError(f'unknown storage medium "{self.medium}": {kind} not supported on this node')
        if self.ready.exists() and (is_tmpfs(self.path) if self.medium else self.path.is_dir()):
            return
        create_directory(self.path)
        if self.medium and not is_tmpfs(self.path):
            mount_tmpfs(self.path, self.size)
        if self.fs_group is not None:
            apply_fs_group(self.path, self.fs_group)
        make_directories(self.ready.parent, 0o750)
        self.ready.touch()


def create_directory(path: Path) -> None:
    """Create the directory of a volume, to which all users may write."""
    make_directories(path.parent, 0o750)
    path.mkdir(_MODE, exist_ok=True)
    path.chmod(_MODE)


def is_tmpfs(path: Path) -> bool:
    """Return whether a tmpfs is mounted at the path."""
    if not path.is_dir() or os.stat(path).st_dev == os.stat(path.parent).st_dev:
        return False
    real = os.path.realpath(path)
    mounted = [each for each in mount_points(path) if each.path == real]
    return bool(mounted) and mounted[-1].file_system == "tmpfs"


def memory_size(pod: ObjView, allocatable: str | None, limit: str | None = None) -> int | None:
    """Return the size of a tmpfs in bytes: the least of the node's allocatable memory, the memory limit of the Pod and
    the limit of the volume; None if none of them is set."""
    sizes = [parse(allocatable).value()] if allocatable else []
    spec = pod["spec"]
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    limited = all(((each.get("resources") or {}).get("limits") or {}).get("memory") for each in containers)
    if limited or ((spec.get("resources") or {}).get("limits") or {}).get("memory"):
        sizes.append(parse(pod_limits(pod).get("memory", "0")).value())
    if limit:
        sizes.append(parse(limit).value())
    return min((each for each in sizes if each > 0), default=None)


def usage(path: Path) -> VolumeUsage:
    """Measure a volume. Blocks, and reads all its directories unless it is a tmpfs."""
    total = os.statvfs(path)
    if is_tmpfs(path):
        used, inodes = (total.f_blocks - total.f_bfree) * total.f_frsize, total.f_files - total.f_ffree
    else:
        used, inodes = measure(path)
    return VolumeUsage(
        used,
        inodes,
        total.f_blocks * total.f_frsize,
        total.f_bavail * total.f_frsize,
        total.f_files,
        total.f_ffree,
    )
