"""Persistent volumes in directories of the node: local volumes, and those of the provisioner `setpoint.dev/local`.

The directory of a provisioned volume is created by the first Pod that mounts it, and removed after its PersistentVolume
was deleted. A file beside it records the reclaim policy: a directory is removed only if the policy was `Delete`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from setpoint.kinds.storage.binding import PROVISIONED_BY, annotations_of
from setpoint.meta.objects import ObjView
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.mounts import bind, mount_points
from setpoint.node.host.volumes.file_tree import make_directories, remove_tree
from setpoint.node.host.volumes.host_path import file_type
from setpoint.node.host.volumes.interface import SetUpError
from setpoint.node.host.volumes.ownership import ON_ROOT_MISMATCH, FsGroup, apply_fs_group, matches_fs_group

PLUGIN = "kubernetes.io~local-volume"
PROVISIONER = "setpoint.dev/local"
_POLICY_SUFFIX = ".reclaim-policy"
_DELETING_PREFIX = ".deleting-"
_DIRECTORY_MODE = 0o777
log = logging.getLogger("setpoint.node")


@dataclass(frozen=True, slots=True)
class LocalVolume:
    """A persistent volume in a directory of the node, mounted for one Pod."""

    name: str
    source: Path
    path: Path
    read_only: bool = False
    fs_group: FsGroup | None = None
    provisioned_policy: str = ""
    """The reclaim policy of a volume of our provisioner, whose directory is created; empty for other volumes, whose
    directory must exist."""
    exclusive: bool = False
    """Whether only one Pod may use the volume (ReadWriteOncePod)."""

    def set_up(self) -> None:
        if self.provisioned_policy:
            _create(self.source, self.provisioned_policy)
        self._check_source()
        pods = self.path.parents[3]
        users = {each for each in mount_points(pods) if Path(each.path).parts[-2:] == (PLUGIN, self.path.name)}
        own = os.path.realpath(self.path)
        if any(each.path == own for each in users):
            return
        if users and self.exclusive:
            about = "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
            raise SetUpError(about)
        # The owner is set before the mount, which marks the volume as complete, and not while other Pods use it.
        if self.fs_group is not None and not self.read_only and not users:
            group, policy = self.fs_group
            if policy != ON_ROOT_MISMATCH or not matches_fs_group(self.source, group):
                apply_fs_group(self.source, group)
        make_directories(self.path, 0o750)
        bind(self.source, self.path, read_only=self.read_only)

    def _check_source(self) -> None:
        if ".." in self.source.parts:
            raise SetUpError(f"invalid path: {self.source} must not contain '..'")
        phase = "NewMounter initialization failed"
        try:
            found = file_type(self.source)
        except (OSError, ValueError) as error:
            raise SetUpError(str(error), phase) from error
        if found == "BlockDevice":
            raise SetUpError("file systems on block devices are not supported on this node", "MountDevice failed")
        if found != "Directory":
            raise SetUpError("only directory and block device are supported", phase)


def is_provisioned(volume: ObjView) -> bool:
    """Return whether a persistent volume was created by the provisioner `setpoint.dev/local`."""
    return annotations_of(volume).get(PROVISIONED_BY) == PROVISIONER


def policy_of(volume: ObjView) -> str:
    return str(volume["spec"].get("persistentVolumeReclaimPolicy") or "Retain")


def reconcile_directories(directories: NodeDirectories, volumes: Iterable[ObjView]) -> list[str]:
    """Remove the directories of provisioned volumes that do not exist any more, and return their names. `volumes` must
    contain all PersistentVolumes of the cluster. Directories that a Pod still uses stay for now. Blocks."""
    top = directories.local_volumes
    if not top.is_dir():
        return []
    existing = {each["metadata"]["name"]: each for each in volumes}
    in_use = _in_use(directories)
    removed = []
    for name in sorted(os.listdir(top)):
        if name.startswith(_DELETING_PREFIX):
            _remove(top / name)
        elif not name.startswith(".") and (top / name).is_dir():
            if name in existing:
                _record(top / name, policy_of(existing[name]))
            elif name not in in_use and _recorded(top / name) == "Delete":
                # The rename makes the removal complete even if the agent is interrupted.
                deleting = (top / name).rename(top / f"{_DELETING_PREFIX}{name}")
                _policy_file(top / name).unlink(missing_ok=True)
                _remove(deleting)
                removed.append(name)
    return removed


def unused_directories(directories: NodeDirectories) -> set[str]:
    """Return the names of provisioned volumes that have a directory to be removed with them, and that no Pod uses.
    Blocks."""
    top = directories.local_volumes
    names = os.listdir(top) if top.is_dir() else ()
    found = {name for name in names if not name.startswith(".") and _recorded(top / name) == "Delete"}
    return found - _in_use(directories) if found else found


def _in_use(directories: NodeDirectories) -> set[str]:
    return {Path(each.path).name for each in mount_points(directories.pods) if Path(each.path).parent.name == PLUGIN}


def _remove(directory: Path) -> None:
    try:
        remove_tree(directory)
    except OSError as error:
        log.warning("The directory %s of a deleted volume cannot be removed: %s", directory, error)


def _create(directory: Path, policy: str) -> None:
    make_directories(directory.parent, 0o750)
    with suppress(FileExistsError):
        directory.mkdir(_DIRECTORY_MODE)
        directory.chmod(_DIRECTORY_MODE)
    _record(directory, policy)


def _policy_file(directory: Path) -> Path:
    return directory.parent / f".{directory.name}{_POLICY_SUFFIX}"


def _recorded(directory: Path) -> str:
    try:
        return _policy_file(directory).read_text()
    except FileNotFoundError:
        return ""


def _record(directory: Path, policy: str) -> None:
    if _recorded(directory) != policy:
        new = directory.parent / f".{directory.name}.new"
        new.write_text(policy)
        new.rename(_policy_file(directory))
