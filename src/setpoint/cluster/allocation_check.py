"""Comparison of Services with the cluster IPs and node ports that are allocated for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from setpoint.apiserver.allocation.cluster_ips import AddressRange, address_range, belongs_to, is_managed
from setpoint.apiserver.allocation.node_ports import PREFIX, allocated_ports
from setpoint.apiserver.allocation.service_hooks import allocated_addresses
from setpoint.kinds.core.addresses import parse_sloppy
from setpoint.meta.objects import Obj

_ADDRESSES, _SERVICES = "networking.k8s.io/ipaddresses/", "core/services/"

Objects = Mapping[str, Obj]
"""Stored objects by key."""


def allocation_problems(
    services: Objects, addresses: Objects, cidrs: Objects, reservations: Objects, *, complete: bool
) -> Iterator[tuple[str, str]]:
    """Yield a key and the reason for everything that does not agree.

    `complete` says that all objects could be read; otherwise missing ones are not reported."""
    yield from _address_problems(services, addresses, cidrs, complete)
    yield from _port_problems(services, reservations, complete)


def _address_problems(
    services: Objects, addresses: Objects, cidrs: Objects, complete: bool
) -> Iterator[tuple[str, str]]:
    ranges = [*_ranges(cidrs)]
    owners: dict[str, str] = {}
    for key, service in services.items():
        namespace, name = _owner_of(key)
        for text in allocated_addresses(service):
            ip = parse_sloppy(text)
            if ip is None:
                yield key, f"its cluster IP {text} is not an address"
                continue
            if not any(one.family == f"IPv{ip.version}" and int(ip) in one.bands for one in ranges):
                continue  # addresses outside of all ranges are never allocated
            if (other := owners.setdefault(str(ip), key)) != key:
                yield key, f"its cluster IP {ip} is also that of {other}"
                continue
            allocated = addresses.get(f"{_ADDRESSES}{ip}")
            if allocated is None:
                if complete:
                    yield key, f"its cluster IP {ip} is not allocated: there is no IPAddress"
            elif not belongs_to(allocated, namespace, name):
                yield key, f"its cluster IP {ip} is allocated to {_parent(allocated)}"
    for key, address in addresses.items():
        if is_managed(address) and key[len(_ADDRESSES) :] not in owners and complete:
            yield key, f"it is allocated to {_parent(address)}, which does not have this cluster IP"


def _ranges(cidrs: Objects) -> Iterator[AddressRange]:
    for cidr in cidrs.values():
        for text in (cidr.get("spec") or {}).get("cidrs") or ():
            with suppress(ValueError):  # not a CIDR
                found = address_range(text)
                if found is not None:
                    yield found


def _parent(address: Obj) -> str:
    parent = (address.get("spec") or {}).get("parentRef") or {}
    return "/".join(filter(None, (str(parent.get(name) or "") for name in ("resource", "namespace", "name"))))


def _port_problems(services: Objects, reservations: Objects, complete: bool) -> Iterator[tuple[str, str]]:
    owners: dict[int, str] = {}
    for key, service in services.items():
        namespace, name = _owner_of(key)
        for port in sorted(allocated_ports(service.get("spec") or {})):
            if (other := owners.setdefault(port, key)) != key:
                yield key, f"its node port {port} is also that of {other}"
                continue
            reserved = reservations.get(f"{PREFIX}{port}")
            if reserved is None:
                if complete:
                    yield key, f"its node port {port} is not reserved"
            elif reserved != {"namespace": namespace, "name": name}:
                yield key, f"its node port {port} is reserved for {reserved.get('namespace')}/{reserved.get('name')}"
    for key, reserved in reservations.items():
        port_text = key[len(PREFIX) :]
        if not port_text.isdecimal():
            yield key, "it is not a port"
        elif int(port_text) not in owners and complete:
            owner = f"{reserved.get('namespace')}/{reserved.get('name')}"
            yield key, f"it is reserved for the Service {owner}, which does not have this node port"


def _owner_of(key: str) -> tuple[str, str]:
    namespace, _, name = key[len(_SERVICES) :].partition("/")
    return namespace, name
