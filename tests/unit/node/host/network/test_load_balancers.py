"""Which node announces an address, and on which interface."""

from __future__ import annotations

from typing import Any

from service_objects import endpoint, endpoint_slice

from setpoint.node.host.network.load_balancers import elected, endpoint_nodes, is_candidate, pool_addresses, segments
from setpoint.node.host.network.neighbour_announcer import arp_answer, gratuitous_arp, solicited_node


def test_only_the_addresses_of_a_lost_node_move() -> None:
    nodes = [f"node-{i}" for i in range(5)]
    services = [f"default/web-{i}" for i in range(100)]
    before = {each: elected(each, nodes) for each in services}
    assert set(before.values()) == set(nodes)
    after = {each: elected(each, nodes[1:]) for each in services}
    assert all(after[each] == node for each, node in before.items() if node != nodes[0])
    assert elected("default/web", []) is None


def test_nodes_that_may_announce() -> None:
    def node(ready: str = "True", labels: dict[str, str] | None = None, runtime: str = "containerd://1.6") -> Any:
        status = {"conditions": [{"type": "Ready", "status": ready}], "nodeInfo": {"containerRuntimeVersion": runtime}}
        return {"metadata": {"name": "n", "labels": labels or {}}, "status": status}

    assert is_candidate(node())
    assert not is_candidate(node("Unknown"))
    assert not is_candidate(node(labels={"node.kubernetes.io/exclude-from-external-load-balancers": "true"}))
    assert not is_candidate(node(runtime="simulated://1.0"))
    assert not is_candidate({"metadata": {"name": "n"}})


def test_nodes_with_endpoints() -> None:
    going = {"ready": False, "serving": True, "terminating": True}
    found = endpoint_slice("web", endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b", conditions=going))
    assert endpoint_nodes([found]) == {"a"}
    assert endpoint_nodes([endpoint_slice("web", endpoint("10.0.0.2", "b", conditions=going))]) == {"b"}
    assert endpoint_nodes([]) == set()


def test_interfaces_with_a_carrier() -> None:
    def link(name: str, *flags: str, kind: str = "ether") -> dict[str, Any]:
        addresses = [
            {"local": "192.0.2.5", "prefixlen": 24, "scope": "global"},
            {"local": "fe80::1", "prefixlen": 64, "scope": "link"},
        ]
        mac = "02:00:00:00:00:01"
        link = {"ifname": name, "ifindex": 2, "link_type": kind, "flags": list(flags), "address": mac}
        return {**link, "addr_info": addresses}

    usable, *rest = segments(
        [
            link("eth0", "UP", "LOWER_UP"),
            link("eth1", "UP"),
            link("veth1", "UP", "LOWER_UP"),
            link("setpoint-vx", "UP", "LOWER_UP"),
            link("lo", "UP", "LOWER_UP", kind="loopback"),
        ]
    )
    assert not rest and usable.interface.name == "eth0" and usable.interface.mac.hex() == "020000000001"
    assert str(usable.address.network) == "192.0.2.0/24"


def test_addresses_of_other_load_balancers_are_not_announced() -> None:
    condition = {"type": "setpoint.dev/AddressFromPool", "status": "True"}
    status: dict[str, Any] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}, "conditions": [condition]}
    found: dict[str, Any] = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.1"},
        "status": status,
    }
    assert [each.address for each in pool_addresses(found)] == ["192.0.2.9"]
    assert pool_addresses({**found, "status": {**status, "conditions": []}}) == []
    assert pool_addresses({**found, "spec": {**found["spec"], "type": "ClusterIP"}}) == []


def test_requests_for_other_addresses_and_announcements_are_not_answered() -> None:
    mac, other = bytes(5) + b"\1", bytes(5) + b"\2"
    addresses = {bytes((192, 0, 2, 9)): "192.0.2.9"}
    head = bytes.fromhex("0001080006040001")
    asking = head + other + bytes((192, 0, 2, 5)) + bytes(6)
    answer, target = arp_answer(asking + bytes((192, 0, 2, 9)), mac, addresses) or (b"", b"")
    assert target == other
    assert answer == bytes.fromhex("0001080006040002") + mac + bytes((192, 0, 2, 9)) + other + bytes((192, 0, 2, 5))
    assert arp_answer(asking + bytes((192, 0, 2, 8)), mac, addresses) is None
    for packet in (*gratuitous_arp(other, "192.0.2.9"), b"", asking):
        assert arp_answer(packet, mac, addresses) is None
    assert solicited_node("2001:db8::12:3456").hex() == "ff0200000000000000000001ff123456"
