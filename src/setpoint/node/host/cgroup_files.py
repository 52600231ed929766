"""Access to control groups (cgroups) as files: versions 1 and 2, and both side by side.

All functions block; `CgroupManager` calls them through `BlockingPool`. A path of a cgroup is absolute and starts at the
root of every hierarchy."""

from __future__ import annotations

import errno
import math
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from setpoint.node.host.resources import CPU_PERIOD, page_size_name

UNLIMITED = -1
_CONTROLLERS = (
    "cpu",
    "cpuacct",
    "cpuset",
    "memory",
    "pids",
    "hugetlb",
    "devices",
    "freezer",
    "blkio",
    "net_cls",
    "net_prio",
    "perf_event",
    "rdma",
    "misc",
)
_CREATED = ("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb")
"""The controllers of version 1 in which cgroups are created; the container runtime creates those of all others."""
_DELEGATED = ("cpu", "cpuset", "memory", "pids", "hugetlb", "io")
"""The controllers of version 2 that child cgroups get, if they are available."""


class CgroupError(Exception):
    """A cgroup cannot be created, changed or removed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a cgroup. None leaves a value as it is; `UNLIMITED` removes a limit."""

    cpu_shares: int | None = None
    cpu_quota: int | None = None
    """CPU time in microseconds per period of 100 ms."""
    memory_bytes: int | None = None
    pids: int | None = None
    huge_pages: Mapping[int, int] = field(default_factory=dict)
    """Bytes by the size of a page."""


class CgroupTree(Protocol):
    """The cgroup hierarchies of a machine."""

    version: int

    def create(self, path: str) -> None:
        """Create a cgroup and its parents. One that exists remains as it is."""
        ...

    def apply(self, path: str, limits: Limits) -> None: ...

    def directories(self, path: str) -> list[Path]:
        """Return the directories of a cgroup, one in each hierarchy, whether they exist or not."""
        ...

    def memory_directory(self, path: str) -> Path | None:
        """Return the directory with the memory statistics of a cgroup; None without a memory controller."""
        ...

    def cpu_directory(self, path: str) -> Path | None: ...

    def pids_directory(self, path: str) -> Path | None: ...


class CgroupsV1:
    """Hierarchies of version 1, one for each controller or group of controllers. A hierarchy of version 2 beside them,
    which has no controllers then, is cleaned up too."""

    version = 1

    def __init__(self, controllers: Mapping[str, Path], others: tuple[Path, ...] = ()) -> None:
        """Create the tree. `controllers` maps each controller to the mount point of its hierarchy; `others` are the
        mount points of hierarchies without controllers."""
        self._controllers = dict(controllers)
        self._others = others

    def create(self, path: str) -> None:
        for mount in dict.fromkeys(self._controllers[name] for name in _CREATED if name in self._controllers):
            _make(mount, path)
        if "cpuset" in self._controllers:
            self._fill_cpusets(path)

    def _fill_cpusets(self, path: str) -> None:
        """Copy processors and memory nodes from the parents: a new cgroup has none, and no process may join it."""
        directory = self._controllers["cpuset"]
        for part in path.strip("/").split("/"):
            parent, directory = directory, directory / part
            for name in ("cpuset.cpus", "cpuset.mems"):
                if not _read(directory / name) and (inherited := _read(parent / name)):
                    _write(directory / name, inherited)

    def apply(self, path: str, limits: Limits) -> None:
        if limits.cpu_shares is not None:
            self._set("cpu", path, "cpu.shares", limits.cpu_shares)
        if limits.cpu_quota is not None:
            self._set("cpu", path, "cpu.cfs_period_us", CPU_PERIOD)
            self._set("cpu", path, "cpu.cfs_quota_us", limits.cpu_quota)
        if limits.memory_bytes is not None:
            self._set("memory", path, "memory.limit_in_bytes", limits.memory_bytes)
        if limits.pids is not None:
            self._set("pids", path, "pids.max", "max" if limits.pids == UNLIMITED else limits.pids)
        for size, amount in limits.huge_pages.items():
            self._set("hugetlb", path, f"hugetlb.{page_size_name(size)}.limit_in_bytes", amount)

    def _set(self, controller: str, path: str, name: str, value: int | str) -> None:
        if controller in self._controllers:
            file = _below(self._controllers[controller], path) / name
            if controller != "hugetlb" or file.exists():
                _write(file, str(value))

    def directories(self, path: str) -> list[Path]:
        mounts = dict.fromkeys((*self._controllers.values(), *self._others))
        return [_below(mount, path) for mount in mounts]

    def memory_directory(self, path: str) -> Path | None:
        return _below(self._controllers["memory"], path) if "memory" in self._controllers else None

    def cpu_directory(self, path: str) -> Path | None:
        return _below(self._controllers["cpuacct"], path) if "cpuacct" in self._controllers else None

    def pids_directory(self, path: str) -> Path | None:
        return _below(self._controllers["pids"], path) if "pids" in self._controllers else None


class CgroupsV2:
    """The unified hierarchy of version 2."""

    version = 2

    def __init__(self, mount: Path) -> None:
        self._mount = mount

    def create(self, path: str) -> None:
        directory = self._mount
        for part in path.strip("/").split("/"):
            self._delegate(directory)
            directory = directory / part
            _make(directory.parent, part)

    def _delegate(self, directory: Path) -> None:
        """Enable the controllers for the children of a cgroup."""
        available = _read(directory / "cgroup.controllers").split()
        enabled = _read(directory / "cgroup.subtree_control").split()
        for name in _DELEGATED:
            if name in available and name not in enabled:
                try:
                    _write(directory / "cgroup.subtree_control", f"+{name}")
                except CgroupError:
                    if name in ("cpu", "memory", "pids"):
                        raise

    def apply(self, path: str, limits: Limits) -> None:
        directory = _below(self._mount, path)
        if limits.cpu_shares is not None:
            _write(directory / "cpu.weight", str(cpu_weight(limits.cpu_shares)))
        if limits.cpu_quota is not None:
            _write(directory / "cpu.max", f"{_or_max(limits.cpu_quota)} {CPU_PERIOD}")
        if limits.memory_bytes is not None:
            _write(directory / "memory.max", _or_max(limits.memory_bytes))
        if limits.pids is not None:
            _write(directory / "pids.max", _or_max(limits.pids))
        for size, amount in limits.huge_pages.items():
            file = directory / f"hugetlb.{page_size_name(size)}.max"
            if file.exists():
                _write(file, _or_max(amount))

    def directories(self, path: str) -> list[Path]:
        return [_below(self._mount, path)]

    def memory_directory(self, path: str) -> Path | None:
        return _below(self._mount, path)

    def cpu_directory(self, path: str) -> Path | None:
        return _below(self._mount, path)

    def pids_directory(self, path: str) -> Path | None:
        return _below(self._mount, path)


def find_cgroups(mounts: str) -> CgroupsV1 | CgroupsV2:
    """Return the cgroups of the machine; `mounts` is the content of /proc/self/mounts. Raise CgroupError."""
    controllers: dict[str, Path] = {}
    others: list[Path] = []
    unified: Path | None = None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 4:
            continue
        point, kind, options = Path(fields[1].replace("\\040", " ")), fields[2], fields[3].split(",")
        if kind == "cgroup2":
            unified = unified or point
        elif kind == "cgroup":
            named = [each for each in options if each in _CONTROLLERS]
            for name in named:
                controllers.setdefault(name, point)
            if not named:
                others.append(point)
    if "memory" in controllers or "cpu" in controllers:
        return CgroupsV1(controllers, (*others, *((unified,) if unified is not None else ())))
    if unified is not None:
        return CgroupsV2(unified)
    raise CgroupError("no cgroup file system is mounted")


def cpu_weight(shares: int) -> int:
    """Return the weight of version 2 for CPU shares of version 1, so that minimum, default and maximum correspond."""
    if shares <= 2:
        return 1
    if shares >= 262_144:
        return 10_000
    logarithm = math.log2(shares)
    return math.ceil(10 ** ((logarithm * logarithm + 125 * logarithm) / 612 - 7 / 34))


def remove_once(tree: CgroupTree, path: str) -> list[str]:
    """Kill the processes of a cgroup and its descendants and remove the directories, in all hierarchies. Return why
    directories are left: processes take a moment to end."""
    problems = []
    for top in tree.directories(path):
        for directory in _bottom_up(top):
            for pid in processes(directory):
                _kill(pid)
            try:
                directory.rmdir()
            except FileNotFoundError:
                continue
            except OSError as error:
                problems.append(f"{directory}: {error.strerror}")
    return problems


def processes(directory: Path) -> list[int]:
    """Return the ids of the processes in a cgroup, without those of its descendants."""
    # A process of another PID namespace is shown as 0.
    return [int(each) for each in _read(directory / "cgroup.procs").split() if each.isdecimal() and int(each) > 0]


def _bottom_up(top: Path) -> Iterator[Path]:
    for directory, _, _ in os.walk(top, topdown=False):
        yield Path(directory)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _below(mount: Path, path: str) -> Path:
    return mount / path.strip("/")


def _make(mount: Path, path: str) -> None:
    try:
        _below(mount, path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CgroupError(f"cannot create the cgroup {_below(mount, path)}: {error.strerror}") from error


def _or_max(value: int) -> str:
    return "max" if value == UNLIMITED else str(value)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _write(path: Path, value: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        reason = "the usage is larger" if error.errno == errno.EBUSY else error.strerror
        raise CgroupError(f"cannot write {value!r} to {path}: {reason}") from error
