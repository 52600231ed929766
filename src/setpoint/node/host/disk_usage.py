"""Measures the disk usage of Pods: their local volumes and logs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from setpoint.meta.clock import Clock
from setpoint.meta.objects import ObjView
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.directories import NodeDirectories

_PERIOD = 60.0
"""Seconds after which the usage of a Pod is measured again."""
_LOCAL_PLUGINS = {
    "emptyDir": "kubernetes.io~empty-dir",
    "configMap": "kubernetes.io~configmap",
    "secret": "kubernetes.io~secret",
    "projected": "kubernetes.io~projected",
    "downwardAPI": "kubernetes.io~downward-api",
}
"""The directories of volumes that take space of the node, by the field in the Pod's volumes."""


class DiskUsage(NamedTuple):
    """The space and the number of inodes that files take."""

    used_bytes: int = 0
    inodes: int = 0

    def plus(self, other: DiskUsage) -> DiskUsage:
        return DiskUsage(self.used_bytes + other.used_bytes, self.inodes + other.inodes)


@dataclass(slots=True)
class PodDiskUsage:
    """The disk usage of one Pod, without the writable layers of its containers."""

    measured_at: float
    """Monotonic seconds."""
    volumes: dict[str, DiskUsage] = field(default_factory=dict)
    """Local volumes by name. Those in memory are not among them."""
    logs: dict[str, DiskUsage] = field(default_factory=dict)
    """Logs by the name of the container."""
    other: DiskUsage = field(default_factory=DiskUsage)
    """Files of the agent, such as the hosts file."""

    @property
    def total(self) -> DiskUsage:
        found = self.other
        for each in (*self.volumes.values(), *self.logs.values()):
            found = found.plus(each)
        return found


def directory_usage(path: Path) -> DiskUsage:
    """Measure the files below a directory. Other file systems that are mounted there are left out, a file with several
    names counts once. What disappears meanwhile or cannot be read is left out. Blocks."""
    try:
        device = os.lstat(path).st_dev
    except OSError:
        return DiskUsage()
    used, inodes = 0, 0
    linked: set[int] = set()
    pending = [os.fspath(path)]
    while pending:
        current = pending.pop()
        try:
            own = os.lstat(current)
            if own.st_dev != device:
                continue
            with os.scandir(current) as entries:
                used, inodes = used + own.st_blocks * 512, inodes + 1
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                        continue
                    found = entry.stat(follow_symlinks=False)
                    if found.st_nlink > 1:
                        if found.st_ino in linked:
                            continue
                        linked.add(found.st_ino)
                    used, inodes = used + found.st_blocks * 512, inodes + 1
        except OSError:
            continue
    return DiskUsage(used, inodes)


def measure_pod(pod: ObjView, directories: NodeDirectories, at: float) -> PodDiskUsage:
    """Measure the disk usage of a Pod. Blocks."""
    meta, spec = pod["metadata"], pod["spec"]
    found = PodDiskUsage(at)
    for volume in spec.get("volumes") or ():
        for source, plugin in _LOCAL_PLUGINS.items():
            if source in volume and (volume[source] or {}).get("medium", "") == "":
                found.volumes[volume["name"]] = directory_usage(directories.volume(meta["uid"], plugin, volume["name"]))
    logs = directories.pod_logs(meta["namespace"], meta["name"], meta["uid"])
    try:
        names = [entry.name for entry in os.scandir(logs) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        names = []
    for name in names:
        found.logs[name] = directory_usage(logs / name)
    pod_directory = directories.pod(meta["uid"])
    for part in (pod_directory / "containers", pod_directory / "etc-hosts"):
        found.other = found.other.plus(directory_usage(part))
    return found


class DiskUsageCollector:
    """Measures the disk usage of Pods, each at most once a minute, one after the other."""

    def __init__(self, directories: NodeDirectories, pool: BlockingPool, clock: Clock) -> None:
        self._directories = directories
        self._pool = pool
        self._clock = clock
        self._pods: dict[str, PodDiskUsage] = {}

    @property
    def pods(self) -> Mapping[str, PodDiskUsage]:
        """The usage by the uid of the Pod, as measured last."""
        return self._pods

    async def measure(self, pods: Iterable[ObjView]) -> None:
        """Measure the Pods whose usage is not known or outdated, and forget all that are not among `pods`."""
        wanted = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid in [uid for uid in self._pods if uid not in wanted]:
            del self._pods[uid]
        for uid, pod in wanted.items():
            known, now = self._pods.get(uid), self._clock.monotonic()
            if known is None or now - known.measured_at >= _PERIOD:
                self._pods[uid] = await self._pool.run(measure_pod, pod, self._directories, now)
