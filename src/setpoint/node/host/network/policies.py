"""NetworkPolicies as values: which Pods they isolate, and which peers and ports they allow. Pure.

`PolicyIndex` holds the policies, Pods and namespaces of the cluster, and keeps the Pods that each selector selects up
to date: a change costs time in proportion to the number of distinct selectors, not to the number of Pods.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import count
from typing import Any, Final, NamedTuple

from setpoint.meta.objects import ObjView
from setpoint.meta.selectors import NOTHING, Selector, SelectorError, from_label_selector

Network = IPv4Network | IPv6Network

_FINISHED: Final = ("Succeeded", "Failed")
_LAST_PORT: Final = 65535


class Direction(Enum):
    INGRESS = "ingress"
    EGRESS = "egress"


_TYPES: Final = {Direction.INGRESS: "Ingress", Direction.EGRESS: "Egress"}
_PEERS: Final = {Direction.INGRESS: "from", Direction.EGRESS: "to"}


class NamedPort(NamedTuple):
    """A port that a policy names, or that a container names."""

    protocol: str
    name: str


class PortRange(NamedTuple):
    protocol: str
    """`tcp`, `udp` or `sctp`."""
    first: int
    last: int

    @property
    def is_any(self) -> bool:
        return (self.first, self.last) == (0, _LAST_PORT)


class AddressBlock(NamedTuple):
    network: Network
    exceptions: tuple[Network, ...]


class PeerSelector(NamedTuple):
    """A selector of peers in a canonical form: equal selectors select the same Pods."""

    namespace: str | None
    """The namespace of the Pods; None if they are in the namespaces that `namespaces` selects."""
    namespaces: str
    """The selector of namespaces as JSON."""
    pods: str
    """The selector of Pods as JSON."""

    @property
    def digest(self) -> str:
        return sha256(json.dumps(self).encode()).hexdigest()[:16]


class AllowRule(NamedTuple):
    """Traffic that a policy allows: with one of the peers, to one of the ports."""

    any_peer: bool
    peers: tuple[PeerSelector, ...]
    blocks: tuple[AddressBlock, ...]
    any_port: bool
    """Whether all protocols and ports are allowed."""
    ports: tuple[PortRange, ...]
    named_ports: tuple[NamedPort, ...]


class Policy(NamedTuple):
    key: str
    """Namespace and name."""
    namespace: str
    pods: Selector
    rules: Mapping[Direction, tuple[AllowRule, ...]]
    """The allowed traffic by direction. Selected Pods are isolated for the directions that are keys."""


class PodFacts(NamedTuple):
    """The properties of a Pod with addresses of its own that policies depend on."""

    key: str
    """Namespace and name."""
    namespace: str
    labels: Mapping[str, str]
    node: str
    addresses: tuple[str, ...]
    ports: tuple[tuple[NamedPort, int], ...]


# -- parsing -----------------------------------------------------------------------------------------------------------


def pod_facts(pod: ObjView, addresses: Iterable[str] | None = None) -> PodFacts | None:
    """Return the facts of a Pod; None if policies do not apply to it, because it has the addresses of its node, or
    none, or is finished. `addresses` replaces the addresses of the status."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    if spec.get("hostNetwork") or status.get("phase") in _FINISHED:
        return None
    if addresses is None:
        addresses = [each["ip"] for each in status.get("podIPs") or () if each.get("ip")]
        if not addresses and status.get("podIP"):
            addresses = [status["podIP"]]
    known = []
    for text in addresses:
        with suppress(ValueError):
            known.append(str(ip_address(text)))
    if not known:
        return None
    namespace = meta["namespace"]
    return PodFacts(
        f"{namespace}/{meta['name']}",
        namespace,
        dict(meta.get("labels") or {}),
        spec.get("nodeName") or "",
        tuple(known),
        tuple(_container_ports(spec)),
    )


def _container_ports(spec: Mapping[str, Any]) -> Iterator[tuple[NamedPort, int]]:
    sidecars = (each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always")
    for container in (*sidecars, *(spec.get("containers") or ())):
        for port in container.get("ports") or ():
            if port.get("name") and port.get("containerPort"):
                protocol = (port.get("protocol") or "TCP").lower()
                yield NamedPort(protocol, port["name"]), port["containerPort"]


def parse_policy(policy: ObjView) -> Policy:
    """Parse a NetworkPolicy. Parts that the server would not accept allow nothing."""
    meta, spec = policy["metadata"], policy.get("spec") or {}
    types = spec.get("policyTypes") or (["Ingress", "Egress"] if spec.get("egress") else ["Ingress"])
    namespace = meta["namespace"]
    rules = {
        direction: tuple(_parse_rule(each, _PEERS[direction], namespace) for each in spec.get(direction.value) or ())
        for direction in Direction
        if _TYPES[direction] in types
    }
    # An absent selector is an empty one, which selects all Pods.
    return Policy(f"{namespace}/{meta['name']}", namespace, _selector(spec.get("podSelector") or {}), rules)


def _parse_rule(rule: Mapping[str, Any], field_name: str, namespace: str) -> AllowRule:
    peers, blocks = [], []
    for peer in rule.get(field_name) or ():
        if peer.get("ipBlock") is not None:
            block = _parse_block(peer["ipBlock"])
            if block is not None:
                blocks.append(block)
        elif peer.get("namespaceSelector") is not None or peer.get("podSelector") is not None:
            peers.append(_peer_selector(peer, namespace))
    ports, named = [], []
    for port in rule.get("ports") or ():
        protocol, number = (port.get("protocol") or "TCP").lower(), port.get("port")
        if number is None:
            ports.append(PortRange(protocol, 0, _LAST_PORT))
        elif isinstance(number, int):
            ports.append(PortRange(protocol, number, port.get("endPort") or number))
        else:
            named.append(NamedPort(protocol, number))
    return AllowRule(
        not rule.get(field_name), tuple(peers), tuple(blocks), not rule.get("ports"), tuple(ports), tuple(named)
    )


def _peer_selector(peer: Mapping[str, Any], namespace: str) -> PeerSelector:
    pods, namespaces = peer.get("podSelector"), peer.get("namespaceSelector")
    if namespaces is None:
        return PeerSelector(namespace, "{}", _canonical(pods))
    return PeerSelector(None, _canonical(namespaces), _canonical(pods or {}))


def _canonical(selector: Any) -> str:
    return json.dumps(selector, sort_keys=True, separators=(",", ":"))


def _parse_block(block: Mapping[str, Any]) -> AddressBlock | None:
    try:
        network = ip_network(block.get("cidr") or "", strict=False)
        exceptions = [ip_network(each, strict=False) for each in block.get("except") or ()]
    except ValueError:
        return None
    return AddressBlock(network, tuple(each for each in exceptions if each.version == network.version))


def _selector(selector: Mapping[str, Any]) -> Selector:
    try:
        return from_label_selector(selector)
    except SelectorError:
        return NOTHING


# -- the index ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SelectedPods:
    """The Pods that a selector of peers selects."""

    selector: PeerSelector
    pods: Selector
    namespaces: Selector
    versions: Iterator[int]
    """A source of numbers that are never used twice, not even for a selector that is removed and added again."""
    users: int = 0
    """The number of rules that use the selector."""
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Addresses by the key of the Pod."""
    version: int = 0
    """Changes whenever the members change."""

    def selects(self, pod: PodFacts, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        if self.selector.namespace is not None:
            if pod.namespace != self.selector.namespace:
                return False
        else:
            labels = namespaces.get(pod.namespace)
            if labels is None or not self.namespaces.matches(labels):
                return False
        return self.pods.matches(pod.labels)

    def update(self, key: str, addresses: tuple[str, ...] | None) -> None:
        """Set the addresses of a member; None if the Pod is not one."""
        if self.members.get(key) == addresses:
            return
        if addresses is None:
            del self.members[key]
        else:
            self.members[key] = addresses
        self.version = next(self.versions)


@dataclass(slots=True)
class PortUsers:
    """The Pods that have a port of a name."""

    members: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = field(default_factory=dict)
    """Addresses and port numbers by the key of the Pod."""
    version: int = 0
    """Changes whenever the members change."""


class PolicyIndex:
    """The policies, Pods and namespaces of the cluster, seen from one node."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.policies: dict[str, Policy] = {}
        self.pods: dict[str, PodFacts] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """Labels by name."""
        self.selected: dict[PeerSelector, SelectedPods] = {}
        """The Pods of each selector that a policy uses."""
        self.named: dict[NamedPort, PortUsers] = {}
        """The Pods that have a port of a name."""
        self._by_namespace: dict[str, dict[str, Policy]] = {}
        self._versions = count(1)

    # -- changes -------------------------------------------------------------------------------------------------------

    def set_policy(self, key: str, policy: Policy | None) -> None:
        old = self.policies.pop(key, None)
        # The new selectors first: those that remain keep their members.
        if old is not None:
            del self._by_namespace[old.namespace][key]
        if policy is not None:
            self.policies[key] = policy
            self._by_namespace.setdefault(policy.namespace, {})[key] = policy
            for selector in _peers_of(policy):
                self._use(selector)
        for selector in _peers_of(old) if old is not None else ():
            self.selected[selector].users -= 1
            if not self.selected[selector].users:
                del self.selected[selector]

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = labels
        affected = [each for each in self.selected.values() if each.selector.namespace is None]
        if affected:
            for pod in self.pods.values():
                if pod.namespace == name:
                    self._update_members(pod, affected)

    def set_pod(self, key: str, pod: PodFacts | None) -> bool:
        """Set the facts of a Pod; None if there are none. Return whether anything changed."""
        old = self.pods.get(key)
        if old == pod:
            return False
        if old is not None:
            # The Pod that changed last is the last one: if two have the same address, the older one is about to end.
            del self.pods[key]
        self._update_ports(key, old, pod)
        if pod is None:
            for each in self.selected.values():
                each.update(key, None)
            return True
        self.pods[key] = pod
        self._update_members(pod, self.selected.values())
        return True

    # -- queries -------------------------------------------------------------------------------------------------------

    def local_pods(self) -> Iterator[PodFacts]:
        return (pod for pod in self.pods.values() if pod.node == self.node)

    def isolating(self, pod: PodFacts, direction: Direction) -> list[Policy]:
        """Return the policies that isolate a Pod for a direction, ordered by name; it is not isolated if empty."""
        return sorted(
            (
                each
                for each in self._by_namespace.get(pod.namespace, {}).values()
                if direction in each.rules and each.pods.matches(pod.labels)
            ),
            key=lambda policy: policy.key,
        )

    def _use(self, selector: PeerSelector) -> None:
        found = self.selected.get(selector)
        if found is None:
            found = self.selected[selector] = SelectedPods(
                selector,
                _selector(json.loads(selector.pods)),
                _selector(json.loads(selector.namespaces)),
                self._versions,
            )
            for pod in self.pods.values():
                self._update_members(pod, (found,))
        found.users += 1

    def _update_members(self, pod: PodFacts, selected: Iterable[SelectedPods]) -> None:
        for each in selected:
            each.update(pod.key, pod.addresses if each.selects(pod, self.namespaces) else None)

    def _update_ports(self, key: str, old: PodFacts | None, new: PodFacts | None) -> None:
        before, after = _named_ports(old), _named_ports(new)
        for name in before.keys() | after.keys():
            if before.get(name) == after.get(name):
                continue
            users = self.named.setdefault(name, PortUsers())
            if name in after:
                users.members[key] = after[name]
            else:
                del users.members[key]
            users.version += 1


def _named_ports(pod: PodFacts | None) -> dict[NamedPort, tuple[tuple[str, ...], tuple[int, ...]]]:
    if pod is None:
        return {}
    return {
        name: (pod.addresses, tuple(sorted({number for each, number in pod.ports if each == name})))
        for name in {name for name, _ in pod.ports}
    }


def _peers_of(policy: Policy) -> Iterator[PeerSelector]:
    for rules in policy.rules.values():
        for rule in rules:
            yield from rule.peers
