"""Repair of the allocations of Services: IPAddress objects of cluster IPs, and reservations of node ports.

Both are written in the transaction of the Service. There is something to repair only if an allocation was changed by
hand, or if part of a backup was restored.
"""

from __future__ import annotations

from setpoint.apiserver.allocation.cluster_ips import ClusterIps, belongs_to, family_label, is_managed
from setpoint.apiserver.allocation.node_ports import PREFIX, NodePorts, allocated_ports, reservation
from setpoint.apiserver.allocation.service_hooks import allocated_addresses
from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.internal_writes import delete, internal_context
from setpoint.apiserver.upkeep.loop import KeyedLoop, log
from setpoint.kinds.core.addresses import parse_sloppy
from setpoint.meta.errors import Conflict
from setpoint.meta.objects import Obj
from setpoint.meta.times import parse_time
from setpoint.store.interface import CompareFailed, Delete, Op

ADDRESS_REPAIR_INTERVAL = 180.0
_ORPHAN_GRACE, _UNUSED_GRACE = 60.0, 5.0
_GROUP, _PLURAL = "networking.k8s.io", "ipaddresses"
PORT_REPAIR_INTERVAL = 180.0
_RUNS_BEFORE_CLEANUP = 3
"""Number of consecutive runs that must find a reservation wrong before it is changed, as upstream. Reservations and
Services are read from two caches, one of which may lag."""


class AddressRepair:
    """Reconciles Services and IPAddress objects. Keys with a slash are Services, others are addresses."""

    def __init__(self, api: ApiResources, ips: ClusterIps) -> None:
        self._api = api
        self._ips = ips
        self._services = api.registry("", "services")
        self.loop = KeyedLoop("cluster IPs", api.clock, self.sync)
        self.loop.follow(self._services.cache, lambda entry: [self._service_key(entry)])
        self.loop.follow(ips.addresses.cache, self._address_keys)

    def _service_key(self, entry: Entry) -> str:
        return entry.key[len(self._services.cache.prefix) :]

    def _address_keys(self, entry: Entry) -> list[str]:
        return [entry.obj["metadata"]["name"]]

    async def recheck(self) -> None:
        self.loop.due(*(self._service_key(entry) for entry in self._services.cache.scan()))
        self.loop.due(*(entry.obj["metadata"]["name"] for entry in self._ips.addresses.cache.scan()))

    async def sync(self, key: str) -> float | None:
        if "/" in key:
            namespace, _, name = key.partition("/")
            service = self._services.cache.get(self._services.key(namespace, name))
            if service is not None:
                for ip in allocated_addresses(service.obj):
                    await self._repair_address(service.obj, ip)
            return None
        entry = self._ips.entry(key)
        return await self._collect_address(entry) if entry is not None else None

    async def _repair_address(self, service: Obj, ip: str) -> None:
        meta, parsed = service["metadata"], parse_sloppy(ip)
        if parsed is None:
            return
        address, family = str(parsed), f"IPv{parsed.version}"
        if not any(int(parsed) in known.bands for known in self._ips.ranges(family, ready=False)):
            return  # addresses outside of all ranges are never allocated
        entry = self._ips.entry(address)
        if entry is not None:
            if belongs_to(entry.obj, meta["namespace"], meta["name"]):
                if is_managed(entry.obj) and family_label(entry.obj) == family:
                    return
            elif self._parent_exists(entry.obj):
                where = f"{meta['namespace']}/{meta['name']}"
                log.warning("the cluster IP %s is allocated to several services, among them %s", ip, where)
                return
            if not await delete(self._api, _GROUP, _PLURAL, entry):
                return
        ctx = internal_context(self._api, self._ips.addresses, "", address)
        put = self._ips.reserve(ctx, address, family, meta["namespace"], meta["name"])
        try:
            await self._api.env.transactions.commit(ctx, [put])
        except CompareFailed:
            self.loop.due(address)

    def _parent_exists(self, address: Obj) -> bool:
        """Return whether the Service that the object names exists."""
        parent = address["spec"].get("parentRef") or {}
        if parent.get("resource") != "services" or parent.get("group"):
            return False
        key = self._services.key(parent.get("namespace", ""), parent.get("name", ""))
        return self._services.cache.get(key) is not None

    async def _collect_address(self, entry: Entry) -> float | None:
        """Delete an address without a Service. Return the seconds until its grace period ends, or None."""
        obj = entry.obj
        if not is_managed(obj):
            return None
        parent = obj["spec"].get("parentRef") or {}
        grace = 0.0
        if parent.get("resource") == "services" and not parent.get("group"):
            service = self._services.cache.get(self._services.key(parent.get("namespace", ""), parent.get("name", "")))
            grace = _ORPHAN_GRACE
            if service is not None:
                if obj["metadata"]["name"] in (str(parse_sloppy(ip)) for ip in allocated_addresses(service.obj)):
                    return None
                if service.obj["spec"].get("type") != "ExternalName":
                    grace = _UNUSED_GRACE
        age = (self._api.clock.now() - parse_time(obj["metadata"]["creationTimestamp"])).total_seconds()
        if age <= grace:
            return grace - age + 1
        try:
            await delete(self._api, _GROUP, _PLURAL, entry)
        except Conflict:
            return 1.0
        return None


Owner = tuple[str, str]
"""Namespace and name of a Service."""


class PortRepair:
    """Reconciles the node ports of Services and their reservations."""

    def __init__(self, api: ApiResources, ports: NodePorts) -> None:
        self._api = api
        self._ports = ports
        self._wrong: dict[str, tuple[int, int]] = {}
        """Reservations found wrong by the last repair: by key, the revision and the number of consecutive findings."""

    async def run(self) -> None:
        """Check all node ports once, and repair what is due."""
        allocated = self._allocated_ports()
        wrong: dict[str, tuple[int, int]] = {}
        operations: list[Op] = []
        for entry in self._ports.cache.scan():
            port = int(entry.key[len(PREFIX) :])
            owner = allocated.pop(port, None)
            if owner is not None and entry.obj == {"namespace": owner[0], "name": owner[1]}:
                continue
            revision, times = self._wrong.get(entry.key, (entry.revision, 0))
            times = times + 1 if revision == entry.revision else 1
            if times < _RUNS_BEFORE_CLEANUP:
                wrong[entry.key] = entry.revision, times
            elif owner is None:
                operations.append(Delete(entry.key, entry.revision))
            else:
                operations.append(reservation(port, *owner)._replace(expect=entry.revision))
        self._wrong = wrong
        operations += [reservation(port, *owner) for port, owner in allocated.items()]
        for operation in operations:
            try:
                await self._api.env.transactions.commit_internal(
                    "repair", "node ports are reserved as Services use them", [operation]
                )
            except CompareFailed:
                continue  # it changed concurrently; the next run checks it again

    def _allocated_ports(self) -> dict[int, Owner]:
        """Map each node port to its Service."""
        allocated: dict[int, Owner] = {}
        ports = self._ports
        for entry in self._api.registry("", "services").cache.scan():
            meta = entry.obj["metadata"]
            owner = meta["namespace"], meta["name"]
            for port in allocated_ports(entry.obj.get("spec") or {}):
                if port not in ports.bands:
                    log.warning("the node port %d of service %s/%s is not in the range %s", port, *owner, ports.text)
                elif allocated.setdefault(port, owner) != owner:
                    log.warning(
                        "the node port %d is allocated to several services, %s/%s and %s/%s",
                        port,
                        *allocated[port],
                        *owner,
                    )
        return allocated
