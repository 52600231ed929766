"""Judges single packets by NetworkPolicies, straight from the objects: slow, without sets or caches, and without any code
of the package."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Packet:
    """The first packet of a connection, with the destination that it has after Services were resolved."""

    source: str
    destination: str
    protocol: str
    """TCP, UDP, SCTP, or another one, which has no ports."""
    port: int


@dataclass(frozen=True)
class World:
    pods: tuple[Json, ...]
    namespaces: tuple[Json, ...]
    policies: tuple[Json, ...]

    def pod_at(self, address: str) -> Json | None:
        for pod in self.pods:
            if pod["spec"].get("hostNetwork") or pod["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            if address in [each["ip"] for each in pod["status"].get("podIPs", [])]:
                return pod
        return None

    def allows(self, packet: Packet) -> bool:
        source, destination = self.pod_at(packet.source), self.pod_at(packet.destination)
        if source is not None and source is destination:
            return True
        return self._side_allows("Egress", source, packet) and self._side_allows("Ingress", destination, packet)

    def _side_allows(self, kind: str, pod: Json | None, packet: Packet) -> bool:
        if pod is None:
            return True
        isolating = [policy for policy in self.policies if _isolates(policy, pod, kind)]
        if not isolating:
            return True
        for policy in isolating:
            for rule in policy["spec"].get(kind.lower(), []) or []:
                if self._rule_allows(rule, policy, kind, packet):
                    return True
        return False

    def _rule_allows(self, rule: Json, policy: Json, kind: str, packet: Packet) -> bool:
        peers = rule.get("from" if kind == "Ingress" else "to") or []
        other = packet.source if kind == "Ingress" else packet.destination
        if peers and not any(self._is_peer(peer, policy, other) for peer in peers):
            return False
        ports = rule.get("ports") or []
        return not ports or any(self._is_port(port, packet) for port in ports)

    def _is_peer(self, peer: Json, policy: Json, address: str) -> bool:
        block = peer.get("ipBlock")
        if block is not None:
            number = ipaddress.ip_address(address)
            return number in ipaddress.ip_network(block["cidr"]) and not any(
                number in ipaddress.ip_network(each) for each in block.get("except", [])
            )
        pod = self.pod_at(address)
        if pod is None:
            return False
        if "namespaceSelector" in peer:
            (namespace,) = [
                each for each in self.namespaces if each["metadata"]["name"] == pod["metadata"]["namespace"]
            ]
            if not selects(peer["namespaceSelector"], namespace["metadata"].get("labels", {})):
                return False
        elif pod["metadata"]["namespace"] != policy["metadata"]["namespace"]:
            return False
        return selects(peer.get("podSelector", {}), pod["metadata"].get("labels", {}))

    def _is_port(self, port: Json, packet: Packet) -> bool:
        if port.get("protocol", "TCP") != packet.protocol:
            return False
        wanted = port.get("port")
        if wanted is None:
            return True
        if isinstance(wanted, int):
            return wanted <= packet.port <= int(port.get("endPort", wanted))
        pod = self.pod_at(packet.destination)
        if pod is None:
            return False
        return any(
            (each.get("name"), each.get("protocol", "TCP"), each["containerPort"])
            == (wanted, packet.protocol, packet.port)
            for container in pod["spec"]["containers"]
            for each in container.get("ports", [])
        )


def _isolates(policy: Json, pod: Json, kind: str) -> bool:
    spec = policy["spec"]
    if "policyTypes" in spec:
        concerned = kind in spec["policyTypes"]
    else:
        concerned = kind == "Ingress" or bool(spec.get("egress"))
    return (
        concerned
        and policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and selects(spec.get("podSelector", {}), pod["metadata"].get("labels", {}))
    )


def selects(selector: Json, labels: dict[str, str]) -> bool:
    for name, value in selector.get("matchLabels", {}).items():
        if name not in labels or labels[name] != value:
            return False
    for expression in selector.get("matchExpressions", []):
        there, operator = expression["key"] in labels, expression["operator"]
        listed = there and labels[expression["key"]] in expression.get("values", [])
        if not {"In": listed, "NotIn": not listed, "Exists": there, "DoesNotExist": not there}[operator]:
            return False
    return True


def differences(expected: Iterable[tuple[Packet, bool]], actual: dict[Packet, bool]) -> list[str]:
    """Return a line for each packet on which the oracle and the rules disagree."""
    return [
        f"{packet}: {'allowed' if allowed else 'refused'} by the policies, not by the rules"
        for packet, allowed in expected
        if actual[packet] != allowed
    ]
