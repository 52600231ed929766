"""Cluster IPs: each allocated address is an IPAddress object that names its Service."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Protocol

import orjson

from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.encoding import stamp_offset
from setpoint.apiserver.preparation import fill_system_fields, stored_form
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.request_context import RequestContext
from setpoint.kinds.core.addresses import parse_sloppy
from setpoint.meta.apply import WrittenVersion
from setpoint.meta.apply import update as own_fields
from setpoint.meta.clock import Ids
from setpoint.meta.conditions import condition_of
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time
from setpoint.store.interface import Delete, Op, Put

_MAX_PROBES = 16
_MIN_IPV6_PREFIX = 64
MANAGED_BY = "ipallocator.k8s.io"
_FAMILY_LABEL = "ipaddress.kubernetes.io/ip-family"
_MANAGED_BY_LABEL = "ipaddress.kubernetes.io/managed-by"
_MANAGER = "kube-apiserver"


@dataclass(frozen=True, slots=True)
class Bands:
    """A range of numbers `[first, last]` whose lower part is reserved for explicit requests.

    Automatic choices start at `first + static`, and use the lower part only if nothing else is free.
    """

    first: int
    last: int
    static: int

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last

    def choose(
        self, ids: Ids, is_allocated: Callable[[int], bool], all_allocated: Callable[[], Collection[int]]
    ) -> int | None:
        """Return a free number, starting from a random one, or None if there is none. `all_allocated` is called only if
        the first probes found no free number."""
        divide = self.first + self.static
        for low, high in ((divide, self.last), (self.first, divide - 1)):
            if low > high:
                continue
            start = low + ids.below(high - low + 1)
            for number in _cyclic(low, high, start, _MAX_PROBES):
                if not is_allocated(number):
                    return number
            used = all_allocated()
            # Among this many consecutive numbers, one must be free.
            for number in _cyclic(low, high, start, len(used) + 1):
                if number not in used:
                    return number
        return None


def _cyclic(low: int, high: int, start: int, steps: int) -> Iterator[int]:
    yield from range(start, min(high + 1, start + steps))
    yield from range(low, min(start, low + steps - (high + 1 - start)))


def port_bands(low: int, high: int) -> Bands:
    return Bands(low, high, _static_band_size(high - low + 1, 16, 128, 32))


def _static_band_size(size: int, minimum: int, maximum: int, step: int) -> int:
    return 0 if size <= minimum else min(max(size // step, minimum), maximum)


@dataclass(frozen=True, slots=True)
class AddressRange:
    """A network that cluster IPs are allocated from."""

    network: IPv4Network | IPv6Network
    bands: Bands
    """The addresses as numbers."""

    @property
    def family(self) -> str:
        return f"IPv{self.network.version}"

    def address(self, number: int) -> str:
        return str(IPv4Address(number) if self.network.version == 4 else IPv6Address(number))


def address_range(cidr: str) -> AddressRange | None:
    """Return the range of a CIDR, or None if no address is allocated from it."""
    network = ip_network(cidr, strict=False)
    if network.version == 6 and network.prefixlen < _MIN_IPV6_PREFIX:
        return None
    # The network address is never used, nor is the broadcast address of IPv4.
    first, last = int(network.network_address) + 1, int(network.broadcast_address)
    if network.version == 4:
        last -= 1
    static = _static_band_size(network.num_addresses, 16, 256, 16)
    return AddressRange(network, Bands(first, last, static))


class AllocationError(Exception):
    """An address or port cannot be allocated; the message is upstream's."""


class RangeFull(AllocationError):
    """No address or port is free."""

    def __init__(self) -> None:
        super().__init__("range is full")


class Registries(Protocol):
    """Provides the registries of a server."""

    def registry(self, group: str, plural: str) -> Registry: ...


class ClusterIps:
    """Allocates cluster IPs."""

    def __init__(self, api: Registries, ids: Ids) -> None:
        self._api = api
        self._ids = ids
        self._addresses: Registry | None = None
        self._cidrs: Registry | None = None
        self._managed_fields_template: list[Obj] = []

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
        """Yield the ranges of all ServiceCIDRs, the default one first; with `ready`, only those that are ready."""
        entries = sorted(self.cidrs.cache.scan(), key=lambda entry: not entry.key.endswith("/kubernetes"))
        for entry in entries:
            if ready and not is_ready(entry.obj):
                continue
            found: Sequence[AddressRange] = entry.derive("ranges", _ranges)
            yield from (known for known in found if known.family == family)

    def entry(self, address: str) -> Entry | None:
        cache = self.addresses.cache
        return cache.get(cache.prefix + address)

    def check(self, ip: str, family: str, dry_run: bool) -> str:
        """Return the canonical form of a requested address. Raises AllocationError if it cannot be allocated."""
        parsed = parse_sloppy(ip)
        assert parsed is not None  # validated before
        number = int(parsed)
        if dry_run:
            return self._check_dry_run(number, str(parsed), family)
        if not any(number in known.bands for known in self.ranges(family)):
            raise AllocationError("the provided network does not match the current range")
        if self.entry(str(parsed)) is not None:
            raise AllocationError("provided IP is already allocated")
        return str(parsed)

    def _check_dry_run(self, number: int, address: str, family: str) -> str:
        """Check only whether the first range contains the address."""
        known = next(self.ranges(family, ready=False), None)
        if known is None:
            raise AllocationError("allocator not ready")
        if number not in known.bands:
            raise AllocationError(
                f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {known.network}"
            )
        return address

    def choose(self, family: str, dry_run: bool) -> str:
        """Return a free address. Raises RangeFull."""
        for known in self.ranges(family):
            if dry_run:
                # A dry run allocates nothing; any address of the range will do.
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

    def reserve(self, ctx: RequestContext, address: str, family: str, namespace: str, name: str) -> Put:
        """Return the operation that creates the IPAddress object."""
        registry = self.addresses
        obj: Obj = {
            "metadata": {"name": address, "labels": {_FAMILY_LABEL: family, _MANAGED_BY_LABEL: MANAGED_BY}},
            "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}},
        }
        now = format_time(ctx.now)
        fill_system_fields(obj["metadata"], registry.env.ids, now)
        obj["metadata"]["managedFields"] = self._managed_fields(obj, now)
        value, stamp = stamp_offset(registry.encoding.dump(stored_form(obj)))
        return Put(registry.key("", address), value, 0, stamp)

    def _managed_fields(self, obj: Obj, now: str) -> list[Obj]:
        """Return the managedFields, computed once: all these objects have the same fields."""
        if not self._managed_fields_template:
            resource = self.addresses.resource
            self._managed_fields_template = own_fields(
                WrittenVersion(resource.type, resource.api_version),
                None,
                orjson.loads(orjson.dumps(obj)),
                manager=_MANAGER,
                now=now,
            )
        return [{**entry, "time": now} for entry in self._managed_fields_template]

    def release(self, ip: str, namespace: str, name: str) -> list[Op]:
        """Return the operations that release an address: none if it belongs to another Service, or if its object has
        finalizers and is deleted later."""
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
    condition = condition_of(cidr, "Ready")
    # Without a condition it counts as ready: a cluster without that controller must work too.
    return condition is None or condition.get("status") == "True"


def _ranges(entry: Entry) -> list[AddressRange]:
    found = (address_range(cidr) for cidr in (entry.obj.get("spec") or {}).get("cidrs") or ())
    return [known for known in found if known is not None]
