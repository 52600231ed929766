"""The values of CRI's enumerations. The messages carry them as integers."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class PortProtocol(IntEnum):
    """The protocol of a port mapping."""

    TCP = 0
    UDP = 1
    SCTP = 2


class MountPropagation(IntEnum):
    """The propagation of mounts between a volume on the host and in the container."""

    PRIVATE = 0
    HOST_TO_CONTAINER = 1
    BIDIRECTIONAL = 2


class NamespaceMode(IntEnum):
    """The scope of a namespace. TARGET is the namespace of another container of the Pod."""

    POD = 0
    CONTAINER = 1
    NODE = 2
    TARGET = 3


class SupplementalGroupsPolicy(IntEnum):
    """Whether a process has the groups of the image's /etc/group besides those of the request."""

    MERGE = 0
    STRICT = 1


class ProfileType(IntEnum):
    """The kind of a seccomp or AppArmor profile."""

    RUNTIME_DEFAULT = 0
    UNCONFINED = 1
    LOCALHOST = 2


class SandboxState(IntEnum):
    """The state of a Pod sandbox."""

    READY = 0
    NOT_READY = 1


class ContainerState(IntEnum):
    """The state of a container."""

    CREATED = 0
    RUNNING = 1
    EXITED = 2
    UNKNOWN = 3


class ContainerEventType(IntEnum):
    """The type of an event of GetContainerEvents."""

    CREATED = 0
    STARTED = 1
    STOPPED = 2
    DELETED = 3


class CgroupDriver(IntEnum):
    """The cgroup driver of the runtime."""

    SYSTEMD = 0
    CGROUPFS = 1


_NAMED = (
    "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT STOP SYS TERM TRAP "
    "TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ RTMIN"
)
_REAL_TIME = [f"RTMIN+{n}" for n in range(1, 16)] + [f"RTMAX-{n}" for n in range(14, 0, -1)] + ["RTMAX"]

STOP_SIGNALS: Final = {f"SIG{name}": number for number, name in enumerate(_NAMED.split() + _REAL_TIME, start=1)}
"""The numbers of stop signals by the names that Pods use, such as SIGTERM and SIGRTMIN+1. The number 0, without a name,
leaves the choice to the runtime. The numbers are those of CRI, not those of the kernel."""
