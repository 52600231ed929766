"""Node ports: each allocated port is a key in the store that names its Service."""

from __future__ import annotations

import orjson

from setpoint.apiserver.allocation.cluster_ips import AllocationError, Bands, RangeFull, port_bands
from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.watch_cache import ResourceCache
from setpoint.kinds.core.service_validation import (
    has_node_ports,
    needs_health_check_port,
    needs_node_ports,
    node_ports,
)
from setpoint.meta.clock import Ids
from setpoint.meta.errors import InternalError, Invalid, PlainServerError
from setpoint.meta.field import invalid
from setpoint.meta.objects import Obj
from setpoint.store.interface import Delete, Op, Put, Store

PREFIX = "ranges/nodeports/"
_DRY_RUN_FIRST = 32769


class NodePorts:
    """The allocated node ports, as the store has them."""

    def __init__(self, store: Store, ids: Ids, text: str) -> None:
        """`text` is the range, such as `30000-32767`."""
        low, _, high = text.partition("-")
        self.bands: Bands = port_bands(int(low), int(high))
        self.text = text
        self.cache = ResourceCache(PREFIX, store, namespaced=False)
        self._ids = ids

    def entry(self, port: int) -> Entry | None:
        return self.cache.get(f"{PREFIX}{port}")

    def choose(self, also_allocated: set[int]) -> int | None:
        return self.bands.choose(
            self._ids,
            lambda port: port in also_allocated or self.entry(port) is not None,
            lambda: also_allocated | {int(entry.key[len(PREFIX) :]) for entry in self.cache.scan()},
        )


def reservation(port: int, namespace: str, name: str) -> Put:
    return Put(f"{PREFIX}{port}", orjson.dumps({"namespace": namespace, "name": name}), 0)


def belongs_to(entry: Entry, namespace: str, name: str) -> bool:
    return bool(entry.obj == {"namespace": namespace, "name": name})


class PortChanges:
    """The ports that one write of a Service allocates and releases; nothing happens before `operations` are
    committed."""

    def __init__(self, ports: NodePorts, dry_run: bool) -> None:
        self._ports = ports
        self._dry_run = dry_run
        self._allocated: set[int] = set()
        self._released: set[int] = set()

    def allocate(self, port: int) -> None:
        """Allocate this port. Raises AllocationError."""
        if not self._dry_run and port not in self._ports.bands:
            text = f"provided port is not in the valid range. The range of valid ports is {self._ports.text}"
            raise AllocationError(text)
        if port in self._allocated or self._ports.entry(port) is not None:
            raise AllocationError("provided port is already allocated")
        self._allocated.add(port)

    def allocate_any(self) -> int:
        """Allocate a free port. Raises RangeFull."""
        if self._dry_run:
            port: int | None = max(self._allocated, default=_DRY_RUN_FIRST - 1) + 1
        else:
            port = self._ports.choose(self._allocated)
        if port is None:
            raise RangeFull
        self._allocated.add(port)
        return port

    def release(self, port: int) -> None:
        self._released.add(port)

    def operations(self, namespace: str, name: str) -> list[Op]:
        if self._dry_run:
            return []
        operations: list[Op] = [reservation(port, namespace, name) for port in sorted(self._allocated)]
        for port in sorted(self._released - self._allocated):
            entry = self._ports.entry(port)
            if entry is not None and belongs_to(entry, namespace, name):
                operations.append(Delete(entry.key, entry.revision))
        return operations


def allocated_ports(spec: Obj) -> set[int]:
    """Return all ports that are allocated for this Service."""
    ports = node_ports(spec)
    if needs_health_check_port(spec) and spec.get("healthCheckNodePort"):
        ports.add(spec["healthCheckNodePort"])
    return ports


def allocate_on_create(obj: Obj, changes: PortChanges) -> None:
    """Allocate the ports of a new Service. Ports of the same number share a node port across protocols, unless they
    request different ones."""
    spec = obj["spec"]
    if has_node_ports(spec):
        chosen: dict[int, int] = {}
        ports = spec.get("ports") or []
        for i, port in enumerate(ports):
            requested, number = port.get("nodePort", 0), port.get("port", 0)
            if not requested and not needs_node_ports(spec):
                continue
            if number not in chosen:
                wanted = next((p["nodePort"] for p in ports if p.get("port", 0) == number and p.get("nodePort")), 0)
                if wanted:
                    _allocate(obj, i, wanted, changes)
                chosen[number] = port["nodePort"] = wanted or _allocate_any(changes)
            elif not requested:
                port["nodePort"] = chosen[number]
            elif requested != chosen[number]:
                _allocate(obj, i, requested, changes)
    if needs_health_check_port(spec):
        _allocate_health_check_port(spec, changes)


def allocate_on_update(obj: Obj, old: Obj, changes: PortChanges) -> None:
    spec, old_spec = obj["spec"], old.get("spec") or {}
    if has_node_ports(spec):
        _update_ports(obj, node_ports(old_spec), changes)
    elif has_node_ports(old_spec):
        for port in node_ports(old_spec):
            changes.release(port)
    needed, needs = needs_health_check_port(old_spec), needs_health_check_port(spec)
    if needs and not needed:
        _allocate_health_check_port(spec, changes)
    elif needed and not needs and old_spec.get("healthCheckNodePort"):
        changes.release(old_spec["healthCheckNodePort"])


def _update_ports(obj: Obj, before: set[int], changes: PortChanges) -> None:
    spec = obj["spec"]
    allocated: set[int] = set()
    seen: set[tuple[str, int]] = set()
    for i, port in enumerate(spec.get("ports") or ()):
        requested = port.get("nodePort", 0)
        if not requested and not needs_node_ports(spec):
            continue
        if not requested:
            port["nodePort"] = _allocate_any(changes)
        elif requested not in before and requested not in allocated:
            _allocate(obj, i, requested, changes)
            allocated.add(requested)
        key = (port.get("protocol", ""), port["nodePort"])
        if key in seen:
            raise PlainServerError(f"duplicate nodePort: {{{key[0]} {key[1]}}}")
        seen.add(key)
    for port_number in before - node_ports(spec):
        changes.release(port_number)


def _allocate(obj: Obj, index: int, port: int, changes: PortChanges) -> None:
    try:
        changes.allocate(port)
    except AllocationError as error:
        cause = invalid(f"spec.ports[{index}].nodePort", port, str(error))
        raise Invalid.of("", "Service", obj["metadata"].get("name", ""), [cause]) from None


def _allocate_any(changes: PortChanges) -> int:
    try:
        return changes.allocate_any()
    except AllocationError as error:
        raise InternalError.of(f"failed to allocate a nodePort: {error}") from None


def _allocate_health_check_port(spec: Obj, changes: PortChanges) -> None:
    requested = spec.get("healthCheckNodePort", 0)
    try:
        if requested:
            changes.allocate(requested)
        else:
            spec["healthCheckNodePort"] = changes.allocate_any()
    except AllocationError as error:
        what = f"requested HealthCheck NodePort {requested}" if requested else "a HealthCheck NodePort 0"
        raise InternalError.of(f"failed to allocate {what}: {error}") from None
