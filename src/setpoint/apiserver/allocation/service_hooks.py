"""Write hooks of Services: addresses and ports are allocated and released with every write."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.apiserver.allocation.cluster_ips import AllocationError, ClusterIps, RangeFull
from setpoint.apiserver.allocation.node_ports import (
    NodePorts,
    PortChanges,
    allocate_on_create,
    allocate_on_update,
    allocated_ports,
)
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.write_hooks import Hooks
from setpoint.kinds.core.service_addresses import (
    init_ip_families,
    missing_cluster_ips,
    normalize_cluster_ips,
    patch_allocated_values,
    released_cluster_ips,
)
from setpoint.kinds.core.service_validation import NONE_IP, needs_cluster_ip
from setpoint.meta.errors import InternalError, Invalid
from setpoint.meta.field import invalid
from setpoint.meta.objects import Obj
from setpoint.store.interface import Op


class ServiceHooks(Hooks):
    """Allocates and releases the addresses and ports of Services."""

    contended = True

    def __init__(self, ips: ClusterIps, ports: NodePorts, families: Sequence[str]) -> None:
        """`families` are the IP families of the cluster (`IPv4`, `IPv6`), the default one first."""
        self.ips = ips
        self.ports = ports
        self.families = families

    async def start(self) -> None:
        await self.ports.cache.start()

    def stop(self) -> None:
        self.ports.cache.stop()

    async def before_create(self, ctx: RequestContext, obj: Obj) -> list[Op]:
        normalize_cluster_ips(obj, None)
        self._init_families(obj, None)
        operations = self._allocate_addresses(ctx, obj, None)
        changes = PortChanges(self.ports, ctx.dry_run)
        allocate_on_create(obj, changes)
        return operations + changes.operations(*_namespaced_name(obj))

    async def before_update(self, ctx: RequestContext, obj: Obj, old: Obj) -> list[Op]:
        if ctx.target.subresource:
            return []
        patch_allocated_values(obj, old)
        normalize_cluster_ips(obj, old)
        self._init_families(obj, old)
        operations = self._allocate_addresses(ctx, obj, old)
        changes = PortChanges(self.ports, ctx.dry_run)
        allocate_on_update(obj, old, changes)
        namespace, name = _namespaced_name(old)
        operations += changes.operations(namespace, name)
        if not ctx.dry_run:
            for ip in released_cluster_ips(obj, old):
                operations += self.ips.release(ip, namespace, name)
        return operations

    async def before_delete(self, ctx: RequestContext, old: Obj) -> list[Op]:
        spec, (namespace, name) = old.get("spec") or {}, _namespaced_name(old)
        operations: list[Op] = []
        for ip in allocated_addresses(old):
            operations += self.ips.release(ip, namespace, name)
        changes = PortChanges(self.ports, dry_run=False)
        for port in allocated_ports(spec):
            changes.release(port)
        return operations + changes.operations(namespace, name)

    def _init_families(self, obj: Obj, old: Obj | None) -> None:
        errs = init_ip_families(obj, old, self.families)
        if errs:
            raise Invalid.of("", "Service", obj["metadata"].get("name", ""), errs)

    def _allocate_addresses(self, ctx: RequestContext, obj: Obj, old: Obj | None) -> list[Op]:
        requests = missing_cluster_ips(obj, old)
        if not requests:
            return []
        spec, (namespace, name) = obj["spec"], _namespaced_name(obj)
        ips = [*spec.get("clusterIPs", ())]
        ips += [""] * (requests[-1].position + 1 - len(ips))
        operations: list[Op] = []
        for position, family, ip in requests:
            try:
                address = self.ips.check(ip, family, ctx.dry_run) if ip else self.ips.choose(family, ctx.dry_run)
            except RangeFull as error:
                text = f'failed to allocate a serviceIP for Service "{name}": {error}'
                raise InternalError.of(text) from None
            except AllocationError as error:
                cause = invalid("spec.clusterIPs", ips, f"failed to allocate IP {ip}: {error}")
                raise Invalid.of("", "Service", name, [cause]) from None
            ips[position] = ip or address
            if not ctx.dry_run:
                operations.append(self.ips.reserve(ctx, address, family, namespace, name))
        spec["clusterIPs"] = ips
        spec["clusterIP"] = ips[0]
        return operations


def allocated_addresses(service: Obj) -> list[str]:
    """Return the cluster IPs of a Service."""
    spec = service.get("spec") or {}
    ips = spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else [])
    return [ip for ip in ips if ip != NONE_IP] if needs_cluster_ip(spec) else []


def _namespaced_name(obj: Obj) -> tuple[str, str]:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta.get("name", "")
