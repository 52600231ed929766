"""The ports of its node that a Pod asks for, and when two Pods cannot have theirs on one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from setpoint.kinds.core.podspec.aggregate import is_sidecar

HostPort = tuple[str, str, int]
"""Protocol, address, port."""
EVERYWHERE = "0.0.0.0"


def host_ports(spec: Mapping[str, Any]) -> tuple[HostPort, ...]:
    """Return the host ports of all containers that run as long as the Pod."""
    return tuple(
        (port.get("protocol") or "TCP", port.get("hostIP") or EVERYWHERE, int(port["hostPort"]))
        for container in _lasting(spec)
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


def _lasting(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from (container for container in spec.get("initContainers") or () if is_sidecar(container))
    yield from spec.get("containers") or ()


def ports_conflict(wanted: HostPort, used: HostPort) -> bool:
    protocol, address, port = wanted
    if (protocol, port) != (used[0], used[2]):
        return False
    return EVERYWHERE in (address, used[1]) or address == used[1]
