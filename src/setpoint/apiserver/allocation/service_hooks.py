"""What happens around every write of a Service: addresses and ports are taken and given back."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.apiserver.allocation.cluster_ips import AllocationError, ClusterIps, RangeFull
from setpoint.apiserver.allocation.node_ports import NodePorts, PortChanges
from setpoint.apiserver.allocation.service_ports import held_ports, take_on_create, take_on_update
from setpoint.apiserver.call import Call
from setpoint.apiserver.watch_cache import Obj
from setpoint.apiserver.write_hooks import Hooks
from setpoint.kinds.core.service_addresses import (
    init_ip_families,
    missing_cluster_ips,
    normalize_cluster_ips,
    patch_allocated_values,
    released_cluster_ips,
)  # fmt: skip
from setpoint.kinds.core.service_types import NONE_IP, needs_cluster_ip
from setpoint.meta.errors import InternalError, Invalid
from setpoint.meta.field import invalid
from setpoint.store.interface import Op


class ServiceHooks(Hooks):
    contended = True

    def __init__(self, ips: ClusterIps, ports: NodePorts, families: Sequence[str]) -> None:
        """`families`: what the cluster has (`IPv4`, `IPv6`), its default first."""
        self.ips = ips
        self.ports = ports
        self.families = families

    async def start(self) -> None:
        await self.ports.cache.start()

    def stop(self) -> None:
        self.ports.cache.stop()

    async def before_create(self, call: Call, obj: Obj) -> list[Op]:
        normalize_cluster_ips(obj, None)
        self._init_families(obj, None)
        operations = self._take_addresses(call, obj, None)
        changes = PortChanges(self.ports, call.dry_run)
        take_on_create(obj, changes)
        return operations + changes.operations(*_place(obj))

    async def before_update(self, call: Call, obj: Obj, old: Obj) -> list[Op]:
        if call.target.subresource:
            return []
        patch_allocated_values(obj, old)
        normalize_cluster_ips(obj, old)
        self._init_families(obj, old)
        operations = self._take_addresses(call, obj, old)
        changes = PortChanges(self.ports, call.dry_run)
        take_on_update(obj, old, changes)
        namespace, name = _place(old)
        operations += changes.operations(namespace, name)
        if not call.dry_run:
            for ip in released_cluster_ips(obj, old):
                operations += self.ips.free(ip, namespace, name)
        return operations

    async def before_delete(self, call: Call, old: Obj) -> list[Op]:
        spec, (namespace, name) = old.get("spec") or {}, _place(old)
        operations: list[Op] = []
        for ip in held_addresses(old):
            operations += self.ips.free(ip, namespace, name)
        changes = PortChanges(self.ports, dry_run=False)
        for port in held_ports(spec):
            changes.give_back(port)
        return operations + changes.operations(namespace, name)

    def _init_families(self, obj: Obj, old: Obj | None) -> None:
        errs = init_ip_families(obj, old, self.families)
        if errs:
            raise Invalid.of("", "Service", obj["metadata"].get("name", ""), errs)

    def _take_addresses(self, call: Call, obj: Obj, old: Obj | None) -> list[Op]:
        requests = missing_cluster_ips(obj, old)
        if not requests:
            return []
        spec, (namespace, name) = obj["spec"], _place(obj)
        ips = [*spec.get("clusterIPs", ())]
        ips += [""] * (requests[-1].position + 1 - len(ips))
        operations: list[Op] = []
        for position, family, ip in requests:
            try:
                address = self.ips.check(ip, family, call.dry_run) if ip else self.ips.choose(family, call.dry_run)
            except RangeFull as error:
                text = f'failed to allocate a serviceIP for Service "{name}": {error}'
                raise InternalError.of(text) from None
            except AllocationError as error:
                cause = invalid("spec.clusterIPs", ips, f"failed to allocate IP {ip}: {error}")
                raise Invalid.of("", "Service", name, [cause]) from None
            ips[position] = ip or address
            if not call.dry_run:
                operations.append(self.ips.reserve(call, address, family, namespace, name))
        spec["clusterIPs"] = ips
        spec["clusterIP"] = ips[0]
        return operations


def held_addresses(service: Obj) -> list[str]:
    spec = service.get("spec") or {}
    ips = spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else [])
    return [ip for ip in ips if ip != NONE_IP] if needs_cluster_ip(spec) else []


def _place(obj: Obj) -> tuple[str, str]:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta.get("name", "")
