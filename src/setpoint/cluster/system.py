"""What a cluster takes from the machine: its clock, its randomness, its name and its address."""

from __future__ import annotations

import socket

from setpoint.system import RandomIds, SystemClock, hostname

__all__ = ["RandomIds", "SystemClock", "hostname", "outward_address"]


def outward_address(family: int = 4) -> str:
    """The address that this machine has towards others; empty if it has none but its own."""
    kind, far = (socket.AF_INET, "192.0.2.1") if family == 4 else (socket.AF_INET6, "2001:db8::1")
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.connect((far, 9))  # chooses a route; nothing is sent
            found = probe.getsockname()[0]
    except OSError:
        return ""
    return "" if found.startswith("127.") or found in ("::1", "0.0.0.0", "::") else str(found)
