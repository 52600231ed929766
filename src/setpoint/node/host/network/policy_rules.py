"""Translates NetworkPolicies into sets, maps and chains of nftables, for the Pods of one node.

Packets are judged in the forward hook, where destinations of Services have been replaced by those of endpoints. A
packet from an isolated Pod is looked up by its source address, and one to an isolated Pod by its destination address:
each lookup leads to a chain that allows what the policies allow, and drops the rest. Pods with the same policies share
a chain. Selectors are sets of addresses: a new Pod or a changed label changes elements, and no rules.

Every packet of a connection in its original direction is judged, and replies are accepted. So a connection ends with
its next packets when it is no longer allowed, without changes to connection tracking. Packets between a Pod and its own
node do not pass the forward hook, and are always allowed, as are those of a Pod to itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from ipaddress import IPv4Network, IPv6Network, collapse_addresses
from typing import Final

from setpoint.node.host.network.policies import (
    AddressBlock,
    AllowRule,
    Direction,
    NamedPort,
    PeerSelector,
    PodFacts,
    Policy,
    PolicyIndex,
    PortRange,
)
from setpoint.node.host.network.ruleset import Fragment, NftChain, NftSet

Version = int
"""The version of an address family: 4 or 6."""

_VERSIONS: Final = (4, 6)
_KEYWORD: Final = {4: "ip", 6: "ip6"}
_TYPE: Final = {4: "ipv4_addr", 6: "ipv6_addr"}
_PEER: Final = {Direction.INGRESS: "saddr", Direction.EGRESS: "daddr"}
_POD: Final = {Direction.INGRESS: "daddr", Direction.EGRESS: "saddr"}
_HOOK: Final = "type filter hook forward priority filter; policy accept"
FORWARD_CHAIN: Final = "policy-forward"


def _version(address: str) -> Version:
    return 6 if ":" in address else 4


class PolicyRules:
    """Computes the desired state of the policies' part of the table. Sets whose Pods did not change are not computed
    again."""

    def __init__(self, index: PolicyIndex) -> None:
        self._index = index
        self._cache: dict[str, tuple[int, frozenset[str]]] = {}
        """Elements by the name of the set, with the version of the Pods from which they were computed."""

    def state(self) -> Fragment:
        """Return the state for the policies, Pods and namespaces that the index has now."""
        built = _Build(self._index, self._cache)
        state = built.state()
        self._cache = built.cache
        return state


class _Build:
    def __init__(self, index: PolicyIndex, cached: dict[str, tuple[int, frozenset[str]]]) -> None:
        self._index = index
        self._cached = cached
        self.cache: dict[str, tuple[int, frozenset[str]]] = {}
        self._sets: dict[str, NftSet] = {}
        self._chains: dict[str, NftChain] = {}
        self._local = {address: pod for pod in index.local_pods() for address in pod.addresses}

    def state(self) -> Fragment:
        forward = ["ct direction reply accept", "ct state related accept"]
        for version in _VERSIONS:
            forward += self._family(version)
        self._chains[FORWARD_CHAIN] = NftChain(tuple(forward), _HOOK)
        return Fragment(self._sets, self._chains)

    def _family(self, version: Version) -> Iterator[str]:
        """Define the sets and chains of an address family, and yield its rules of the base chain."""
        keyword, kind = _KEYWORD[version], _TYPE[version]
        maps: dict[Direction, set[str]] = {direction: set() for direction in Direction}
        isolated = set()
        chains: dict[tuple[Direction, tuple[str, ...]], str] = {}
        for address, pod in self._local.items():
            if _version(address) != version:
                continue
            for direction in Direction:
                policies = self._index.isolating(pod, direction)
                if policies:
                    key = (direction, tuple(policy.key for policy in policies))
                    if key not in chains:
                        chains[key] = self._chain(policies, direction, version)
                    maps[direction].add(f"{address} : jump {chains[key]}")
                    isolated.add(f"{address} . {address}")
        itself = f"policy-self-{version}"
        self._sets[itself] = NftSet(f"{kind} . {kind}", frozenset(isolated))
        yield f"{keyword} saddr . {keyword} daddr @{itself} accept"
        for direction in (Direction.EGRESS, Direction.INGRESS):
            name = f"policy-{direction.value}-{version}"
            self._sets[name] = NftSet(f"{kind} : verdict", frozenset(maps[direction]))
            yield f"{keyword} {_POD[direction]} vmap @{name}"

    def _chain(self, policies: Iterable[Policy], direction: Direction, version: Version) -> str:
        """Define the chain of Pods that these policies isolate, and return its name."""
        found = {
            text: None
            for policy in policies
            for rule in policy.rules[direction]
            for text in self._rules(rule, direction, version)
        }
        rules = (*found, "drop")
        digest = sha256("\n".join(rules).encode()).hexdigest()[:16]
        name = f"policy-{direction.value}-{version}-{digest}"
        self._chains[name] = NftChain(rules)
        return name

    def _rules(self, rule: AllowRule, direction: Direction, version: Version) -> Iterator[str]:
        # `return` rather than `accept`: a packet that one Pod may send is one that the other may have to refuse.
        ports = list(self._port_matches(rule, direction, version))
        for peer in self._peer_matches(rule, direction, version):
            for port in ports:
                yield " ".join(part for part in (peer, port, "return") if part)

    def _peer_matches(self, rule: AllowRule, direction: Direction, version: Version) -> Iterator[str]:
        """Yield expressions for the other end of the connection; an empty one matches all."""
        if rule.any_peer:
            yield ""
            return
        match = f"{_KEYWORD[version]} {_PEER[direction]}"
        for selector in rule.peers:
            yield f"{match} @{self._peer_set(selector, version)}"
        yield from _block_matches((each for each in rule.blocks if each.network.version == version), match)

    def _port_matches(self, rule: AllowRule, direction: Direction, version: Version) -> Iterator[str]:
        """Yield expressions for the destination port; an empty one matches all protocols."""
        if rule.any_port:
            yield ""
            return
        for protocol in sorted({each.protocol for each in rule.ports}):
            yield _range_match(protocol, [each for each in rule.ports if each.protocol == protocol])
        for named in rule.named_ports:
            name = self._port_set(named, direction, version)
            yield f"{_KEYWORD[version]} daddr . meta l4proto . th dport @{name}"

    # -- sets ----------------------------------------------------------------------------------------------------------

    def _peer_set(self, selector: PeerSelector, version: Version) -> str:
        """Define the set of the addresses of the Pods that a selector selects, and return its name."""
        name = f"policy-peers-{version}-{selector.digest}"
        if name not in self._sets:
            selected = self._index.selected[selector]
            found = self._reusable(name, selected.version)
            if found is None:
                members = selected.members.values()
                found = frozenset(each for addresses in members for each in addresses if _version(each) == version)
            self._define(name, NftSet(_TYPE[version], found), selected.version)
        return name

    def _port_set(self, named: NamedPort, direction: Direction, version: Version) -> str:
        """Define the set of the addresses and ports for a named port of the destination, and return its name. Inbound
        packets are for Pods of this node; others may be for any Pod."""
        digest = sha256(f"{named.protocol}/{named.name}".encode()).hexdigest()[:16]
        name = f"policy-ports-{direction.value}-{version}-{digest}"
        if name not in self._sets:
            users = self._index.named.get(named)
            number = users.version if users is not None else 0
            found = self._reusable(name, number)
            if found is None:
                local = direction is Direction.INGRESS
                found = frozenset(
                    f"{address} . {named.protocol} . {port}"
                    for key, (addresses, ports) in (users.members.items() if users is not None else ())
                    if not local or self._index.pods[key].node == self._index.node
                    for address in addresses
                    if _version(address) == version
                    for port in ports
                )
            self._define(name, NftSet(f"{_TYPE[version]} . inet_proto . inet_service", found), number)
        return name

    def _reusable(self, name: str, version: int) -> frozenset[str] | None:
        found = self._cached.get(name)
        return found[1] if found is not None and found[0] == version else None

    def _define(self, name: str, found: NftSet, version: int) -> None:
        self._sets[name] = found
        self.cache[name] = (version, found.elements)


def _block_matches(blocks: Iterable[AddressBlock], match: str) -> Iterator[str]:
    plain = []
    for block in blocks:
        if not block.exceptions:
            plain.append(block.network)
            continue
        excluded = f"{match} != {{ {_networks(block.exceptions)} }}"
        yield f"{match} {block.network} {excluded}" if block.network.prefixlen else excluded
    if any(not network.prefixlen for network in plain):
        yield ""  # Each chain is for one address family.
    elif plain:
        yield f"{match} {{ {_networks(plain)} }}"


def _networks(networks: Iterable[IPv4Network | IPv6Network]) -> str:
    # Elements of a set must not overlap. Blocks of one family are given.
    return ", ".join(str(each) for each in collapse_addresses(networks))  # type: ignore[type-var]


def _range_match(protocol: str, ranges: Iterable[PortRange]) -> str:
    merged: list[tuple[int, int]] = []
    for each in sorted(ranges):
        if merged and each.first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], each.last))
        else:
            merged.append((each.first, each.last))
    if any(PortRange(protocol, *each).is_any for each in merged):
        return f"meta l4proto {protocol}"
    texts = (str(first) if first == last else f"{first}-{last}" for first, last in merged)
    return f"meta l4proto {protocol} th dport {{ {', '.join(texts)} }}"


def isolated_pods(index: PolicyIndex) -> list[PodFacts]:
    """Return the Pods of the node that a policy isolates for at least one direction."""
    return [pod for pod in index.local_pods() if any(index.isolating(pod, each) for each in Direction)]
