"""Random clusters with NetworkPolicies: namespaces, Pods with addresses, and policies of all forms."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from random import Random
from typing import Any

from policy_oracle import Packet, World

Json = dict[str, Any]

NAMESPACES = ("red", "green", "blue")
PORTS = (80, 81, 443, 8080)
PROTOCOLS = ("TCP", "UDP")
PORT_NAMES = ("web", "api")
OUTSIDE = {4: "192.0.2.7", 6: "2001:db8::7"}
"""An address that is no Pod's."""


def pod(
    name: str,
    namespace: str,
    addresses: list[str],
    labels: dict[str, str] | None = None,
    *,
    node: str = "one",
    ports: list[Json] | None = None,
    **spec: Any,
) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "labels": labels or {}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i", "ports": ports or []}], **spec},
        "status": {"phase": "Running", "podIP": addresses[0], "podIPs": [{"ip": each} for each in addresses]},
    }


def namespace(name: str, labels: dict[str, str] | None = None) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}}


def policy(name: str, in_namespace: str, **spec: Any) -> Json:
    meta = {"name": name, "namespace": in_namespace}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec}


def random_world(random: Random, sites: list[tuple[str, list[str]]]) -> World:
    """Return a world with a Pod for each site, which is a node and the addresses of the Pod."""
    namespaces = tuple(namespace(name, _labels(random, "team")) for name in NAMESPACES)
    pods = tuple(
        pod(
            f"pod-{i}",
            random.choice(NAMESPACES),
            addresses,
            {**_labels(random, "app"), **_labels(random, "tier")},
            node=node,
            ports=_container_ports(random),
        )
        for i, (node, addresses) in enumerate(sites)
    )
    everywhere = [address for _, addresses in sites for address in addresses]
    count = random.choice((0, 1, 2, 3, 5))
    return World(pods, namespaces, tuple(random_policy(random, f"policy-{i}", everywhere) for i in range(count)))


def random_policy(random: Random, name: str, addresses: list[str]) -> Json:
    spec: Json = {"podSelector": _selector(random, ("app", "tier"))}
    types = random.choice((None, ["Ingress"], ["Egress"], ["Ingress", "Egress"]))
    if types is not None:
        spec["policyTypes"] = types
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        if random.random() < 0.7:
            spec[direction] = [_rule(random, peers, addresses) for _ in range(random.choice((0, 1, 1, 2)))]
    return policy(name, random.choice(NAMESPACES), **spec)


def all_packets(world: World, *, ports: tuple[int, ...] = PORTS, others: bool = True) -> list[Packet]:
    """Return the packets between all Pods, and between Pods and an address outside, in each address family."""
    addresses = [each["ip"] for pod in world.pods for each in pod["status"]["podIPs"]]
    found = []
    for source in (*addresses, *(OUTSIDE.values() if others else ())):
        for destination in (*addresses, *(OUTSIDE.values() if others else ())):
            if ip_address(source).version != ip_address(destination).version:
                continue
            if source != destination or source in addresses:
                found += [Packet(source, destination, protocol, port) for protocol in PROTOCOLS for port in ports]
                if others:
                    found += [Packet(source, destination, "SCTP", 80), Packet(source, destination, "ICMP", 0)]
    return found


def _labels(random: Random, name: str) -> dict[str, str]:
    return {name: random.choice(("a", "b", "c"))} if random.random() < 0.8 else {}


def _selector(random: Random, names: tuple[str, ...]) -> Json:
    kind = random.randrange(5)
    if kind == 0:
        return {}
    name = random.choice(names)
    if kind < 3:
        return {"matchLabels": {name: random.choice(("a", "b", "c"))}}
    operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    expression: Json = {"key": name, "operator": operator}
    if operator in ("In", "NotIn"):
        expression["values"] = random.sample(("a", "b", "c"), random.choice((1, 2)))
    return {"matchExpressions": [expression]}


def _container_ports(random: Random) -> list[Json]:
    found = []
    for name in PORT_NAMES:
        if random.random() < 0.6:
            port: Json = {"name": name, "containerPort": random.choice(PORTS)}
            if random.random() < 0.4:
                port["protocol"] = random.choice(PROTOCOLS)
            found.append(port)
    return found


def _rule(random: Random, peers: str, addresses: list[str]) -> Json:
    rule: Json = {}
    if random.random() < 0.8:
        rule[peers] = [_peer(random, addresses) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    if random.random() < 0.7:
        rule["ports"] = [_port(random) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    return rule


def _peer(random: Random, addresses: list[str]) -> Json:
    kind = random.randrange(4)
    if kind == 0:
        return {"podSelector": _selector(random, ("app", "tier"))}
    if kind == 1:
        return {"namespaceSelector": _selector(random, ("team",))}
    if kind == 2:
        return {"namespaceSelector": _selector(random, ("team",)), "podSelector": _selector(random, ("app", "tier"))}
    return {"ipBlock": _block(random, addresses)}


def _block(random: Random, addresses: list[str]) -> Json:
    address = ip_address(random.choice((*addresses, *OUTSIDE.values())))
    longest = address.max_prefixlen
    length = random.choice((0, longest - 8, longest - 3, longest - 2, longest - 1, longest))
    block: Json = {"cidr": str(ip_network(f"{address}/{length}", strict=False))}
    if length < longest and random.random() < 0.5:
        chosen = [each for each in addresses if ip_address(each) in ip_network(block["cidr"])]
        exceptions = []
        for each in random.sample(chosen, min(len(chosen), random.choice((1, 2)))):
            narrow = random.randint(length + 1, longest)
            exceptions.append(str(ip_network(f"{each}/{narrow}", strict=False)))
        if exceptions:
            block["except"] = exceptions
    return block


def _port(random: Random) -> Json:
    port: Json = {}
    if random.random() < 0.6:
        port["protocol"] = random.choice((*PROTOCOLS, "SCTP"))
    kind = random.randrange(4)
    if kind == 0:
        port["port"] = random.choice(PORT_NAMES)
    elif kind == 1:
        port["port"] = random.choice(PORTS)
    elif kind == 2:
        first, last = sorted((random.choice((1, 79, *PORTS)), random.choice((*PORTS, 65535))))
        port |= {"port": first, "endPort": last}
    return port
