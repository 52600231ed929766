"""The records of the cluster domain: version 1.1.0 of Kubernetes' specification of DNS-based service discovery.

Where the specification leaves a choice, the answers are those of CoreDNS: names of Pods need not exist
(`pods insecure`), PTR records exist for the ready endpoints of all Services, and a Service's own name has SRV records
for all its ports. There are no wildcards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple, TypeVar

from setpoint.meta.objects import ObjView
from setpoint.node.host.network.dns.message import (
    ANY,
    CNAME,
    NOERROR,
    NS,
    NXDOMAIN,
    PTR,
    SOA,
    SRV,
    TXT,
    Name,
    Record,
    lower,
    parse_name,
    reverse_address,
    soa_data,
    txt_data,
)
from setpoint.node.host.network.dns.service_records import (
    EMPTY,
    SERVICE_NAME_LABEL,
    TTL,
    Address,
    RecordSets,
    ServiceKey,
    ServiceRecords,
    parse_addresses,
    pod_records,
    read_service,
    read_slice,
    record_sets,
    to_label,
)

K = TypeVar("K")

_VERSION: Final = b"1.1.0"
_VERSION_TTL: Final = 28800
_TIMERS: Final = (7200, 1800, 86400, TTL)
_MAX_CHAIN: Final = 10
"""The number of ExternalName Services that one answer follows."""
_DNS_SERVICE: Final = (b"kube-system", b"kube-dns")


class ZoneAnswer(NamedTuple):
    rcode: int
    answers: Sequence[Record] = ()
    authority: Sequence[Record] = ()
    additional: Sequence[Record] = ()
    target: Name | None = None
    """The name outside of the cluster domain with which a chain of CNAME records ends; None if there is none."""


class ClusterZone:
    """The records of a cluster. Handlers of informers keep it up to date; a change costs time for its object alone."""

    def __init__(self, domain: str, now: Callable[[], int], addresses: Sequence[str] = ()) -> None:
        """Create the zone of a cluster domain. `now` returns the seconds since 1970, for the serial number. `addresses`
        are those of the name server while there is no Service `kube-dns`. Raises DnsFormatError."""
        self.domain = lower(parse_name(domain))
        self._now = now
        self._serial = now()
        self._own_addresses = tuple(parse_addresses(addresses))
        self._services: dict[ServiceKey, ServiceRecords] = {}
        self._namespaces: set[bytes] = set()
        self._used_namespaces: dict[bytes, int] = {}
        """The number of Services in each namespace that has one."""
        self._by_cluster_ip: dict[bytes, dict[ServiceKey, None]] = {}
        self._by_endpoint: dict[bytes, dict[tuple[ServiceKey, str], None]] = {}
        """The Services and names of the EndpointSlices with a ready endpoint, by packed address."""

    # -- changes -------------------------------------------------------------------------------------------------------

    def namespace_changed(self, old: ObjView | None, new: ObjView | None) -> None:
        if new is not None:
            self._namespaces.add(to_label(new["metadata"]["name"]))
        elif old is not None:
            self._namespaces.discard(to_label(old["metadata"]["name"]))
        if (old is None) != (new is None):
            self._serial = self._now()

    def service_changed(self, old: ObjView | None, new: ObjView | None) -> None:
        obj = new or old
        assert obj is not None
        key = to_label(obj["metadata"]["namespace"]), to_label(obj["metadata"]["name"])
        service = self._service(key)
        for address in service.addresses:
            _discard(self._by_cluster_ip, address.packed, key)
        existed, service.exists = service.exists, False
        service.external, service.addresses, service.ports = None, (), ()
        if new is not None:
            read_service(new["spec"], service)
        for address in service.addresses:
            self._by_cluster_ip.setdefault(address.packed, {})[key] = None
        count = self._used_namespaces.get(key[0], 0) + service.exists - existed
        if count:
            self._used_namespaces[key[0]] = count
        else:
            self._used_namespaces.pop(key[0], None)
        self._changed(key, service)

    def slice_changed(self, old: ObjView | None, new: ObjView | None) -> None:
        if old is not None:
            self._remove_slice(to_label(old["metadata"]["namespace"]), old)
        if new is None:
            return
        namespace, name = to_label(new["metadata"]["namespace"]), new["metadata"]["name"]
        found = read_slice(namespace, new)
        if found is None:
            return
        service = self._service(found.service)
        service.slices[name] = found
        for endpoint in found.endpoints:
            self._by_endpoint.setdefault(endpoint.address.packed, {})[found.service, name] = None
        self._changed(found.service, service)

    def _remove_slice(self, namespace: bytes, obj: ObjView) -> None:
        name = obj["metadata"]["name"]
        key = namespace, to_label((obj["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL) or "")
        service = self._services.get(key)
        found = service.slices.pop(name, None) if service is not None else None
        if service is None or found is None:
            return
        for endpoint in found.endpoints:
            _discard(self._by_endpoint, endpoint.address.packed, (key, name))
        self._changed(key, service)

    def _service(self, key: ServiceKey) -> ServiceRecords:
        found = self._services.get(key)
        if found is None:
            namespace, name = key
            found = self._services[key] = ServiceRecords((name, namespace, b"svc", *self.domain))
        return found

    def _changed(self, key: ServiceKey, service: ServiceRecords) -> None:
        service.cache.clear()
        if not service.exists and not service.slices:
            self._services.pop(key, None)
        self._serial = self._now()

    # -- queries -------------------------------------------------------------------------------------------------------

    def contains(self, name: Name) -> bool:
        """Return whether a name belongs to the cluster domain."""
        return lower(name[-len(self.domain) :]) == self.domain

    def is_reverse(self, name: Name) -> bool:
        """Return whether a name may be that of an address."""
        return lower(name[-2:]) in ((b"in-addr", b"arpa"), (b"ip6", b"arpa"))

    def service_addresses(self, namespace: str, name: str) -> list[str]:
        """Return the cluster IPs of a Service; empty if it has none or does not exist."""
        found = self._services.get((to_label(namespace), to_label(name)))
        return [str(ip_address(address.packed)) for address in found.addresses] if found is not None else []

    def answer(self, name: Name, kind: int) -> ZoneAnswer | None:
        """Return the answer to a query, or None if it is to be answered by other name servers."""
        lowered = lower(name)
        if lowered[-len(self.domain) :] == self.domain:
            return self._answer(name, lowered[: len(lowered) - len(self.domain)], kind)
        packed = reverse_address(lowered)
        pointers = self._pointers(packed) if packed is not None else ()
        if not pointers:
            return None
        if kind in (PTR, ANY):
            return ZoneAnswer(NOERROR, [Record(name, PTR, TTL, (target,)) for target in pointers])
        return ZoneAnswer(NOERROR, authority=(self._authority(),))

    def _answer(self, name: Name, labels: Name, kind: int) -> ZoneAnswer:
        chain: list[Record] = []
        seen = {labels}
        while True:
            found = self._find(labels)
            if found is None:
                return ZoneAnswer(NXDOMAIN, chain, (self._authority(),))
            data, additional, ttl = found
            if kind == ANY:
                records = [Record(name, each, ttl, one) for each, all_data in data.items() for one in all_data]
            else:
                records = [Record(name, kind, ttl, one) for one in data.get(kind, ())]
            if records:
                return ZoneAnswer(NOERROR, [*chain, *records], (), additional if kind in (SRV, NS) else ())
            target = data.get(CNAME)
            if not target:
                return ZoneAnswer(NOERROR, chain, (self._authority(),))
            chain.append(Record(name, CNAME, ttl, target[0]))
            following = target[0][0]
            assert isinstance(following, tuple)
            if following[-len(self.domain) :] != self.domain:
                return ZoneAnswer(NOERROR, chain, target=following)
            name, labels = following, following[: len(following) - len(self.domain)]
            if labels in seen or len(chain) == _MAX_CHAIN:
                return ZoneAnswer(NOERROR, chain, (self._authority(),))
            seen.add(labels)

    def _find(self, labels: Name) -> RecordSets | None:
        """Return the records of a name, given by its lower-case labels in front of the domain; None if it does not
        exist."""
        if not labels:
            return self._apex()
        kind = labels[-1]
        if kind == b"svc" and len(labels) > 2:
            service = self._services.get((labels[-2], labels[-3]))
            return service.find(labels[:-3]) if service is not None else None
        if kind in (b"svc", b"pod"):
            if len(labels) == 1 or (len(labels) == 2 and self._has_namespace(labels[0])):
                return EMPTY
            if kind == b"pod" and len(labels) == 3 and self._has_namespace(labels[1]):
                return pod_records(labels[0])
            return None
        if labels == (b"dns-version",):
            return RecordSets({TXT: (txt_data(_VERSION),)}, (), _VERSION_TTL)
        if labels == (b"ns", b"dns"):
            return record_sets(self._name_server()[1], ())
        return EMPTY if labels == (b"dns",) else None

    def _has_namespace(self, name: bytes) -> bool:
        # A Service may arrive before its namespace: they are watched separately.
        return name in self._namespaces or name in self._used_namespaces

    def _apex(self) -> RecordSets:
        server, addresses = self._name_server()
        glue = [Record(server, address.type, TTL, (address.packed,)) for address in addresses]
        return RecordSets({SOA: (self._authority().data,), NS: ((server,),)}, glue)

    def _name_server(self) -> tuple[Name, Sequence[Address]]:
        service = self._services.get(_DNS_SERVICE)
        if service is not None and service.addresses:
            return service.name, service.addresses
        return (b"ns", b"dns", *self.domain), self._own_addresses

    def _authority(self) -> Record:
        data = soa_data((b"ns", b"dns", *self.domain), (b"hostmaster", *self.domain), self._serial, _TIMERS)
        return Record(self.domain, SOA, TTL, data)

    def _pointers(self, packed: bytes) -> Sequence[Name]:
        """Return the names of an address: that of the Service with this cluster IP, or those of its endpoints."""
        for key in self._by_cluster_ip.get(packed, ()):
            return (self._services[key].name,)
        found: dict[Name, None] = {}
        for key, name in self._by_endpoint.get(packed, ()):
            service = self._services[key]
            if service.exists and service.external is None:
                for endpoint in service.slices[name].endpoints:
                    if endpoint.address.packed == packed:
                        found[endpoint.hostname, *service.name] = None
        return tuple(found)


def _discard(index: dict[bytes, dict[K, None]], at: bytes, value: K) -> None:
    held = index.get(at)
    if held is not None:
        held.pop(value, None)
        if not held:
            del index[at]
