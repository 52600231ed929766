"""Computes the routes to the Pods of other nodes, and the commands that lead from the kernel's state to them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import Final, NamedTuple

from setpoint.meta.objects import ObjView

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

DEFAULT_DEVICE: Final = "setpoint-vx"
DEFAULT_MTU: Final = 1500
_OVERHEAD: Final = {4: 50, 6: 70}
"""Bytes that VXLAN adds to a packet, by the version of the addresses of the nodes."""


class RouteMode(Enum):
    """How packets reach the Pods of other nodes."""

    AUTO = "auto"
    """Directly if the other node is on a subnet of this machine, otherwise by VXLAN."""
    HOST_GW = "host-gw"
    """Directly; nodes on other subnets are not reached."""
    VXLAN = "vxlan"
    """Always by VXLAN, for example because the network between the nodes drops packets with addresses of Pods."""


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """The settings of the routes. Those of VXLAN must be the same on all nodes."""

    mode: RouteMode = RouteMode.AUTO
    device: str = DEFAULT_DEVICE
    vni: int = 77
    """The VXLAN network identifier."""
    port: int = 8472
    """The UDP port of VXLAN."""
    protocol: int = 77
    """The protocol number that marks the routes of the agent; routes with other numbers are never changed."""


class NodeAddresses(NamedTuple):
    """The addresses of a node and of its Pods."""

    name: str
    pod_cidrs: tuple[str, ...]
    addresses: tuple[str, ...]
    """The internal addresses of the node in the order in which it reports them."""


class Link(NamedTuple):
    """A network interface of this machine that is up."""

    name: str
    mtu: int
    addresses: tuple[IPv4Interface | IPv6Interface, ...]


class Route(NamedTuple):
    destination: str
    gateway: str
    """The next hop; empty means that the destination is unreachable."""
    device: str
    """The interface; empty if there is no next hop."""
    onlink: bool


class Neighbour(NamedTuple):
    address: str
    mac: str


class ForwardingEntry(NamedTuple):
    """An entry of the forwarding database of VXLAN: the node behind a hardware address."""

    mac: str
    address: str


class Tunnel(NamedTuple):
    """The VXLAN device."""

    vni: int
    port: int
    local: str
    mac: str
    mtu: int
    addresses: frozenset[str]
    """Addresses with prefix lengths."""


@dataclass(frozen=True, slots=True)
class NetworkState:
    """The parts of the kernel's network state that belong to the agent."""

    routes: frozenset[Route] = frozenset()
    neighbours: frozenset[Neighbour] = frozenset()
    forwarding: frozenset[ForwardingEntry] = frozenset()
    tunnel: Tunnel | None = None


@dataclass(frozen=True, slots=True)
class RoutePlan:
    state: NetworkState
    mtu: int
    """The MTU of the interfaces of Pods."""
    problems: tuple[str, ...] = ()
    """One sentence for each range of Pod addresses that cannot be reached."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Lines for `ip -batch` and `bridge -batch`, in the order in which they must run."""

    before: list[str] = field(default_factory=list)
    """Lines for `ip`: removals, and the VXLAN device."""
    bridge: list[str] = field(default_factory=list)
    """Lines for `bridge`."""
    after: list[str] = field(default_factory=list)
    """Lines for `ip`: additions."""

    def __bool__(self) -> bool:
        return bool(self.before or self.bridge or self.after)


def node_addresses(node: ObjView) -> NodeAddresses:
    """Return the addresses of a Node and of its Pods."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    cidrs = spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else [])
    internal = (each["address"] for each in status.get("addresses") or () if each.get("type") == "InternalIP")
    return NodeAddresses(node["metadata"]["name"], tuple(cidrs), tuple(internal))


def tunnel_mac(node: str) -> str:
    """Return the hardware address of a node's VXLAN device. Every node computes it from the name."""
    # The first byte says that the address is local and not one of a group.
    return ":".join(("02", *(f"{byte:02x}" for byte in sha256(node.encode()).digest()[:5])))


def valid_addresses(texts: Iterable[str]) -> list[Address]:
    found: list[Address] = []
    for text in texts:
        try:
            found.append(ip_address(text))
        except ValueError:
            continue
    return found


def valid_networks(texts: Iterable[str]) -> list[Network]:
    found: list[Network] = []
    for text in texts:
        try:
            found.append(ip_network(text))
        except ValueError:
            continue
    return found


# -- the desired state -------------------------------------------------------------------------------------------------


def plan_routes(
    own: NodeAddresses, others: Iterable[NodeAddresses], links: Sequence[Link], settings: RouteSettings
) -> RoutePlan:
    """Return the desired state of the node `own`."""
    return _Planner(own, sorted(others), links, settings).plan()


class _Planner:
    def __init__(
        self, own: NodeAddresses, others: Sequence[NodeAddresses], links: Sequence[Link], settings: RouteSettings
    ) -> None:
        self._own = own
        self._others = others
        self._links = [link for link in links if link.name != settings.device]
        self._settings = settings
        self._taken = valid_networks(own.pod_cidrs)
        """Ranges of Pod addresses that have a route."""
        self._node_addresses = {address for node in (own, *others) for address in valid_addresses(node.addresses)} | {
            address.ip for link in self._links for address in link.addresses if link.name != "lo"
        }
        self._local = next(iter(valid_addresses(own.addresses)), None)
        """The address of this node for VXLAN; None if the node has not reported one."""
        self._routes: set[Route] = set()
        self._neighbours: set[Neighbour] = set()
        self._forwarding: set[ForwardingEntry] = set()
        self._problems: list[str] = []

    def plan(self) -> RoutePlan:
        for network in self._taken:
            # Packets to Pods that are gone must not leave by the default route.
            self._routes.add(Route(str(network), "", "", False))
        for node in self._others:
            for text in node.pod_cidrs:
                problem = self._add(node, text)
                if problem:
                    self._problems.append(f"the Pods {text} of node {node.name} cannot be reached: {problem}")
        mtu, tunnel = self._link_mtu(), None
        if self._forwarding or self._settings.mode is RouteMode.VXLAN:
            mtu -= _OVERHEAD[self._local.version if self._local else 4]
        if self._forwarding:
            tunnel = self._tunnel(mtu)
        state = NetworkState(frozenset(self._routes), frozenset(self._neighbours), frozenset(self._forwarding), tunnel)
        return RoutePlan(state, mtu, tuple(self._problems))

    def _add(self, node: NodeAddresses, text: str) -> str:
        """Add the route to a range of Pod addresses. Return the reason if there is none, otherwise an empty text."""
        try:
            network = ip_network(text)
        except ValueError:
            return "the range is invalid"
        if any(network.version == each.version and network.overlaps(each) for each in self._taken):
            return "the range overlaps with that of another node"
        if any(address in network for address in self._node_addresses):
            # Such a route would cut off nodes.
            return "the range contains the address of a node"
        addresses = [each for each in valid_addresses(node.addresses) if not self._is_own(each)]
        if not addresses:
            return "the node has reported no address of its own"
        mode = self._settings.mode
        if mode is not RouteMode.VXLAN:
            found = self._direct_route(network, addresses)
            if found is not None:
                self._taken.append(network)
                self._routes.add(found)
                return ""
            if mode is RouteMode.HOST_GW:
                return "the node has no address of this family on a subnet of this machine"
        return self._add_tunnel_route(node, network, addresses)

    def _is_own(self, address: Address) -> bool:
        return str(address) in self._own.addresses or any(
            address == each.ip for link in self._links for each in link.addresses
        )

    def _direct_route(self, network: Network, addresses: Iterable[Address]) -> Route | None:
        for address in addresses:
            if address.version == network.version:
                link = self._connected_link(address)
                if link is not None:
                    return Route(str(network), str(address), link, False)
        return None

    def _connected_link(self, address: Address) -> str | None:
        """Return the interface on whose subnet an address is: the one with the longest prefix, or None."""
        found = [
            (each.network.prefixlen, link.name)
            for link in self._links
            for each in link.addresses
            if link.name != "lo" and each.version == address.version and address in each.network
        ]
        return max(found)[1] if found else None

    def _add_tunnel_route(self, node: NodeAddresses, network: Network, addresses: Iterable[Address]) -> str:
        local = self._local
        if local is None:
            return "this node has reported no address"
        remote = next((each for each in addresses if each.version == local.version), None)
        if remote is None:
            return f"the node has no address of the family of {local}"
        mac, gateway = tunnel_mac(node.name), str(network.network_address)
        self._taken.append(network)
        self._routes.add(Route(str(network), gateway, self._settings.device, True))
        self._neighbours.add(Neighbour(gateway, mac))
        self._forwarding.add(ForwardingEntry(mac, str(remote)))
        return ""

    def _tunnel(self, mtu: int) -> Tunnel:
        own = valid_networks(self._own.pod_cidrs)
        return Tunnel(
            self._settings.vni,
            self._settings.port,
            str(self._local),
            tunnel_mac(self._own.name),
            mtu,
            frozenset(f"{network.network_address}/{network.max_prefixlen}" for network in own),
        )

    def _link_mtu(self) -> int:
        """Return the MTU of the interface with the first address of the node."""
        for link in self._links:
            if link.name != "lo" and any(each.ip == self._local for each in link.addresses):
                return link.mtu
        return DEFAULT_MTU


# -- the observed state ------------------------------------------------------------------------------------------------


def parse_links(listed: Iterable[ObjView]) -> list[Link]:
    """Return the interfaces that are up, from the output of `ip -json -details address`."""
    return [
        Link(each["ifname"], each.get("mtu") or DEFAULT_MTU, tuple(map(ip_interface, _addresses_of(each))))
        for each in listed
        if "UP" in each.get("flags", ())
    ]


def parse_routes(listed: Iterable[ObjView], default: str) -> frozenset[Route]:
    """Return the routes that `ip -json route` lists; `default` is the destination of default routes, by family."""
    found = set()
    for each in listed:
        destination = default if each["dst"] == "default" else str(ip_network(each["dst"]))
        gateway = each.get("gateway") or ""
        device = (each.get("dev") or "") if gateway else ""
        found.add(Route(destination, gateway, device, "onlink" in each.get("flags", ())))
    return frozenset(found)


def parse_neighbours(listed: Iterable[ObjView]) -> frozenset[Neighbour]:
    return frozenset(
        Neighbour(each["dst"], each.get("lladdr") or "") for each in listed if "PERMANENT" in each.get("state", ())
    )


def parse_forwarding(listed: Iterable[ObjView]) -> frozenset[ForwardingEntry]:
    return frozenset(ForwardingEntry(each["mac"], each["dst"]) for each in listed if each.get("dst"))


def parse_tunnel(listed: Iterable[ObjView], device: str) -> Tunnel | None:
    """Return the VXLAN device, from the output of `ip -json -details address`; None if there is none. A device with
    other properties than those of this module is one with a VNI of -1."""
    for each in listed:
        if each["ifname"] != device:
            continue
        info: Mapping[str, object] = (each.get("linkinfo") or {}).get("info_data") or {}
        usable = (each.get("linkinfo") or {}).get("info_kind") == "vxlan" and not info.get("learning")
        vni, port = info.get("id"), info.get("port")
        return Tunnel(
            vni if usable and isinstance(vni, int) and "UP" in each.get("flags", ()) else -1,
            port if isinstance(port, int) else 0,
            str(info.get("local") or info.get("local6") or ""),
            each.get("address") or "",
            each.get("mtu") or 0,
            frozenset(text for text in _addresses_of(each)),
        )
    return None


def _addresses_of(link: ObjView) -> list[str]:
    return [
        f"{each['local']}/{each['prefixlen']}"
        for each in link.get("addr_info") or ()
        if each.get("local") and each.get("scope") != "link"
    ]


# -- differences -------------------------------------------------------------------------------------------------------


def route_changes(observed: NetworkState, desired: NetworkState, settings: RouteSettings) -> Changes:
    """Return the commands that lead from one state to the other."""
    changes, device = Changes(), settings.device
    replaced = observed.tunnel is not None and not _same_device(observed.tunnel, desired.tunnel)
    if replaced:
        # The kernel removes the routes and all entries of the device with it.
        changes.before.append(f"link delete dev {device}")
        observed = NetworkState(frozenset(each for each in observed.routes if each.device != device))
    for route in sorted(observed.routes - desired.routes):
        kind = "" if route.gateway else "unreachable "
        changes.before.append(f"route delete {kind}{route.destination} proto {settings.protocol}")
    for neighbour in sorted(observed.neighbours - desired.neighbours):
        changes.before.append(f"neighbour delete {neighbour.address} dev {device}")
    if desired.tunnel is not None:
        changes.before.extend(_tunnel_changes(observed.tunnel, desired.tunnel, device))
    for entry in sorted(observed.forwarding - desired.forwarding):
        changes.bridge.append(f"fdb delete {entry.mac} dev {device} dst {entry.address}")
    for entry in sorted(desired.forwarding - observed.forwarding):
        changes.bridge.append(f"fdb append {entry.mac} dev {device} dst {entry.address}")
    for neighbour in sorted(desired.neighbours - observed.neighbours):
        changes.after.append(f"neighbour replace {neighbour.address} lladdr {neighbour.mac} dev {device} nud permanent")
    # `add` rather than `replace`, which would take over a route of another program.
    changes.after.extend(_route_addition(each, settings) for each in sorted(desired.routes - observed.routes))
    return changes


def _same_device(observed: Tunnel, desired: Tunnel | None) -> bool:
    return desired is not None and observed[:3] == desired[:3]


def _tunnel_changes(observed: Tunnel | None, desired: Tunnel, device: str) -> Iterable[str]:
    if observed is None:
        yield (
            f"link add {device} address {desired.mac} mtu {desired.mtu} type vxlan id {desired.vni} "
            f"dstport {desired.port} local {desired.local} nolearning"
        )
        yield f"link set dev {device} addrgenmode none up"
    elif (observed.mac, observed.mtu) != (desired.mac, desired.mtu):
        yield f"link set dev {device} address {desired.mac} mtu {desired.mtu}"
    had = observed.addresses if observed is not None else frozenset()
    for address in sorted(had - desired.addresses):
        yield f"address delete {address} dev {device}"
    for address in sorted(desired.addresses - had):
        yield f"address add {address} dev {device}{' nodad' if ':' in address else ''}"


def _route_addition(route: Route, settings: RouteSettings) -> str:
    if not route.gateway:
        return f"route add unreachable {route.destination} proto {settings.protocol}"
    onlink = " onlink" if route.onlink else ""
    return f"route add {route.destination} via {route.gateway} dev {route.device}{onlink} proto {settings.protocol}"
