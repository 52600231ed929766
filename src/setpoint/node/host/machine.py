"""Reads the facts about this machine that a node reports: processors, memory, identifiers, file systems.

All functions block; call them through `BlockingPool`. Every reader takes the root directory below which it finds
`proc`, `sys` and `etc`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")
_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "i386": "386",
    "i686": "386",
    "ppc64le": "ppc64le",
    "riscv64": "riscv64",
    "s390x": "s390x",
    "loongarch64": "loong64",
    "mips64": "mips64le",
}
"""Go's names of architectures by the kernel's."""
_SYSTEM_UUIDS = ("sys/class/dmi/id/product_uuid", "proc/device-tree/system-id", "proc/device-tree/vm,uuid")
_MACHINE_IDS = ("etc/machine-id", "var/lib/dbus/machine-id")
_OS_RELEASES = ("etc/os-release", "usr/lib/os-release")


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The facts about a machine that do not change while it runs, except by hot-plugging."""

    cpus: int
    """The number of processors that are online."""
    memory_bytes: int
    swap_bytes: int
    machine_id: str
    system_uuid: str
    boot_id: str
    """An identifier that changes with every boot."""
    kernel: str
    """The release of the kernel, as `uname -r` prints it."""
    os_image: str
    """The name of the operating system for people, such as "Debian GNU/Linux 12 (bookworm)"."""
    architecture: str
    """The architecture by Go's name, such as amd64."""
    huge_pages: Mapping[int, int] = field(default_factory=dict)
    """Bytes in preallocated huge pages by the size of a page in bytes."""


class Filesystem(NamedTuple):
    """The usage of a file system."""

    device: int
    """The number of the device, which is equal for two directories of one file system."""
    capacity_bytes: int
    available_bytes: int
    """Bytes that are available to unprivileged processes."""
    used_bytes: int
    inodes: int
    """The number of inodes; 0 if the file system does not have a fixed number."""
    inodes_free: int


class Memory(NamedTuple):
    """The memory of the machine at one moment, in bytes."""

    total: int
    available: int
    """An estimate of the memory that can be allocated without swapping."""
    free: int
    swap_total: int
    swap_free: int

    @property
    def working_set(self) -> int:
        return max(0, self.total - self.available)


class Processes(NamedTuple):
    """The number of processes and threads on the machine."""

    running: int
    maximum: int


def read_machine(root: Path = ROOT) -> MachineFacts:
    """Read the facts about the machine. What cannot be read is empty or zero."""
    memory = read_memory(root)
    machine_id = _first(root, _MACHINE_IDS)
    return MachineFacts(
        _cpus(root),
        memory.total,
        memory.swap_total,
        machine_id,
        _first(root, _SYSTEM_UUIDS) or machine_id,
        _text(root / "proc/sys/kernel/random/boot_id"),
        _text(root / "proc/sys/kernel/osrelease"),
        _os_image(root),
        go_architecture(os.uname().machine),
        _huge_pages(root),
    )


def go_architecture(machine: str) -> str:
    """Return Go's name of an architecture."""
    return _ARCHITECTURES.get(machine, machine)


def read_filesystem(path: Path) -> Filesystem:
    """Measure the file system of a directory. Raise OSError."""
    found = os.statvfs(path)
    return Filesystem(
        os.stat(path).st_dev,
        found.f_blocks * found.f_frsize,
        found.f_bavail * found.f_frsize,
        (found.f_blocks - found.f_bfree) * found.f_frsize,
        found.f_files,
        found.f_favail,
    )


def read_memory(root: Path = ROOT) -> Memory:
    values: dict[str, int] = {}
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, amount = line.partition(":")
        number = amount.split()
        if number and number[0].isdecimal():
            values[name] = int(number[0]) * (1024 if number[1:] == ["kB"] else 1)
    free = values.get("MemFree", 0)
    return Memory(
        values.get("MemTotal", 0),
        values.get("MemAvailable", free),
        free,
        values.get("SwapTotal", 0),
        values.get("SwapFree", 0),
    )


def read_processes(root: Path = ROOT) -> Processes:
    """Read the number of threads that exist and the largest number that may."""
    limits = [_number(root / f"proc/sys/kernel/{name}") for name in ("pid_max", "threads-max")]
    fields = _text(root / "proc/loadavg").split()
    total = fields[3].partition("/")[2] if len(fields) > 3 else ""
    return Processes(int(total) if total.isdecimal() else 0, min((each for each in limits if each > 0), default=0))


def read_cpu_seconds(root: Path = ROOT) -> float:
    """Return the seconds that all processors together have been busy since the boot."""
    fields = _text(root / "proc/stat").partition("\n")[0].split()
    if not fields or fields[0] != "cpu":
        return 0.0
    user, nice, system, _idle, _wait, *rest = [int(each) for each in fields[1:]] + [0] * 8
    # The time of guests is a part of the user time already.
    return (user + nice + system + sum(rest[:3])) / os.sysconf("SC_CLK_TCK")


def read_boot_time(root: Path = ROOT) -> float:
    """Return the time of the boot in seconds since the epoch; 0 if it is not known."""
    for line in _text(root / "proc/stat").splitlines():
        name, _, value = line.partition(" ")
        if name == "btime" and value.strip().isdecimal():
            return float(value)
    return 0.0


def has_capability(number: int, root: Path = ROOT) -> bool:
    """Return whether this process has a capability, by the kernel's number."""
    for line in _text(root / "proc/self/status").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value.strip(), 16) >> number & 1)
    return False


def _cpus(root: Path) -> int:
    count = 0
    for part in _text(root / "sys/devices/system/cpu/online").split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            count += (int(last) if last.isdecimal() else int(first)) - int(first) + 1
    if not count:
        lines = _text(root / "proc/cpuinfo").splitlines()
        count = sum(line.partition(":")[0].strip() == "processor" for line in lines)
    return max(count, 1)


def _os_image(root: Path) -> str:
    for path in _OS_RELEASES:
        for line in _text(root / path).splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "PRETTY_NAME":
                return value.strip().strip("\"'")
    return "Linux"


def _huge_pages(root: Path) -> dict[int, int]:
    found = {}
    directory = root / "sys/kernel/mm/hugepages"
    for entry in sorted(directory.iterdir()) if directory.is_dir() else ():
        size = entry.name.removeprefix("hugepages-").removesuffix("kB")
        if size.isdecimal():
            found[int(size) * 1024] = int(size) * 1024 * _number(entry / "nr_hugepages")
    return found


def _first(root: Path, paths: tuple[str, ...]) -> str:
    return next((text for path in paths if (text := _text(root / path))), "")


def _text(path: Path) -> str:
    """Return the stripped content of a file; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip("\0 \n\t")
    except OSError:
        return ""


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.isdecimal() else 0
