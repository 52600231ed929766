"""The routes to the Pods of other nodes, and the commands that make them."""

from __future__ import annotations

from ipaddress import ip_interface

import pytest

from setpoint.meta.objects import Obj
from setpoint.node.host.network.route_plan import (
    Changes,
    ForwardingEntry,
    Link,
    Neighbour,
    NetworkState,
    NodeAddresses,
    Route,
    RouteMode,
    RoutePlan,
    RouteSettings,
    Tunnel,
    node_addresses,
    parse_forwarding,
    parse_links,
    parse_neighbours,
    parse_routes,
    parse_tunnel,
    plan_routes,
    route_changes,
    tunnel_mac,
)

OWN = NodeAddresses("one", ("10.244.1.0/24", "fd00:1::/64"), ("172.31.0.11", "fd31::11"))
CLOSE = NodeAddresses("two", ("10.244.2.0/24", "fd00:2::/64"), ("172.31.0.12", "fd31::12"))
REMOTE = NodeAddresses("three", ("10.244.3.0/24",), ("172.31.9.13",))
LINKS = [
    Link("lo", 65536, (ip_interface("127.0.0.1/8"),)),
    Link("eth0", 9000, (ip_interface("172.31.0.11/24"), ip_interface("fd31::11/64"))),
    Link("veth1", 1500, (ip_interface("10.244.1.1/32"),)),
]
UNREACHABLE = {Route("10.244.1.0/24", "", "", False), Route("fd00:1::/64", "", "", False)}


def plan(*others: NodeAddresses, own: NodeAddresses = OWN, mode: str = "auto") -> RoutePlan:
    return plan_routes(own, others, LINKS, RouteSettings(RouteMode(mode)))


def test_nodes_on_the_subnet_are_gateways() -> None:
    found = plan(CLOSE)
    assert found.state.routes - UNREACHABLE == {
        Route("10.244.2.0/24", "172.31.0.12", "eth0", False),
        Route("fd00:2::/64", "fd31::12", "eth0", False),
    }
    assert found.state.tunnel is None and not found.problems
    assert found.mtu == 9000, "the MTU of the link with the address of the node"


def test_other_nodes_are_behind_the_tunnel() -> None:
    found = plan(CLOSE, REMOTE)
    assert Route("10.244.3.0/24", "10.244.3.0", "setpoint-vx", True) in found.state.routes
    assert Route("10.244.2.0/24", "172.31.0.12", "eth0", False) in found.state.routes
    assert found.state.neighbours == {Neighbour("10.244.3.0", tunnel_mac("three"))}
    assert found.state.forwarding == {ForwardingEntry(tunnel_mac("three"), "172.31.9.13")}
    assert found.mtu == 8950
    assert found.state.tunnel == Tunnel(
        77, 8472, "172.31.0.11", tunnel_mac("one"), 8950, frozenset({"10.244.1.0/32", "fd00:1::/128"})
    )


def test_a_family_without_an_address_on_the_subnet_uses_the_tunnel() -> None:
    found = plan(CLOSE._replace(addresses=("172.31.0.12",)))
    assert Route("10.244.2.0/24", "172.31.0.12", "eth0", False) in found.state.routes
    assert Route("fd00:2::/64", "fd00:2::", "setpoint-vx", True) in found.state.routes


def test_the_tunnel_can_be_between_addresses_of_ipv6() -> None:
    own = OWN._replace(addresses=("fd31::11", "172.31.0.11"))
    found = plan(REMOTE._replace(addresses=("172.31.9.13", "2001:db8::13")), own=own)
    assert found.state.forwarding == {ForwardingEntry(tunnel_mac("three"), "2001:db8::13")}
    assert found.state.tunnel is not None and found.state.tunnel.local == "fd31::11"
    assert found.mtu == 9000 - 70


def test_modes() -> None:
    assert plan(CLOSE, mode="vxlan").state.forwarding == {ForwardingEntry(tunnel_mac("two"), "172.31.0.12")}
    assert plan(mode="vxlan").mtu == 8950, "the same before and after the first node joins"
    assert plan(mode="vxlan").state.tunnel is None
    found = plan(REMOTE, mode="host-gw")
    assert found.state.routes == UNREACHABLE
    assert found.problems == (
        "the Pods 10.244.3.0/24 of node three cannot be reached: the node has no address of this family on a subnet of "
        "this machine",
    )


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        (CLOSE._replace(pod_cidrs=("10.244.0.0/16",)), "overlaps"),
        (CLOSE._replace(pod_cidrs=("0.0.0.0/0",)), "overlaps"),
        (CLOSE._replace(pod_cidrs=("172.31.0.0/16",)), "contains the address of a node"),
        (CLOSE._replace(pod_cidrs=("nonsense",)), "invalid"),
        (CLOSE._replace(addresses=()), "no address of its own"),
        (CLOSE._replace(addresses=("172.31.0.11",)), "no address of its own"),
        (CLOSE._replace(pod_cidrs=("10.244.3.0/25",), name="zz"), "overlaps"),
    ],
)
def test_ranges_that_would_harm_have_no_route(node: NodeAddresses, problem: str) -> None:
    found = plan(REMOTE, node)
    assert len(found.problems) >= 1 and problem in found.problems[0]
    assert found.state == plan(REMOTE).state


def test_the_addresses_of_a_node() -> None:
    addresses = [
        {"type": "Hostname", "address": "two"},
        {"type": "ExternalIP", "address": "8.8.8.8"},
        {"type": "InternalIP", "address": "172.31.0.12"},
    ]
    node = {"metadata": {"name": "two"}, "spec": {"podCIDR": "10.244.2.0/24"}, "status": {"addresses": addresses}}
    assert node_addresses(node) == ("two", ("10.244.2.0/24",), ("172.31.0.12",))
    assert node_addresses({"metadata": {"name": "new"}}) == ("new", (), ())


def test_hardware_addresses_are_local_and_differ() -> None:
    found = {tunnel_mac(f"node-{i}") for i in range(1000)}
    assert len(found) == 1000 and all(int(each[:2], 16) & 3 == 2 for each in found)


# -- differences -------------------------------------------------------------------------------------------------------


def commands(observed: NetworkState, desired: NetworkState) -> Changes:
    return route_changes(observed, desired, RouteSettings())


def test_equal_states_need_no_commands() -> None:
    state = plan(CLOSE, REMOTE).state
    assert not commands(state, state)


def test_only_the_difference_is_changed() -> None:
    found = commands(plan(CLOSE).state, plan(CLOSE._replace(addresses=("172.31.0.99", "fd31::12"))).state)
    assert found == Changes(
        ["route delete 10.244.2.0/24 proto 77"], [], ["route add 10.244.2.0/24 via 172.31.0.99 dev eth0 proto 77"]
    )


def test_the_tunnel_is_made_before_its_routes_and_removed_with_them() -> None:
    mac, remote = tunnel_mac("one"), tunnel_mac("three")
    found = commands(plan().state, plan(REMOTE).state)
    assert found == Changes(
        [
            f"link add setpoint-vx address {mac} mtu 8950 type vxlan id 77 dstport 8472 local 172.31.0.11 nolearning",
            "link set dev setpoint-vx addrgenmode none up",
            "address add 10.244.1.0/32 dev setpoint-vx",
            "address add fd00:1::/128 dev setpoint-vx nodad",
        ],
        [f"fdb append {remote} dev setpoint-vx dst 172.31.9.13"],
        [
            f"neighbour replace 10.244.3.0 lladdr {remote} dev setpoint-vx nud permanent",
            "route add 10.244.3.0/24 via 10.244.3.0 dev setpoint-vx onlink proto 77",
        ],
    )
    assert commands(plan(REMOTE).state, plan().state) == Changes(["link delete dev setpoint-vx"])


def test_a_foreign_device_with_the_name_is_replaced() -> None:
    listed = [
        {"ifname": "setpoint-vx", "flags": ["UP"], "linkinfo": {"info_kind": "dummy"}, "address": "", "mtu": 1500}
    ]
    found = commands(NetworkState(tunnel=parse_tunnel(listed, "setpoint-vx")), plan(REMOTE).state)
    assert found.before[0] == "link delete dev setpoint-vx" and found.before[1].startswith("link add setpoint-vx")


def test_a_changed_mtu_keeps_the_device() -> None:
    desired = plan(REMOTE).state
    assert desired.tunnel is not None
    observed = NetworkState(
        desired.routes, desired.neighbours, desired.forwarding, desired.tunnel._replace(mtu=1450, addresses=frozenset())
    )
    assert commands(observed, desired).before == [
        f"link set dev setpoint-vx address {tunnel_mac('one')} mtu 8950",
        "address add 10.244.1.0/32 dev setpoint-vx",
        "address add fd00:1::/128 dev setpoint-vx nodad",
    ]


def test_parsing_of_what_the_kernel_lists() -> None:
    routes: list[Obj] = [
        {"type": "unreachable", "dst": "fd00:1::/64", "dev": "lo", "metric": 1024, "flags": []},
        {"dst": "10.244.3.0/24", "gateway": "10.244.3.0", "dev": "setpoint-vx", "flags": ["onlink"]},
        {"dst": "10.1.1.1", "gateway": "172.31.0.12", "dev": "eth0", "flags": []},
        {"dst": "default", "gateway": "172.31.0.12", "dev": "eth0", "flags": []},
    ]
    assert parse_routes(routes, "0.0.0.0/0") == {
        Route("fd00:1::/64", "", "", False),
        Route("10.244.3.0/24", "10.244.3.0", "setpoint-vx", True),
        Route("10.1.1.1/32", "172.31.0.12", "eth0", False),
        Route("0.0.0.0/0", "172.31.0.12", "eth0", False),
    }
    neighbours = [
        {"dst": "10.244.3.0", "lladdr": "02:00:00:00:00:03", "state": ["PERMANENT"]},
        {"dst": "10.244.3.9", "state": ["FAILED"]},
    ]
    assert parse_neighbours(neighbours) == {Neighbour("10.244.3.0", "02:00:00:00:00:03")}
    entries: list[Obj] = [
        {"mac": "02:00:00:00:00:03", "dst": "172.31.9.13", "flags": ["self"]},
        {"mac": "33:33:00:00:00:01"},
    ]
    assert parse_forwarding(entries) == {ForwardingEntry("02:00:00:00:00:03", "172.31.9.13")}
    tunnel = {
        "ifname": "setpoint-vx",
        "flags": ["UP"],
        "mtu": 1450,
        "address": "02:00:00:00:00:01",
        "linkinfo": {"info_kind": "vxlan", "info_data": {"id": 77, "local": "172.31.0.11", "port": 8472}},
        "addr_info": [
            {"local": "10.244.1.0", "prefixlen": 32, "scope": "global"},
            {"local": "fe80::1", "prefixlen": 64, "scope": "link"},
        ],
    }
    assert parse_tunnel([tunnel], "setpoint-vx") == Tunnel(
        77, 8472, "172.31.0.11", "02:00:00:00:00:01", 1450, frozenset({"10.244.1.0/32"})
    )
    down = {"ifname": "eth1", "flags": [], "mtu": 1500, "addr_info": []}
    assert parse_links([tunnel, down]) == [Link("setpoint-vx", 1450, (ip_interface("10.244.1.0/32"),))]
