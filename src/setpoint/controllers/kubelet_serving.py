"""Decides whether the serving certificate that a kubelet requests is approved automatically.

Upstream leaves this to administrators, because a certificate of the cluster's authority for any name would let a node
pose as the API server. Here a request is approved if all of this holds:

- its signer accepts it: the organization is `system:nodes`, and it has DNS names and addresses alone;
- the node itself made it: the user is `system:node:NAME`, and the common name is the same;
- the user may create `certificatesigningrequests/selfnodeserver`, a permission that is granted when nodes may join;
- each name and address is one that the Node reports, and that no other Node reports;
- none of them belongs to a Service, or means the machine itself;
- none of them belongs to an API server, unless the Node has the label of control plane machines, which a node cannot
  set itself.

All other requests stay pending, for an administrator to decide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.errors import NotFound
from setpoint.meta.objects import Obj, ObjView

if TYPE_CHECKING:
    from setpoint.controllers.certificate_issuing import ParsedRequest

SELF_NODE_SERVER = "selfnodeserver"
_NODES, _SERVICES, _LEASES = builtin("nodes"), builtin("services"), builtin("leases", "coordination.k8s.io")
_SLICES = builtin("endpointslices", "discovery.k8s.io")
_SERVICE, _NAMESPACE = "kubernetes", "default"
_IDENTITIES = "apiserver.kubernetes.io/identity=kube-apiserver"
_HOSTNAME = "kubernetes.io/hostname"
_USER = "system:node:"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
"""The label of Nodes that are machines of the control plane. The plugin NodeRestriction keeps nodes from setting it."""
_IP_TYPES, _DNS_TYPES = ("InternalIP", "ExternalIP"), ("Hostname", "InternalDNS", "ExternalDNS")
_RESERVED = ("localhost", "kubernetes", "kubernetes.default")
_RESERVED_SUFFIXES = (".localhost", ".svc", ".cluster.local")
_SERVICE_PART = ".svc."


@dataclass(frozen=True, slots=True)
class Names:
    """DNS names in lower case, and IP addresses in their canonical form."""

    dns: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()

    @classmethod
    def of(cls, texts: Iterable[str]) -> Names:
        dns: set[str] = set()
        addresses: set[str] = set()
        for text in texts:
            try:
                addresses.add(str(ip_address(text)))
            except ValueError:
                dns.add(text.lower().rstrip("."))
        return cls(frozenset(dns), frozenset(addresses))


def node_names(node: ObjView) -> Names:
    """Return the names and addresses that a Node reports."""
    found = (node.get("status") or {}).get("addresses") or ()
    known = (*_IP_TYPES, *_DNS_TYPES)
    return Names.of(str(one.get("address") or "") for one in found if one.get("type") in known and one.get("address"))


def requested_names(request: ParsedRequest) -> Names:
    """Return the names and addresses in a request whose signer accepts it."""
    return Names.of(str(name.value) for name in request.names)


def requested_by(spec: ObjView, request: ParsedRequest) -> str:
    """Return the name of the node that requests a certificate for itself; empty if the requester is anyone else."""
    user = str(spec.get("username") or "")
    own = user.startswith(_USER) and user == request.common_name and "system:nodes" in (spec.get("groups") or ())
    return user.removeprefix(_USER) if own else ""


def problem(node: str, wanted: Names, nodes: Collection[Obj], servers: Names, services: Names) -> str:
    """Return why a node must not get a certificate for these names; empty if it may. `servers` are those of the
    machines of API servers, `services` those of the Service `kubernetes`."""
    for name in sorted(wanted.dns):
        if name in _RESERVED or name.endswith(_RESERVED_SUFFIXES) or _SERVICE_PART in name or "*" in name:
            return f"the name {name} is reserved"
    for text in sorted(wanted.addresses):
        address = ip_address(text)
        if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
            return f"the address {text} is not that of one machine"
    if taken := _shared(wanted, services):
        return f"{taken} belongs to the Service {_SERVICE}"
    own = next((one for one in nodes if one["metadata"]["name"] == node), None)
    if own is None:
        return f"there is no Node {node}"
    trusted = CONTROL_PLANE in (own["metadata"].get("labels") or {})
    if not trusted and (taken := _shared(wanted, servers)):
        return f"{taken} belongs to an API server"
    reported = node_names(own)
    missing = sorted((wanted.dns - reported.dns) | (wanted.addresses - reported.addresses))
    if missing:
        return f"the Node {node} does not report {missing[0]}"
    for other in nodes:
        if other is own:
            continue
        if shared := _shared(wanted, node_names(other)):
            return f"the Node {other['metadata']['name']} reports {shared} too"
    return ""


def _shared(one: Names, other: Names) -> str:
    """Return the first name or address that both have; empty if there is none."""
    return next(iter(sorted((one.dns & other.dns) | (one.addresses & other.addresses))), "")


async def serving_problem(client: Client, node: str, request: ParsedRequest) -> str:
    """Return why the request of this node is not approved; empty if it is."""
    nodes = (await client.list(_NODES)).items
    return problem(node, requested_names(request), nodes, await _server_names(client), await _service_addresses(client))


async def _service_addresses(client: Client) -> Names:
    try:
        spec = (await client.get(_SERVICES, _SERVICE, _NAMESPACE))["spec"]
    except NotFound:
        return Names()
    return Names.of(spec.get("clusterIPs") or ())


async def _server_names(client: Client) -> Names:
    """Return the addresses of the API servers, and the names of their machines."""
    found: list[str] = []
    for part in (await client.list(_SLICES, _NAMESPACE, label_selector=f"kubernetes.io/service-name={_SERVICE}")).items:
        for endpoint in part.get("endpoints") or ():
            found += endpoint.get("addresses") or []
    for lease in (await client.list(_LEASES, "kube-system", label_selector=_IDENTITIES)).items:
        name = (lease["metadata"].get("labels") or {}).get(_HOSTNAME)
        if name:
            found.append(name)
    return Names.of(found)
