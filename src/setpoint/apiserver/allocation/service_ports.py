"""Which node ports a Service takes and gives back when it is created, changed or deleted."""

from __future__ import annotations

from setpoint.apiserver.allocation.cluster_ips import AllocationError
from setpoint.apiserver.allocation.node_ports import PortChanges
from setpoint.apiserver.watch_cache import Obj
from setpoint.kinds.core.service_types import (
    Spec,
    has_node_ports,
    needs_health_check_port,
    needs_node_ports,
    node_ports,
)  # fmt: skip
from setpoint.meta.errors import InternalError, Invalid, PlainServerError
from setpoint.meta.field import invalid


def held_ports(spec: Spec) -> set[int]:
    """Everything that is reserved for this Service."""
    ports = node_ports(spec)
    if needs_health_check_port(spec) and spec.get("healthCheckNodePort"):
        ports.add(spec["healthCheckNodePort"])
    return ports


def take_on_create(obj: Obj, changes: PortChanges) -> None:
    """Ports of one number share a node port, whatever their protocols, unless they ask for different ones."""
    spec = obj["spec"]
    if has_node_ports(spec):
        chosen: dict[int, int] = {}
        ports = spec.get("ports") or []
        for i, port in enumerate(ports):
            asked, number = port.get("nodePort", 0), port.get("port", 0)
            if not asked and not needs_node_ports(spec):
                continue
            if number not in chosen:
                wanted = next((p["nodePort"] for p in ports if p.get("port", 0) == number and p.get("nodePort")), 0)
                if wanted:
                    _take(obj, i, wanted, changes)
                chosen[number] = port["nodePort"] = wanted or _take_any(changes)
            elif not asked:
                port["nodePort"] = chosen[number]
            elif asked != chosen[number]:
                _take(obj, i, asked, changes)
    if needs_health_check_port(spec):
        _take_health_check(spec, changes)


def take_on_update(obj: Obj, old: Obj, changes: PortChanges) -> None:
    spec, old_spec = obj["spec"], old.get("spec") or {}
    if has_node_ports(spec):
        _update(obj, node_ports(old_spec), changes)
    elif has_node_ports(old_spec):
        for port in node_ports(old_spec):
            changes.give_back(port)
    needed, needs = needs_health_check_port(old_spec), needs_health_check_port(spec)
    if needs and not needed:
        _take_health_check(spec, changes)
    elif needed and not needs and old_spec.get("healthCheckNodePort"):
        changes.give_back(old_spec["healthCheckNodePort"])


def _update(obj: Obj, before: set[int], changes: PortChanges) -> None:
    spec = obj["spec"]
    taken: set[int] = set()
    seen: set[tuple[str, int]] = set()
    for i, port in enumerate(spec.get("ports") or ()):
        asked = port.get("nodePort", 0)
        if not asked and not needs_node_ports(spec):
            continue
        if not asked:
            port["nodePort"] = _take_any(changes)
        elif asked not in before and asked not in taken:
            _take(obj, i, asked, changes)
            taken.add(asked)
        key = (port.get("protocol", ""), port["nodePort"])
        if key in seen:
            raise PlainServerError(f"duplicate nodePort: {{{key[0]} {key[1]}}}")
        seen.add(key)
    for port_number in before - node_ports(spec):
        changes.give_back(port_number)


def _take(obj: Obj, index: int, port: int, changes: PortChanges) -> None:
    try:
        changes.take(port)
    except AllocationError as error:
        cause = invalid(f"spec.ports[{index}].nodePort", port, str(error))
        raise Invalid.of("", "Service", obj["metadata"].get("name", ""), [cause]) from None


def _take_any(changes: PortChanges) -> int:
    try:
        return changes.take_any()
    except AllocationError as error:
        raise InternalError.of(f"failed to allocate a nodePort: {error}") from None


def _take_health_check(spec: Spec, changes: PortChanges) -> None:
    asked = spec.get("healthCheckNodePort", 0)
    try:
        if asked:
            changes.take(asked)
        else:
            spec["healthCheckNodePort"] = changes.take_any()
    except AllocationError as error:
        what = f"requested HealthCheck NodePort {asked}" if asked else "a HealthCheck NodePort 0"
        raise InternalError.of(f"failed to allocate {what}: {error}") from None
