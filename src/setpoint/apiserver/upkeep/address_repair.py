"""Every cluster IP of a Service has its IPAddress object, and every such object its Service.

Both are written together, so there is something to do only when somebody changed one of them by hand, or restored half
of a backup."""

from __future__ import annotations

from setpoint.apiserver.allocation.cluster_ips import ClusterIps, belongs_to, family_label, is_managed
from setpoint.apiserver.allocation.service_hooks import held_addresses
from setpoint.apiserver.own_writes import delete, own_call
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.upkeep.loop import KeyedLoop, log
from setpoint.apiserver.watch_cache import Entry, Obj
from setpoint.kinds.core.addresses import parse_sloppy
from setpoint.meta.errors import Conflict
from setpoint.meta.times import parse_time
from setpoint.store.interface import CompareFailed

EVERY = 180.0
_ORPHAN_GRACE, _STRAY_GRACE = 60.0, 5.0
_GROUP, _PLURAL = "networking.k8s.io", "ipaddresses"


class AddressRepair:
    """Keys with a slash are Services, others are addresses."""

    def __init__(self, api: ApiServer, ips: ClusterIps) -> None:
        self._api = api
        self._ips = ips
        self._services = api.registry("", "services")
        self.loop = KeyedLoop("cluster IPs", api.clock, self.sync)
        self.loop.follow(self._services.cache, lambda entry: [self._service_key(entry)])
        self.loop.follow(ips.addresses.cache, self._of_address)

    def _service_key(self, entry: Entry) -> str:
        return entry.key[len(self._services.cache.prefix) :]

    def _of_address(self, entry: Entry) -> list[str]:
        return [entry.obj["metadata"]["name"]]

    async def recheck(self) -> None:
        self.loop.due(*(self._service_key(entry) for entry in self._services.cache.scan()))
        self.loop.due(*(entry.obj["metadata"]["name"] for entry in self._ips.addresses.cache.scan()))

    async def sync(self, key: str) -> float | None:
        if "/" in key:
            namespace, _, name = key.partition("/")
            service = self._services.cache.get(self._services.key(namespace, name))
            if service is not None:
                for ip in held_addresses(service.obj):
                    await self._check_held(service.obj, ip)
            return None
        entry = self._ips.entry(key)
        return await self._check_used(entry) if entry is not None else None

    async def _check_held(self, service: Obj, ip: str) -> None:
        meta, parsed = service["metadata"], parse_sloppy(ip)
        if parsed is None:
            return
        address, family = str(parsed), f"IPv{parsed.version}"
        if not any(int(parsed) in known.bands for known in self._ips.ranges(family, ready=False)):
            return  # nothing here can be handed out twice
        entry = self._ips.entry(address)
        if entry is not None:
            if belongs_to(entry.obj, meta["namespace"], meta["name"]):
                if is_managed(entry.obj) and family_label(entry.obj) == family:
                    return
            elif self._named_service(entry.obj):
                where = f"{meta['namespace']}/{meta['name']}"
                log.warning("the cluster IP %s is held by several services, %s too", ip, where)
                return
            if not await delete(self._api, _GROUP, _PLURAL, entry):
                return
        call = own_call(self._api, self._ips.addresses, "", address)
        put = self._ips.reserve(call, address, family, meta["namespace"], meta["name"])
        try:
            await self._api.store.txn([put], self._ips.addresses.cause(call))
        except CompareFailed:
            self.loop.due(address)

    def _named_service(self, address: Obj) -> bool:
        """Whether the Service that the object names is there."""
        parent = address["spec"].get("parentRef") or {}
        if parent.get("resource") != "services" or parent.get("group"):
            return False
        key = self._services.key(parent.get("namespace", ""), parent.get("name", ""))
        return self._services.cache.get(key) is not None

    async def _check_used(self, entry: Entry) -> float | None:
        """How long an address without a Service may still stay, if it may."""
        obj = entry.obj
        if not is_managed(obj):
            return None
        parent = obj["spec"].get("parentRef") or {}
        grace = 0.0
        if parent.get("resource") == "services" and not parent.get("group"):
            service = self._services.cache.get(self._services.key(parent.get("namespace", ""), parent.get("name", "")))
            grace = _ORPHAN_GRACE
            if service is not None:
                if obj["metadata"]["name"] in (str(parse_sloppy(ip)) for ip in held_addresses(service.obj)):
                    return None
                if service.obj["spec"].get("type") != "ExternalName":
                    grace = _STRAY_GRACE
        age = (self._api.clock.now() - parse_time(obj["metadata"]["creationTimestamp"])).total_seconds()
        if age <= grace:
            return grace - age + 1
        try:
            await delete(self._api, _GROUP, _PLURAL, entry)
        except Conflict:
            return 1.0
        return None
