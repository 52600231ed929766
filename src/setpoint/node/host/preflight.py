"""Checks whether this machine can run containers, and says how to install what is missing."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from setpoint.node.host.cgroup_files import CgroupError, find_cgroups
from setpoint.node.host.containerd_config import DEFAULT_CNI_DIRECTORIES, ContainerdConfigError, parse_version
from setpoint.node.host.containerd_process import MINIMUM_VERSION
from setpoint.node.host.machine import ROOT, has_capability, read_memory

_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CAPABILITIES = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_KILL": 5,
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_CHROOT": 18,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_MKNOD": 27,
}
_SYS_RESOURCE = 24
_OPENAT2, _OPEN_TREE = 437, 428
"""Numbers of system calls, which are the same on all architectures."""
_CNI_PLUGINS = ("loopback", "ptp", "host-local")
_MISSING_CAPABILITY = "containers cannot be isolated without it"


class Outcome(Enum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    outcome: Outcome
    message: str
    """A sentence: what was found, and what follows from it."""
    packages: tuple[str, ...] = ()
    """Packages that provide what is missing, by Debian's names."""


class Options(NamedTuple):
    """The settings of the checks."""

    port: int = 10250
    own_containerd: bool = True
    """Whether the agent runs containerd itself; otherwise the programs that it needs are not checked."""
    containerd: str = "containerd"
    cni_directories: tuple[str, ...] = DEFAULT_CNI_DIRECTORIES
    root: Path = ROOT
    """The directory below which `proc` and `sys` are found."""
    run: Callable[[Sequence[str]], str | None] | None = None
    """Runs a program and returns its output, or None if it is not there; by default the machine's programs."""


_FEDORA_PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": "containernetworking-plugins",
    "iproute2": "iproute",
    "nftables": "nftables",
    "conntrack": "conntrack-tools",
    "mount": "util-linux",
}
"""Fedora's names of packages by Debian's."""


def checks(options: Options | None = None) -> list[Check]:
    """Run all checks. Blocks."""
    options = options or Options()
    found = [*_privileges(options)]
    if options.own_containerd:
        found += [*_runtime(options), _cni(options)]
    found += [
        _cgroups(options),
        _overlay(options),
        _forwarding(options),
        _kernel_calls(),
        _propagation(options),
        _swap(options),
        *_network_programs(options),
        _port(options.port),
    ]
    return found


def install_command(found: Iterable[Check], *, fedora: bool | None = None) -> str:
    """Return the command that installs all missing packages; empty if none is missing. By default, the distribution
    is found out by the program that it has."""
    packages = sorted({name for check in found for name in check.packages})
    if not packages:
        return ""
    if fedora is None:
        fedora = shutil.which("apt-get", path=_SEARCH_PATH) is None and bool(shutil.which("dnf", path=_SEARCH_PATH))
    if fedora:
        return f"dnf install -y {' '.join(sorted({_FEDORA_PACKAGES[name] for name in packages}))}"
    return f"apt-get install -y --no-install-recommends {' '.join(packages)}"


def passed(found: Iterable[Check]) -> bool:
    return all(check.outcome is not Outcome.FAILED for check in found)


# -- checks ------------------------------------------------------------------------------------------------------------


def _ok(name: str, message: str) -> Check:
    return Check(name, Outcome.OK, message)


def _warning(name: str, message: str, *packages: str) -> Check:
    return Check(name, Outcome.WARNING, message, packages)


def _failed(name: str, message: str, *packages: str) -> Check:
    return Check(name, Outcome.FAILED, message, packages)


def _privileges(options: Options) -> list[Check]:
    if os.geteuid() != 0:
        return [_failed("privileges", "The agent must run as root: run the command with sudo.")]
    missing = [name for name, number in _CAPABILITIES.items() if not has_capability(number, options.root)]
    found = (
        [_failed("privileges", f"Root does not have {', '.join(missing)}; {_MISSING_CAPABILITY}.")]
        if missing
        else [_ok("privileges", "The agent runs as root with the capabilities that it needs.")]
    )
    if not has_capability(_SYS_RESOURCE, options.root):
        text = "Root does not have CAP_SYS_RESOURCE: the OOM scores of Pods can be raised, but not lowered."
        found.append(_warning("oom scores", text))
    return found


def _runtime(options: Options) -> list[Check]:
    run = options.run or _run
    output = run([options.containerd, "--version"])
    least = ".".join(map(str, MINIMUM_VERSION))
    if output is None:
        found = [_failed("containerd", f"{options.containerd} is not installed.", "containerd")]
    else:
        try:
            version = parse_version(output)
            text = ".".join(map(str, version))
            found = [
                _ok("containerd", f"containerd {text} is installed.")
                if version >= MINIMUM_VERSION
                else _failed("containerd", f"containerd {text} is too old; {least} or later is required.", "containerd")
            ]
        except ContainerdConfigError:
            found = [_failed("containerd", f"{options.containerd} does not print its version.", "containerd")]
    output = run(["runc", "--version"])
    found.append(
        _failed("runc", "runc is not installed.", "runc")
        if output is None
        else _ok("runc", f"{output.partition(chr(10))[0].replace(' version', '') or 'runc'} is installed.")
    )
    if output is not None and run(["ctr", "--version"]) is None:
        found.append(_failed("ctr", "ctr, a program of containerd, is not installed.", "containerd"))
    return found


def _cni(options: Options) -> Check:
    for directory in options.cni_directories:
        if all(os.access(Path(directory) / name, os.X_OK) for name in _CNI_PLUGINS):
            return _ok("network plugins", f"The CNI plugins are in {directory}.")
    present = {name for name in _CNI_PLUGINS for each in options.cni_directories if (Path(each) / name).exists()}
    missing = [name for name in _CNI_PLUGINS if name not in present]
    places = ", ".join(options.cni_directories)
    if not missing:
        return _failed(
            "network plugins", f"The CNI plugins must be in one of the directories {places}, not in several."
        )
    return _failed(
        "network plugins",
        f"The CNI plugins {', '.join(missing)} are in none of {places}.",
        "containernetworking-plugins",
    )


def _cgroups(options: Options) -> Check:
    try:
        tree = find_cgroups(_text(options.root / "proc/self/mounts"))
    except CgroupError:
        return _failed("cgroups", "No cgroup file system is mounted at /sys/fs/cgroup; resources cannot be limited.")
    for needed, directory in (("memory", tree.memory_directory("/")), ("cpu", tree.cpu_directory("/"))):
        if directory is None:
            return _failed("cgroups", f"The {needed} controller of cgroups is not available.")
    if tree.version == 2:
        available = _text(tree.directories("/")[0] / "cgroup.controllers").split()
        missing = [name for name in ("cpu", "memory", "pids") if name not in available]
        if missing:
            return _failed("cgroups", f"The {', '.join(missing)} controllers of cgroups are not available.")
        return _ok("cgroups", "Cgroups of version 2 are mounted.")
    return _ok("cgroups", "Cgroups of version 1 are mounted.")


def _overlay(options: Options) -> Check:
    # A kernel with modules loads overlay when it is mounted first.
    if "overlay" in _text(options.root / "proc/filesystems").split():
        return _ok("overlayfs", "The kernel has overlayfs.")
    release = os.uname().release
    if any((options.root / "lib/modules" / release / "kernel/fs/overlayfs").glob("overlay.ko*")):
        return _ok("overlayfs", "The kernel has overlayfs as a module.")
    return _failed("overlayfs", "The kernel does not have overlayfs, on which images are mounted: modprobe overlay.")


def _forwarding(options: Options) -> Check:
    if _text(options.root / "proc/sys/net/ipv4/ip_forward") == "1":
        return _ok("ip forwarding", "IPv4 packets are forwarded.")
    return _warning(
        "ip forwarding",
        "IPv4 packets are not forwarded; the agent enables net.ipv4.ip_forward. Make it permanent in /etc/sysctl.d.",
    )


def _kernel_calls() -> Check:
    missing = [name for name, number in (("openat2", _OPENAT2), ("open_tree", _OPEN_TREE)) if not _has_call(number)]
    if missing:
        return _failed(
            "kernel",
            f"The kernel does not allow {' and '.join(missing)}; Linux 5.6 or later is needed for safe mounts.",
        )
    return _ok("kernel", "The kernel has the system calls for safe mounts.")


def _has_call(number: int) -> bool:
    library = ctypes.CDLL(None, use_errno=True)
    # Invalid arguments: a call that exists rejects them.
    if library.syscall(number, -1, None, None, 0) >= 0:
        return True
    return ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM)


def _propagation(options: Options) -> Check:
    for line in _text(options.root / "proc/self/mountinfo").splitlines():
        fields = line.split(" ")
        if len(fields) > 6 and fields[4] == "/":
            if any(each.startswith("shared:") for each in fields[6 : fields.index("-") if "-" in fields else None]):
                return _ok("mount propagation", "Mounts of / are shared.")
            break
    return _warning(
        "mount propagation",
        "Mounts of / are private: host paths with mount propagation are refused. Run: mount --make-rshared /",
    )


def _swap(options: Options) -> Check:
    if read_memory(options.root).swap_total:
        return _warning(
            "swap", "Swap is on: memory limits do not bound the memory of Pods exactly. Turn it off with: swapoff -a"
        )
    return _ok("swap", "Swap is off.")


def _network_programs(options: Options) -> list[Check]:
    run, found = options.run or _run, []
    for program, argument, package, purpose in (
        ("ip", "-V", "iproute2", "routes to Pods cannot be set"),
        ("nft", "--version", "nftables", "Services, host ports and network policies do not work"),
        ("conntrack", "--version", "conntrack", "connections to removed endpoints of Services are not ended"),
    ):
        if run([program, argument]) is None:
            found.append(_warning(program, f"{program} is not installed: {purpose}.", package))
        else:
            found.append(_ok(program, f"{program} is installed."))
    return found


def _port(port: int) -> Check:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError as error:
            return _failed(
                "port", f"Port {port}, on which the API server reaches the node, is not free: {error.strerror}."
            )
    return _ok("port", f"Port {port} is free.")


def _run(command: Sequence[str]) -> str | None:
    path = shutil.which(command[0], path=os.environ.get("PATH", "") + ":" + _SEARCH_PATH)
    if path is None:
        return None
    try:
        done = subprocess.run([path, *command[1:]], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
