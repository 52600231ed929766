"""Packet rules for the addresses of Pods: masquerading of traffic that leaves the cluster, and protection of the node.

Packets from a Pod must have an address of that Pod. The kernel has a route to each address of a Pod through the Pod's
interface, and a packet is dropped if the route back to its source is not through the interface by which it came: so the
check needs no list of Pods, and applies from a Pod's first packet on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Final

from setpoint.node.host.network.cluster_nodes import ClusterNodes
from setpoint.node.host.network.nft import NftError
from setpoint.node.host.network.route_plan import (
    DEFAULT_DEVICE,
    NodeAddresses,
    RoutePlan,
    Tunnel,
    valid_addresses,
    valid_networks,
)
from setpoint.node.host.network.ruleset import Fragment, NftChain, SectionTable, StateSection

log = logging.getLogger("setpoint.node.network")

POD_INTERFACES: Final = "veth*"
"""The names of the interfaces that the CNI plugin `ptp` creates on the node."""
_KEYWORDS: Final = {4: "ip", 6: "ip6"}


def spoofing_chain(
    own: NodeAddresses,
    others: Iterable[NodeAddresses] = (),
    tunnel: Tunnel | None = None,
    *,
    device: str = DEFAULT_DEVICE,
    interfaces: str = POD_INTERFACES,
) -> NftChain:
    """Return the chain that drops packets with false addresses. It precedes connection tracking and Services. `tunnel`
    is the VXLAN device with the name `device`; None if there is none."""
    rules = [
        f'iifname "{interfaces}" fib saddr . iif oif missing drop',
        # Loopback addresses are of no other machine and of no Pod, even if the kernel is set to route them.
        'iifname != "lo" ip daddr 127.0.0.0/8 drop',
        'iifname != "lo" ip saddr 127.0.0.0/8 drop',
    ]
    for version, keyword in _KEYWORDS.items():
        pods = [network for network in valid_networks(own.pod_cidrs) if network.version == version]
        if pods:
            rules.append(f'iifname != "lo" iifname != "{interfaces}" {keyword} saddr {{ {_networks(pods)} }} drop')
    if tunnel is not None:
        # VXLAN has no authentication: at least, the packets come from nodes, and have the addresses of their Pods.
        version = 6 if ":" in tunnel.local else 4
        nodes = [each for node in (own, *others) for each in valid_addresses(node.addresses) if each.version == version]
        keyword, peers = _KEYWORDS[version], _networks(ip_network(each) for each in nodes)
        rules += [
            f"fib daddr type local udp dport {tunnel.port} {keyword} saddr != {{ {peers} }} drop",
            f'iifname "{device}" fib saddr . iif oif missing drop',
        ]
    return NftChain(tuple(rules), "type filter hook prerouting priority raw; policy accept")


def masquerade_chain(
    own: NodeAddresses, others: Iterable[NodeAddresses], tunnelled: frozenset[str] = frozenset()
) -> NftChain:
    """Return the chain that gives packets of the node's Pods the address of the node if they leave the cluster.

    The addresses of nodes whose Pods are reached by VXLAN are outside of the cluster: the network between the nodes may
    not deliver packets with addresses of Pods, and answers would come by the tunnel. `tunnelled` has these addresses.
    """
    nodes = [own, *others]
    inside = [network for node in nodes for network in valid_networks(node.pod_cidrs)]
    direct = [node for node in nodes if node is own or tunnelled.isdisjoint(node.addresses)]
    inside += [ip_network(address) for node in direct for address in valid_addresses(node.addresses)]
    rules = []
    for version, keyword in _KEYWORDS.items():
        sources = [network for network in valid_networks(own.pod_cidrs) if network.version == version]
        if sources:
            targets = [network for network in inside if network.version == version]
            rules.append(
                f"{keyword} saddr {{ {_networks(sources)} }} {keyword} daddr != {{ {_networks(targets)} }} "
                "masquerade fully-random"
            )
    return NftChain(tuple(rules), "type nat hook postrouting priority srcnat; policy accept")


def _networks(networks: Iterable[IPv4Network | IPv6Network]) -> str:
    # Elements of a set must not overlap. Networks of one family are given.
    return ", ".join(str(each) for each in collapse_addresses(networks))  # type: ignore[type-var]


class AddressRules:
    """Keeps the rules for the addresses of Pods, which change with the Nodes of the cluster."""

    def __init__(
        self,
        nodes: ClusterNodes,
        table: SectionTable,
        *,
        interfaces: str = POD_INTERFACES,
        device: str = DEFAULT_DEVICE,
        masquerade: bool = True,
    ) -> None:
        """Create the rules of the own node. `interfaces` is the pattern for the interfaces of Pods, `device`
        the name of the VXLAN device; `masquerade` is False if the network routes addresses of Pods itself."""
        self._nodes = nodes
        self._table = table
        self._interfaces = interfaces
        self._device = device
        self._tunnel: Tunnel | None = None
        self._tunnelled: frozenset[str] = frozenset()
        """The addresses of the nodes whose Pods are reached by VXLAN."""
        self._masquerade = masquerade
        self._changed = asyncio.Event()
        self._section = StateSection(table.reference, self._desired)
        table.add_section(self._section)
        nodes.on_change.append(self._changed.set)

    async def run(self) -> None:
        """Keep the rules until cancelled."""
        await self._nodes.informer.synced.wait()
        while True:
            self._changed.clear()
            try:
                await self._table.update(self._section)
            except NftError as error:
                log.error("cannot change the rules for the addresses of Pods: %s", error)
            await self._changed.wait()

    def tunnel_planned(self, plan: RoutePlan) -> None:
        """Protect the VXLAN device of a plan; this is a callback for `NodeRoutes.on_plan`."""
        tunnel, tunnelled = plan.state.tunnel, frozenset(entry.address for entry in plan.state.forwarding)
        if (tunnel, tunnelled) != (self._tunnel, self._tunnelled):
            self._tunnel, self._tunnelled = tunnel, tunnelled
            self._changed.set()

    def _desired(self) -> Fragment | None:
        own, others = self._nodes.own, self._nodes.others
        if own is None:
            return None
        spoofing = spoofing_chain(own, others, self._tunnel, device=self._device, interfaces=self._interfaces)
        chains = {"address-spoofing": spoofing}
        if self._masquerade:
            chains["address-masquerade"] = masquerade_chain(own, others, self._tunnelled)
        return Fragment(chains=chains)
