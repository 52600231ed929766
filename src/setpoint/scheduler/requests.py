"""What a Pod takes of a node, as the scheduler counts it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from setpoint.kinds.core.pod_totals import pod_requests
from setpoint.kinds.core.podspec.aggregate import is_sidecar

Obj = dict[str, Any]

_GUESSED = {"cpu": "100m", "memory": "200Mi"}
"""For containers that do not say, when nodes are compared: nothing is for nothing."""

HostPort = tuple[str, str, int]
"""Protocol, address, port."""
EVERYWHERE = "0.0.0.0"


def nonzero_requests(pod: Mapping[str, Any], requests: Mapping[str, str]) -> Mapping[str, str]:
    """`requests` of the Pod with a guess for every container that names none."""
    level = (pod["spec"].get("resources") or {}).get("requests") or {}
    guessed = {name: text for name, text in _GUESSED.items() if not level or name not in requests}
    if not guessed:
        return requests

    def filled(container: Obj) -> Obj:
        resources = container.get("resources") or {}
        return {**container, "resources": {**resources, "requests": {**guessed, **(resources.get("requests") or {})}}}

    spec = pod["spec"]
    complete = {
        **spec,
        "containers": [filled(container) for container in spec.get("containers") or ()],
        "initContainers": [filled(container) for container in spec.get("initContainers") or ()],
    }
    return pod_requests({**pod, "spec": complete})


def host_ports(spec: Mapping[str, Any]) -> tuple[HostPort, ...]:
    """Of all containers that run as long as the Pod does."""
    return tuple(
        (port.get("protocol") or "TCP", port.get("hostIP") or EVERYWHERE, int(port["hostPort"]))
        for container in _lasting(spec)
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


def _lasting(spec: Mapping[str, Any]) -> Iterator[Obj]:
    yield from (container for container in spec.get("initContainers") or () if is_sidecar(container))
    yield from spec.get("containers") or ()


def ports_conflict(wanted: HostPort, used: HostPort) -> bool:
    protocol, address, port = wanted
    if (protocol, port) != (used[0], used[2]):
        return False
    return EVERYWHERE in (address, used[1]) or address == used[1]
