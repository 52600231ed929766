"""Sysctls of Pods: which of them a node allows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from setpoint.meta.goformat import quote

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

FORBIDDEN_REASON = "SysctlForbidden"
"""The reason with which a Pod is rejected."""

_SAFE: dict[str, tuple[int, int]] = {
    "kernel.shm_rmid_forced": (0, 0),
    "net.ipv4.ip_local_port_range": (0, 0),
    "net.ipv4.tcp_syncookies": (0, 0),
    "net.ipv4.ping_group_range": (0, 0),
    "net.ipv4.ip_unprivileged_port_start": (0, 0),
    "net.ipv4.ip_local_reserved_ports": (3, 16),
    "net.ipv4.tcp_keepalive_time": (4, 5),
    "net.ipv4.tcp_fin_timeout": (4, 6),
    "net.ipv4.tcp_keepalive_intvl": (4, 5),
    "net.ipv4.tcp_keepalive_probes": (4, 5),
    "net.ipv4.tcp_rmem": (4, 15),
    "net.ipv4.tcp_wmem": (4, 15),
    "net.ipv4.tcp_slow_start_after_idle": (4, 15),
    "net.ipv4.tcp_notsent_lowat": (4, 6),
}
"""Sysctls that affect nothing outside of their Pod, with the first version of the kernel where that is so."""

_IPC, _NET, _USER = "IPC", "Net", "User"
_IPC_NAMES = frozenset(
    f"kernel.{name}"
    for name in ("sem", "shmall", "shmmax", "shmmni", "shm_rmid_forced", "shm", "msgmax", "msgmnb", "msgmni", "msg")
)
_PREFIXES = {"net.": _NET, "fs.mqueue.": _IPC, "user.": _USER}
_SEPARATOR = re.compile("[./]")
_VERSION = re.compile(r"(\d+)\.(\d+)")


def normalized(name: str) -> str:
    """Return the name of a sysctl with dots as separators. The first separator of a name decides whether dots or
    slashes separate its parts."""
    first = _SEPARATOR.search(name)
    return name.translate({ord("/"): ".", ord("."): "/"}) if first is not None and first[0] == "/" else name


def safe_sysctls(kernel_version: str) -> tuple[str, ...]:
    """Return the sysctls that every Pod may set. `kernel_version` is as `uname -r` prints it."""
    found = _VERSION.match(kernel_version)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    return tuple(name for name, since in _SAFE.items() if version >= since)


def forbidden_sysctls(pod: Pod, allowed: Iterable[str]) -> str:
    """Return the message with which a Pod is rejected for its sysctls; empty if all are allowed. `allowed` contains
    names, and patterns that end in `*`."""
    spec = pod["spec"]
    sysctls = (spec.get("securityContext") or {}).get("sysctls") or ()
    if not sysctls:
        return ""
    patterns = [normalized(each) for each in allowed]
    shared = {
        _NET: bool(spec.get("hostNetwork")),
        _IPC: bool(spec.get("hostIPC")),
        _USER: spec.get("hostUsers") is not False,
    }
    for sysctl in sysctls:
        name = normalized(sysctl["name"])
        pattern = _matching(name, patterns)
        if pattern is None:
            return f"forbidden sysctl: {quote(name)} not allowlisted"
        namespace = _namespace(pattern)
        if shared.get(namespace):
            return f"forbidden sysctl: {quote(name)} not allowed with host {namespace} enabled"
    return ""


def _matching(name: str, patterns: Sequence[str]) -> str | None:
    """Return the name, or else the prefix, of the list that allows a sysctl; None if it is not allowed."""
    if name in patterns:
        return name
    prefixes = (pattern.partition("*")[0] for pattern in patterns if "*" in pattern)
    return next((prefix for prefix in prefixes if name.startswith(prefix)), None)


def _namespace(name: str) -> str:
    if name in _IPC_NAMES:
        return _IPC
    return next((namespace for prefix, namespace in _PREFIXES.items() if name.startswith(prefix)), "")
