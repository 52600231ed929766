"""The records of one Service, and of Pods, from their objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, NamedTuple

from setpoint.meta.objects import ObjView
from setpoint.node.host.network.dns.message import (
    AAAA,
    CNAME,
    SRV,
    A,
    Data,
    DnsFormatError,
    Name,
    Record,
    lower,
    parse_name,
    srv_data,
)

TTL: Final = 5
"""The seconds for which an answer may be cached."""
SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"

ServiceKey = tuple[bytes, bytes]
"""The namespace and the name of a Service."""


class RecordSets(NamedTuple):
    """The records of one name."""

    data: Mapping[int, Sequence[Data]] = {}
    """The data of the records by type."""
    additional: Sequence[Record] = ()
    """The address records of the targets of the SRV or NS records."""
    ttl: int = TTL


EMPTY: Final = RecordSets()
"""A name without records that exists, because longer names do."""


class Address(NamedTuple):
    type: int
    """A or AAAA."""
    packed: bytes


class Port(NamedTuple):
    name: bytes
    """Empty if the port has no name."""
    protocol: bytes
    number: int


class Endpoint(NamedTuple):
    hostname: bytes
    address: Address


class Slice(NamedTuple):
    """The ready endpoints of an EndpointSlice."""

    service: ServiceKey
    endpoints: tuple[Endpoint, ...]
    ports: tuple[Port, ...]
    hosts: Mapping[bytes, Sequence[Endpoint]]
    """The endpoints by hostname."""


@dataclass(slots=True)
class ServiceRecords:
    name: Name
    """The name of the Service's own records."""
    exists: bool = False
    """Whether there is a Service; false if there are only EndpointSlices for one."""
    external: Name | None = None
    """The name that a Service of the type ExternalName stands for."""
    addresses: tuple[Address, ...] = ()
    """The cluster IPs; empty for a headless Service."""
    ports: tuple[Port, ...] = ()
    slices: dict[str, Slice] = field(default_factory=dict)
    """The EndpointSlices by name."""
    cache: dict[Name, RecordSets] = field(default_factory=dict)
    """The records of names that exist, by the labels in front of the Service's name, until the next change."""

    def find(self, rest: Name) -> RecordSets | None:
        """Return the records of the name with these lower-case labels in front of the Service's, or None."""
        found = self.cache.get(rest)
        if found is None and self.exists:
            found = self._compute(rest)
            if found is not None:
                self.cache[rest] = found
        return found

    def _compute(self, rest: Name) -> RecordSets | None:
        if self.external is not None:
            return RecordSets({CNAME: ((self.external,),)}) if not rest else None
        if len(rest) == 1:
            return self._of_hostname(rest[0])
        if len(rest) > 2:
            return None
        port = tuple(label.removeprefix(b"_") for label in rest)
        if self.addresses:
            ports = _matching(self.ports, port)
            if port and not ports:
                return None
            return record_sets(self.addresses, [(self.name, each.number, self.addresses) for each in ports])
        found = [(each.endpoints, _matching(each.ports, port)) for each in self.slices.values()]
        return self._of_endpoints([(end, ports) for ends, ports in found if ports or not port for end in ends])

    def _of_hostname(self, hostname: bytes) -> RecordSets | None:
        endpoints = [(end, each.ports) for each in self.slices.values() for end in each.hosts.get(hostname, ())]
        if not endpoints and any(hostname == b"_" + port.protocol for port in self._all_ports() if port.name):
            return EMPTY
        return self._of_endpoints(endpoints)

    def _all_ports(self) -> Iterable[Port]:
        return self.ports if self.addresses else (port for each in self.slices.values() for port in each.ports)

    def _of_endpoints(self, endpoints: Sequence[tuple[Endpoint, Sequence[Port]]]) -> RecordSets | None:
        if not endpoints:
            return None
        targets = [
            ((endpoint.hostname, *self.name), port.number, (endpoint.address,))
            for endpoint, ports in endpoints
            for port in ports
        ]
        return record_sets([endpoint.address for endpoint, _ in endpoints], targets)


def _matching(ports: Sequence[Port], wanted: Name) -> Sequence[Port]:
    """Return the ports with a name and a protocol; all ports if these are not given."""
    return [port for port in ports if port.name and port[:2] == wanted] if wanted else ports


def record_sets(addresses: Iterable[Address], targets: Sequence[tuple[Name, int, Sequence[Address]]]) -> RecordSets:
    """Return address records, and SRV records for targets, ports and their addresses, each once."""
    data: dict[int, list[Data]] = {}
    for kind, packed in dict.fromkeys(addresses):
        data.setdefault(kind, []).append((packed,))
    services = dict.fromkeys((target, port) for target, port, _ in targets)
    if services:
        weight = max(1, 100 // len(services))
        data[SRV] = [srv_data(0, weight, port, target) for target, port in services]
    glue = dict.fromkeys((target, address) for target, _, found in targets for address in found)
    return RecordSets(data, [Record(target, address.type, TTL, (address.packed,)) for target, address in glue])


def to_label(text: str) -> bytes:
    return text.lower().encode("ascii", "replace")


def parse_addresses(texts: Iterable[str]) -> Iterable[Address]:
    for text in texts:
        try:
            address = ip_address(text)
        except ValueError:
            continue
        yield Address(A if address.version == 4 else AAAA, address.packed)


def read_service(spec: ObjView, service: ServiceRecords) -> None:
    """Set the fields of a Service from its specification."""
    service.exists = True
    if spec.get("type") == "ExternalName":
        text = spec.get("externalName") or ""
        # An address is not a name that other name servers could resolve.
        if not any(parse_addresses((text,))):
            try:
                service.external = lower(parse_name(text))
            except DnsFormatError:
                service.external = None
        service.exists = bool(service.external)
        return
    texts = spec.get("clusterIPs") or [spec.get("clusterIP") or ""]
    service.addresses = tuple(parse_addresses(texts))
    service.ports = tuple(_read_ports(spec.get("ports") or ()))


def _read_ports(ports: Iterable[ObjView]) -> Iterable[Port]:
    for port in ports:
        if port.get("port") is not None:
            yield Port(to_label(port.get("name") or ""), to_label(port.get("protocol") or "TCP"), port["port"])


def read_slice(namespace: bytes, obj: ObjView) -> Slice | None:
    name = (obj["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL)
    if not name or obj.get("addressType") not in ("IPv4", "IPv6"):
        return None
    endpoints: list[Endpoint] = []
    hosts: dict[bytes, list[Endpoint]] = {}
    for endpoint in obj.get("endpoints") or ():
        # A condition that is not set means that its state is unknown, which counts as ready.
        if (endpoint.get("conditions") or {}).get("ready") is False:
            continue
        for text in endpoint.get("addresses") or ():
            for address in parse_addresses((text,)):
                endpoints.append(Endpoint(_hostname(endpoint.get("hostname") or "", text), address))
                hosts.setdefault(endpoints[-1].hostname, []).append(endpoints[-1])
    return Slice((namespace, to_label(name)), tuple(endpoints), tuple(_read_ports(obj.get("ports") or ())), hosts)


def _hostname(given: str, address: str) -> bytes:
    """Return the label of an endpoint: its hostname, or its address with hyphens."""
    if 0 < len(given) < 64 and "." not in given:
        return to_label(given)
    text = address.replace(".", "-").replace(":", "-")
    return to_label(text + "0" if text.endswith("-") else text)


def pod_records(label: bytes) -> RecordSets | None:
    """Return the record of a Pod, whose name is its address with hyphens."""
    text = label.decode("ascii", "replace")
    text = text.replace("-", "." if text.count("-") == 3 and "--" not in text else ":")
    found = list(parse_addresses((text,))) if "%" not in text else []
    return record_sets(found, ()) if found else None
