"""Cluster IPs: each one in use is an IPAddress object that names its Service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import orjson

from setpoint.apiserver.allocation.ranges import AddressRange, address_range
from setpoint.apiserver.call import Call
from setpoint.apiserver.encoding import stamp_offset
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.watch_cache import Entry, Obj
from setpoint.kinds.core.addresses import parse_sloppy
from setpoint.meta.apply import update as own_fields
from setpoint.meta.clock import Ids
from setpoint.meta.times import format_time
from setpoint.store.interface import Delete, Op, Put

MANAGED_BY = "ipallocator.k8s.io"
_FAMILY_LABEL = "ipaddress.kubernetes.io/ip-family"
_MANAGED_BY_LABEL = "ipaddress.kubernetes.io/managed-by"
_MANAGER = "kube-apiserver"


class AllocationError(Exception):
    """The message is upstream's, for the end of an error's text."""


class RangeFull(AllocationError):
    def __init__(self) -> None:
        super().__init__("range is full")


class Registries(Protocol):
    def registry(self, group: str, plural: str) -> Registry: ...


class ClusterIps:
    def __init__(self, api: Registries, ids: Ids) -> None:
        self._api = api
        self._ids = ids
        self._addresses: Registry | None = None
        self._cidrs: Registry | None = None
        self._ownership: list[Obj] = []

    @property
    def addresses(self) -> Registry:
        if self._addresses is None:
            self._addresses = self._api.registry("networking.k8s.io", "ipaddresses")
        return self._addresses

    @property
    def cidrs(self) -> Registry:
        if self._cidrs is None:
            self._cidrs = self._api.registry("networking.k8s.io", "servicecidrs")
        return self._cidrs

    def ranges(self, family: str, ready: bool = True) -> Iterator[AddressRange]:
        """Of all ServiceCIDRs, the default one first: it is where people look."""
        entries = sorted(self.cidrs.cache.scan(), key=lambda entry: not entry.key.endswith("/kubernetes"))
        for entry in entries:
            if ready and not is_ready(entry.obj):
                continue
            found: Sequence[AddressRange] = entry.remembered("ranges", _ranges)
            yield from (known for known in found if known.family == family)

    def entry(self, address: str) -> Entry | None:
        cache = self.addresses.cache
        return cache.get(cache.prefix + address)

    def check(self, ip: str, family: str, dry_run: bool) -> str:
        """The name of an address that somebody asked for. Raises AllocationError if it cannot be had."""
        parsed = parse_sloppy(ip)
        assert parsed is not None  # validated before
        number = int(parsed)
        if dry_run:
            return self._check_dry(number, str(parsed), family)
        if not any(number in known.bands for known in self.ranges(family)):
            raise AllocationError("the provided network does not match the current range")
        if self.entry(str(parsed)) is not None:
            raise AllocationError("provided IP is already allocated")
        return str(parsed)

    def _check_dry(self, number: int, address: str, family: str) -> str:
        """Only the first range is asked, and only whether the address would fit."""
        known = next(self.ranges(family, ready=False), None)
        if known is None:
            raise AllocationError("allocator not ready")
        if number not in known.bands:
            raise AllocationError(
                f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {known.network}"
            )
        return address

    def choose(self, family: str, dry_run: bool) -> str:
        """A free address. Raises RangeFull."""
        for known in self.ranges(family):
            if dry_run:
                # Nothing is handed out, so nothing in particular is promised.
                return str(known.network.network_address)
            number = known.bands.choose(
                self._ids,
                lambda candidate, known=known: self.entry(known.address(candidate)) is not None,  # type: ignore[misc]
                lambda known=known: self._used(known),  # type: ignore[misc]
            )
            if number is not None:
                return known.address(number)
        raise RangeFull

    def _used(self, known: AddressRange) -> set[int]:
        prefix = len(self.addresses.cache.prefix)
        parsed = (parse_sloppy(entry.key[prefix:]) for entry in self.addresses.cache.scan())
        return {int(ip) for ip in parsed if ip is not None and int(ip) in known.bands}

    def reserve(self, call: Call, address: str, family: str, namespace: str, name: str) -> Put:
        registry = self.addresses
        obj: Obj = {
            "metadata": {"name": address, "labels": {_FAMILY_LABEL: family, _MANAGED_BY_LABEL: MANAGED_BY}},
            "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}},
        }
        now = format_time(call.now)
        registry.fill_metadata(obj, now)
        obj["metadata"]["managedFields"] = self._owned(obj, now)
        value, stamp = stamp_offset(registry.encode(obj))
        return Put(registry.key("", address), value, 0, stamp)

    def _owned(self, obj: Obj, now: str) -> list[Obj]:
        """Every such object has the same fields, so who owns them is worked out once."""
        if not self._ownership:
            resource = self.addresses.resource
            self._ownership = own_fields(
                resource.type, None, orjson.loads(orjson.dumps(obj)),
                manager=_MANAGER, api_version=resource.api_version, subresource="", now=now, reset=None,
            )  # fmt: skip
        return [{**entry, "time": now} for entry in self._ownership]

    def free(self, ip: str, namespace: str, name: str) -> list[Op]:
        """Nothing if the address is another's, or if its object has finalizers: then it is taken away later."""
        parsed = parse_sloppy(ip)
        entry = self.entry(str(parsed)) if parsed is not None else None
        if entry is None or not belongs_to(entry.obj, namespace, name) or entry.obj["metadata"].get("finalizers"):
            return []
        return [Delete(entry.key, entry.revision)]


def belongs_to(address: Obj, namespace: str, name: str) -> bool:
    parent = (address.get("spec") or {}).get("parentRef") or {}
    wanted = ("", "services", namespace, name)
    return tuple(parent.get(key, "") for key in ("group", "resource", "namespace", "name")) == wanted


def is_managed(address: Obj) -> bool:
    return (address["metadata"].get("labels") or {}).get(_MANAGED_BY_LABEL) == MANAGED_BY


def family_label(address: Obj) -> str:
    return str((address["metadata"].get("labels") or {}).get(_FAMILY_LABEL, ""))


def is_ready(cidr: Obj) -> bool:
    if cidr["metadata"].get("deletionTimestamp"):
        return False
    for condition in (cidr.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            return bool(condition.get("status") == "True")
    # Nobody judged it yet; a cluster without that controller must work too.
    return True


def _ranges(entry: Entry) -> list[AddressRange]:
    found = (address_range(cidr) for cidr in (entry.obj.get("spec") or {}).get("cidrs") or ())
    return [known for known in found if known is not None]
