"""The desired state of Services on a node, computed from Service and EndpointSlice objects as kube-proxy does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_address, ip_network
from typing import Final, NamedTuple

from setpoint.meta.objects import ObjView

SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"
"""The label of an EndpointSlice that names its Service."""
BY_SERVICE: Final = "service"
"""The index of EndpointSlices by the key of their Service, see `service_keys`."""
PROXY_NAME_LABEL: Final = "service.kubernetes.io/service-proxy-name"
"""The label of a Service that another proxy implements."""
_DEFAULT_AFFINITY_SECONDS: Final = 10800
_PROTOCOLS: Final = {"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS label. Names become parts of names in the table, so that others are not accepted."""


class Topology(NamedTuple):
    """The position of the node, which selects endpoints that are close to it."""

    node: str
    zone: str = ""


class Endpoint(NamedTuple):
    """The address of one endpoint of a Service port."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class ServicePort:
    """One port of a Service in one address family, with the endpoints that receive its traffic."""

    namespace: str
    name: str
    label: str
    """The name of the port, or its number if it has no name."""
    protocol: str
    """The protocol in lower case: tcp, udp or sctp."""
    family: int
    """The address family: 4 or 6."""
    port: int
    cluster_ip: str
    node_port: int
    """The port on all addresses of the node; 0 means none."""
    external_ips: tuple[str, ...]
    """External addresses and those of load balancers."""
    firewalled_ips: tuple[str, ...]
    """Addresses among `external_ips` that accept clients of `source_ranges` only."""
    source_ranges: tuple[str, ...]
    affinity_seconds: int | None
    """The timeout of session affinity by client address; None means no affinity."""
    internal_local: bool
    """Whether traffic to the cluster IP goes to endpoints of this node only."""
    external_local: bool
    """Whether external traffic goes to endpoints of this node only."""
    cluster: tuple[Endpoint, ...]
    """The endpoints for traffic policy Cluster."""
    local: tuple[Endpoint, ...]
    """The endpoints for traffic policy Local."""
    on_node: frozenset[str]
    """The addresses among the endpoints that are on this node."""
    has_endpoints: bool
    """Whether the Service has usable endpoints on any node."""

    @property
    def internal(self) -> tuple[Endpoint, ...]:
        """The endpoints for traffic to the cluster IP."""
        return self.local if self.internal_local else self.cluster

    @property
    def is_external(self) -> bool:
        """Whether the port is reachable at other addresses than the cluster IP."""
        return bool(self.node_port or self.external_ips)


class HealthCheck(NamedTuple):
    """The answer of a Service's health check port on this node."""

    namespace: str
    name: str
    port: int
    local_endpoints: int
    """The number of ready endpoints on this node."""


@dataclass(frozen=True, slots=True)
class _SliceEndpoint:
    """An endpoint as its slice describes it."""

    endpoint: Endpoint
    local: bool
    ready: bool
    serving: bool
    terminating: bool
    zones: frozenset[str]
    """The zones that should use the endpoint; empty means that there is no hint."""
    nodes: frozenset[str]
    """The nodes that should use the endpoint; empty means that there is no hint."""


def service_keys(endpoint_slice: ObjView) -> tuple[str, ...]:
    """Return the key of the Service of an EndpointSlice, for an index; empty if it has none."""
    metadata = endpoint_slice["metadata"]
    name = (metadata.get("labels") or {}).get(SERVICE_NAME_LABEL)
    return (f"{metadata['namespace']}/{name}",) if name else ()


def is_proxied(service: ObjView) -> bool:
    """Return whether a Service has a cluster IP that this node translates."""
    spec, metadata = service.get("spec") or {}, service["metadata"]
    return (
        spec.get("type") != "ExternalName"
        and (spec.get("clusterIP") or "None") != "None"
        and PROXY_NAME_LABEL not in (metadata.get("labels") or {})
        and bool(_LABEL.fullmatch(metadata["name"]) and _LABEL.fullmatch(metadata["namespace"]))
    )


def service_ports(service: ObjView, slices: Sequence[ObjView], topology: Topology) -> list[ServicePort]:
    """Return the desired state of a Service's ports, for each address family that the Service has. `slices` are the
    EndpointSlices of the Service."""
    if not is_proxied(service):
        return []
    spec = service["spec"]
    addresses = {ip_address(each).version: each for each in reversed(spec.get("clusterIPs") or [spec["clusterIP"]])}
    found = []
    for family in sorted(addresses):
        own = [each for each in slices if each.get("addressType") == f"IPv{family}"]
        for port in spec.get("ports") or ():
            made = _service_port(service, port, own, family, addresses[family], topology)
            if made is not None:
                found.append(made)
    return found


def health_check(service: ObjView, slices: Sequence[ObjView], topology: Topology) -> HealthCheck | None:
    """Return the health check of a Service that has a health check port, or None."""
    spec, metadata = service.get("spec") or {}, service["metadata"]
    port = spec.get("healthCheckNodePort") or 0
    if not port or not is_proxied(service) or spec.get("externalTrafficPolicy") != "Local":
        return None
    names = {each.get("name") or "" for each in spec.get("ports") or ()}
    found = [each for name in names for each in _endpoints(slices, name, topology)]
    local = {each.endpoint.address for each in found if each.local and each.ready}
    return HealthCheck(metadata["namespace"], metadata["name"], port, len(local))


def _service_port(
    service: ObjView, port: ObjView, slices: Sequence[ObjView], family: int, cluster_ip: str, topology: Topology
) -> ServicePort | None:
    protocol = _PROTOCOLS.get(port.get("protocol") or "TCP")
    label = port.get("name") or str(port["port"])
    if protocol is None or not _LABEL.fullmatch(label):
        return None
    spec, metadata = service["spec"], service["metadata"]
    balancers = _of_family(balancer_addresses(service), family)
    external = (*_of_family(spec.get("externalIPs") or (), family), *balancers)
    ranges = _source_ranges(spec.get("loadBalancerSourceRanges") or (), family)
    node_port = port.get("nodePort") or 0
    internal_local = spec.get("internalTrafficPolicy") == "Local"
    external_local = spec.get("externalTrafficPolicy") == "Local"
    endpoints = list(_endpoints(slices, port.get("name") or "", topology))
    is_external = bool(node_port or external)
    cluster = _cluster_endpoints(endpoints, topology) if not internal_local or is_external else []
    local = []
    if internal_local or (external_local and is_external):
        local = _ready_or_terminating([each for each in endpoints if each.local])
    return ServicePort(
        namespace=metadata["namespace"],
        name=metadata["name"],
        label=label,
        protocol=protocol,
        family=family,
        port=port["port"],
        cluster_ip=str(ip_address(cluster_ip)),
        node_port=node_port,
        external_ips=tuple(dict.fromkeys(external)),
        firewalled_ips=tuple(dict.fromkeys(balancers)) if ranges else (),
        source_ranges=ranges,
        affinity_seconds=_affinity_seconds(spec),
        internal_local=internal_local,
        external_local=external_local,
        cluster=_sorted(cluster),
        local=_sorted(local),
        on_node=frozenset(each.endpoint.address for each in (*cluster, *local) if each.local),
        has_endpoints=bool(cluster or local or _ready_or_terminating(endpoints)),
    )


# -- endpoints ---------------------------------------------------------------------------------------------------------


def _endpoints(slices: Iterable[ObjView], port_name: str, topology: Topology) -> Iterable[_SliceEndpoint]:
    """Return the endpoints of a port of all slices; one that several slices have is returned once."""
    found: dict[Endpoint, _SliceEndpoint] = {}
    for each in slices:
        for port in each.get("ports") or ():
            if (port.get("name") or "") != port_name or not port.get("port"):
                continue
            for item in each.get("endpoints") or ():
                made = _endpoint(item, port["port"], topology)
                if made is not None and (made.endpoint not in found or made.local):
                    found[made.endpoint] = made
    return found.values()


def _endpoint(item: ObjView, port: int, topology: Topology) -> _SliceEndpoint | None:
    try:
        address = str(ip_address((item.get("addresses") or [""])[0]))
    except ValueError:
        return None
    conditions, hints = item.get("conditions") or {}, item.get("hints") or {}
    return _SliceEndpoint(
        Endpoint(address, port),
        local=item.get("nodeName") == topology.node,
        ready=conditions.get("ready") is not False,
        serving=conditions.get("serving") is not False,
        terminating=conditions.get("terminating") is True,
        zones=frozenset(each["name"] for each in hints.get("forZones") or ()),
        nodes=frozenset(each["name"] for each in hints.get("forNodes") or ()),
    )


def _cluster_endpoints(endpoints: Sequence[_SliceEndpoint], topology: Topology) -> list[_SliceEndpoint]:
    preferred = _preference([each for each in endpoints if each.ready], topology)
    ready = [each for each in endpoints if each.ready and preferred(each)]
    return ready or [each for each in endpoints if each.serving and each.terminating]


def _preference(ready: Sequence[_SliceEndpoint], topology: Topology) -> Callable[[_SliceEndpoint], bool]:
    """Return which endpoints the node should use. Hints are followed if all endpoints have one, and at least one
    endpoint is meant for this node."""
    if all(each.nodes for each in ready) and any(topology.node in each.nodes for each in ready):
        return lambda each: topology.node in each.nodes
    if topology.zone and all(each.zones for each in ready) and any(topology.zone in each.zones for each in ready):
        return lambda each: topology.zone in each.zones
    return lambda _: True


def _ready_or_terminating(endpoints: Sequence[_SliceEndpoint]) -> list[_SliceEndpoint]:
    ready = [each for each in endpoints if each.ready]
    return ready or [each for each in endpoints if each.serving and each.terminating]


def _sorted(endpoints: Iterable[_SliceEndpoint]) -> tuple[Endpoint, ...]:
    return tuple(sorted(each.endpoint for each in endpoints))


# -- addresses ---------------------------------------------------------------------------------------------------------


def balancer_addresses(service: ObjView) -> Iterator[str]:
    """Yield the addresses of a Service's load balancer that this node translates."""
    if service["spec"].get("type") != "LoadBalancer":
        return
    status: Mapping[str, ObjView] = service.get("status") or {}
    for each in (status.get("loadBalancer") or {}).get("ingress") or ():
        # Traffic for a balancer of mode Proxy has to go through the balancer.
        if each.get("ip") and each.get("ipMode", "VIP") != "Proxy":
            yield each["ip"]


def _of_family(addresses: Iterable[str], family: int) -> list[str]:
    found = []
    for each in addresses:
        try:
            address = ip_address(each)
        except ValueError:
            continue
        if address.version == family:
            found.append(str(address))
    return found


def _source_ranges(ranges: Iterable[str], family: int) -> tuple[str, ...]:
    """Return the ranges of a family without overlaps; empty means that all clients are accepted."""
    v4: list[IPv4Network] = []
    v6: list[IPv6Network] = []
    for each in ranges:
        try:
            network = ip_network(each.strip(), strict=False)
        except ValueError:
            continue
        if isinstance(network, IPv4Network):
            v4.append(network)
        else:
            v6.append(network)
    found = [*collapse_addresses(v4)] if family == 4 else [*collapse_addresses(v6)]
    return () if any(each.prefixlen == 0 for each in found) else tuple(map(str, found))


def _affinity_seconds(spec: ObjView) -> int | None:
    if spec.get("sessionAffinity") != "ClientIP":
        return None
    config = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
    return int(config.get("timeoutSeconds") or _DEFAULT_AFFINITY_SECONDS)
