"""Routes between real network namespaces: Pods of several nodes reach each other, and nothing is left behind."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from network_lab import Lab, LabNode, LabPod, Namespace
from packet_probes import Probes
from policy_oracle import Packet
from real_machine import RealMachine

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.network.address_rules import AddressRules
from setpoint.node.host.network.cluster_nodes import ClusterNodes
from setpoint.node.host.network.kernel_settings import KernelSettings
from setpoint.node.host.network.link_commands import LinkCommands
from setpoint.node.host.network.link_events import follow_link_changes
from setpoint.node.host.network.route_plan import RouteMode, RoutePlan, RouteSettings, tunnel_mac
from setpoint.node.host.network.routes import NodeRoutes
from setpoint.reconcile import Manager
from setpoint.system import RandomIds, SystemClock

pytestmark = pytest.mark.real

NODES = builtin("nodes")
_numbers = count(1)
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 10, 2


@pytest.fixture
def lab(machine: RealMachine) -> Iterator[Callable[..., Lab]]:
    """Makes a network with a node for each subnet that is given; each node has one Pod."""

    made: list[Lab] = []

    def make(*subnets: int, dual: bool = True) -> Lab:
        number = next(_numbers)
        found = Lab(machine, f"lan{number}")
        made.append(found)
        for i, subnet in enumerate(subnets, 11):
            found.add_node(f"n{number}-{i}", i, subnet, dual=dual)
        return found

    yield make
    for each in made:
        for node in each.nodes.values():
            for pod in node.pods.values():
                pod.delete()
            node.delete()
        each.lan.delete()


@asynccontextmanager
async def routed(
    client: Client, lab: Lab, settings: RouteSettings | None = None
) -> AsyncIterator[dict[str, NodeRoutes]]:
    """Run the loops of all nodes."""
    found, managers = {}, []
    for node in lab.nodes.values():
        await client.create(node.node())
        manager = Manager(client, SystemClock(), RandomIds(1))
        found[node.name] = NodeRoutes(ClusterNodes(manager, node.name), node.commands(), SystemClock(), settings)
        manager.add(found[node.name])
        managers.append(manager)
    tasks = [asyncio.ensure_future(each.run()) for each in managers]
    try:
        for each in found.values():
            await asyncio.wait_for(each.ready.wait(), 20)
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def add_pods(machine: RealMachine, lab: Lab, mtu: int | None = None) -> list[LabPod]:
    return [node.add_pod(machine, "a", mtu) for node in lab.nodes.values()]


@contextmanager
def probing(pods: list[LabPod]) -> Iterator[Callable[[], dict[tuple[str, str], bool]]]:
    """Yield a function that sends packets between all Pods, and returns which ones arrive."""
    probes = Probes({address: pod for pod in pods for address in pod.addresses}, (80,))

    def send(expected: bool = True) -> dict[tuple[str, str], bool]:
        packets = [
            Packet(source, destination, protocol, 80)
            for one in pods
            for other in pods
            if one is not other
            for source, destination in zip(one.addresses, other.addresses, strict=True)
            for protocol in ("TCP", "UDP")
        ]
        answers = probes.send(packets, dict.fromkeys(packets, expected))
        return {(each.source, each.destination): answers[each] for each in packets}

    try:
        yield send
    finally:
        probes.close()


async def until(condition: Callable[[], object], what: str) -> None:
    for _ in range(200):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(what)


def own_routes(node: LabNode) -> set[str]:
    listed = node.run("ip", "route", "show", "proto", "77") + node.run("ip", "-6", "route", "show", "proto", "77")
    return {re.sub(r" (proto 77|metric 1024|pref medium)", "", line).strip() for line in listed.splitlines()}


def has_forwarding(node: LabNode, address: str) -> bool:
    return address in node.run("bridge", "fdb", "show", "dev", "setpoint-vx").split()


async def test_nodes_of_one_subnet_route_directly(machine: RealMachine, lab: Any, local_server: Any) -> None:
    net = lab(0, 0, 0)
    before = {name: node.state() for name, node in net.nodes.items()}
    first, _, third = net.nodes.values()
    async with routed(local_server.client, net) as routes:
        with probing(add_pods(machine, net)) as send:
            assert all(send().values())
            assert own_routes(first) == {
                "unreachable 10.244.11.0/24",
                "unreachable fd00:10:244:11::/64 dev lo",
                "10.244.12.0/24 via 172.31.0.12 dev eth0",
                "10.244.13.0/24 via 172.31.0.13 dev eth0",
                "fd00:10:244:12::/64 via fd31::12 dev eth0",
                "fd00:10:244:13::/64 via fd31::13 dev eth0",
            }
            assert routes[first.name].mtu == 1500
            await local_server.client.delete(NODES, third.name)
            await until(lambda: len(own_routes(first)) == 4, "the routes of a node go with it")
        for name, node in net.nodes.items():
            node.remove_pod("a")
            assert await routes[name].remove_all() == []
            assert node.state() == before[name]


async def test_nodes_of_several_subnets_use_vxlan_where_they_must(
    machine: RealMachine, lab: Any, local_server: Any
) -> None:
    net = lab(0, 0, 1)
    before = {name: node.state() for name, node in net.nodes.items()}
    first, second, third = net.nodes.values()
    async with routed(local_server.client, net) as routes:
        assert {each.mtu for each in routes.values()} == {1450}
        with probing(add_pods(machine, net, 1450)) as send:
            assert all(send().values())
            assert own_routes(first) >= {
                "10.244.12.0/24 via 172.31.0.12 dev eth0",
                "10.244.13.0/24 via 10.244.13.0 dev setpoint-vx onlink",
                "fd00:10:244:13::/64 via fd00:10:244:13:: dev setpoint-vx onlink",
            }
            # A packet as long as the MTU arrives, and the node itself reaches Pods by the tunnel.
            target = third.pods["a"]
            assert received_from(target, first.pods["a"], target.addresses[0], size=1450 - 28)
            with pytest.raises(OSError, match="Message too long"):
                received_from(target, first.pods["a"], target.addresses[0], size=1451 - 28)
            assert received_from(target, first, target.addresses[0]) == "10.244.11.0"
            # The node moves to another address.
            third.run("ip", "address", "delete", "172.31.1.13/24", "dev", "eth0")
            third.run("ip", "address", "add", "172.31.1.99/24", "dev", "eth0")
            third.run("ip", "route", "replace", "default", "via", "172.31.1.1")
            found = await local_server.client.get(NODES, third.name)
            moved = [{"type": "InternalIP", "address": "172.31.1.99"}]
            await local_server.client.update(
                {**found, "status": {**found["status"], "addresses": moved}}, resource=NODES, subresource="status"
            )
            # Probes keep the loop busy, so all nodes must be done before.
            for node in (first, second):
                await until(partial(has_forwarding, node, "172.31.1.99"), "the other nodes follow the address")
                assert not has_forwarding(node, "172.31.1.13")
            # All links are listed, because the device does not exist for a moment: another one replaces it.
            await until(
                lambda: "local 172.31.1.99" in third.run("ip", "-d", "link") and len(own_routes(third)) == 6,
                "the tunnel of the node has its new address",
            )
            assert all(send().values())
        for name, node in net.nodes.items():
            node.remove_pod("a")
            assert await routes[name].remove_all() == []
        assert first.state() == before[first.name]
        assert "setpoint-vx" not in third.run("ip", "link") and not own_routes(third)


async def test_vxlan_can_be_required(machine: RealMachine, lab: Any, local_server: Any) -> None:
    net = lab(0, 0)
    settings = RouteSettings(RouteMode.VXLAN, device="other-vx", vni=5, port=4789)
    async with routed(local_server.client, net, settings) as routes:
        with probing(add_pods(machine, net, 1450)) as send:
            assert all(send().values())
        first = next(iter(net.nodes.values()))
        assert "vxlan id 5 local 172.31.0.11" in " ".join(first.run("ip", "-d", "link").split())
        assert not [line for line in own_routes(first) if "eth0" in line]
        await routes[first.name].remove_all()
        assert "other-vx" not in first.run("ip", "link")


async def test_only_differences_are_changed_and_routes_of_others_stay(
    machine: RealMachine, lab: Any, local_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    net = lab(0, 0, 0, dual=False)
    first = next(iter(net.nodes.values()))
    first.run("ip", "route", "add", "10.244.12.0/24", "via", "172.31.0.1")
    first.run("ip", "route", "add", "10.99.0.0/16", "via", "172.31.0.1")
    async with routed(local_server.client, net) as routes:
        loop = routes[first.name]
        assert "10.244.12.0/24 via 172.31.0.1 dev eth0" in first.run("ip", "route")
        assert "File exists" in caplog.text
        assert own_routes(first) == {"unreachable 10.244.11.0/24", "10.244.13.0/24 via 172.31.0.13 dev eth0"}
        first.run("ip", "route", "delete", "10.244.12.0/24")
        first.run("ip", "route", "delete", "10.244.13.0/24")
        assert await loop.reconcile() == []
        assert {line for line in own_routes(first) if "via" in line} == {
            "10.244.12.0/24 via 172.31.0.12 dev eth0",
            "10.244.13.0/24 via 172.31.0.13 dev eth0",
        }
        await loop.remove_all()
        assert not own_routes(first)
        assert "10.99.0.0/16 via 172.31.0.1 dev eth0" in first.run("ip", "route")


async def test_routes_return_when_an_interface_does(machine: RealMachine, local_server: Any, tmp_path: Path) -> None:
    """In the namespace of this process, where the kernel's messages arrive."""
    client, link = local_server.client, ("dev", "eth0")
    for i in (11, 12):
        await client.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"node-{i}"},
                "spec": {"podCIDR": f"10.244.{i}.0/24", "podCIDRs": [f"10.244.{i}.0/24"]},
                "status": {"addresses": [{"type": "InternalIP", "address": f"172.31.0.{i}"}]},
            }
        )
    manager, clock = Manager(client, SystemClock(), RandomIds(1)), SystemClock()
    pool, forwarding = BlockingPool(1), "/proc/sys/net/ipv4/ip_forward"
    machine.run("sh", "-c", f"echo 0 > {forwarding}")
    routes = NodeRoutes(
        ClusterNodes(manager, "node-11"),
        LinkCommands(clock),
        clock,
        kernel=KernelSettings(tmp_path / "kernel.json", pool),
        link_changes=follow_link_changes,
    )
    manager.add(routes)
    task = asyncio.ensure_future(manager.run())
    try:
        await asyncio.wait_for(routes.ready.wait(), 10)

        def route() -> str:
            return machine.run("ip", "route", "show", "10.244.12.0/24", "proto", "77")

        assert "via 172.31.0.12 dev eth0" in route()
        assert machine.run("cat", forwarding) == "1\n"
        machine.run("ip", "link", "set", *link, "down")
        assert not route(), "the kernel removes it"
        await asyncio.sleep(0.3)
        machine.run("ip", "link", "set", *link, "up")
        await until(route, "the route is there again")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        machine.run("ip", "route", "replace", "default", "via", "172.31.0.1", *link)
        assert await routes.remove_all() == []
        pool.close()
    assert not machine.run("ip", "route", "show", "proto", "77")
    assert machine.run("cat", forwarding) == "0\n", "as it was before"
    machine.run("sh", "-c", f"echo 1 > {forwarding}")


# -- packet rules ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def address_rules(client: Client, node: LabNode, plan: RoutePlan | None = None) -> AsyncIterator[None]:
    manager, table = Manager(client, SystemClock(), RandomIds(1)), node.table()
    rules = AddressRules(ClusterNodes(manager, node.name), table)
    if plan is not None:
        rules.tunnel_planned(plan)
    manager.add(rules)
    task = asyncio.ensure_future(manager.run())
    try:
        await until(lambda: table.in_force, "the rules are in force")
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await table.delete()


def received_from(
    server: Namespace, client: Namespace, address: str, *, source: str = "", size: int = 5, wait: float = 2.0
) -> str | None:
    """Send a datagram of some bytes, which must not be fragmented, and return the source address with which it arrives;
    None if it does not."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with server.socket(family, socket.SOCK_DGRAM) as listener, client.socket(family, socket.SOCK_DGRAM) as sender:
        listener.bind(("::" if ":" in address else "0.0.0.0", 5353))
        listener.settimeout(wait)
        if family == socket.AF_INET:
            sender.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
        if source:
            sender.bind((source, 0))
        sender.sendto(bytes(size), (address, 5353))
        with suppress(TimeoutError):
            content, peer = listener.recvfrom(2000)
            assert len(content) == size
            return str(peer[0])
    return None


async def test_packets_that_leave_the_cluster_have_the_address_of_the_node(
    machine: RealMachine, lab: Any, local_server: Any
) -> None:
    net = lab(0, 0)
    first, second = net.nodes.values()
    async with routed(local_server.client, net):
        pod, other = add_pods(machine, net)
        async with address_rules(local_server.client, first):
            for outside, node in (("172.31.0.1", "172.31.0.11"), ("fd31:0::1", "fd31::11")):
                assert received_from(net.lan, pod, outside) == node
            for i in (0, 1):
                assert received_from(other, pod, other.addresses[i]) == pod.addresses[i], "to Pods"
                assert received_from(second, pod, second.addresses[i]) == pod.addresses[i], "to nodes"
        assert received_from(net.lan, pod, "172.31.0.1") != "172.31.0.11", "the rule did it"


async def test_a_pod_cannot_use_addresses_of_others(machine: RealMachine, lab: Any, local_server: Any) -> None:
    net = lab(0, 0)
    first, _ = net.nodes.values()
    async with routed(local_server.client, net):
        pod, other = add_pods(machine, net)
        neighbour = first.add_pod(machine, "b")
        stolen = (neighbour.addresses[0], "10.244.11.77", "172.31.0.11", "192.0.2.1", "10.244.12.9")
        stolen6 = (neighbour.addresses[1], "fd00:10:244:11::77", "fd31::11", "2001:db8::1")
        for each in stolen:
            pod.run("ip", "address", "add", f"{each}/32", "dev", "eth0")
        for each in stolen6:
            pod.run("ip", "address", "add", f"{each}/128", "dev", "eth0", "nodad")
        assert received_from(other, pod, other.addresses[0], source=stolen[0]), "without rules"
        assert received_from(other, pod, other.addresses[1], source=stolen6[0]), "without rules"
        async with address_rules(local_server.client, first):
            for each in stolen:
                assert received_from(other, pod, other.addresses[0], source=each, wait=0.2) is None, each
                assert received_from(first, pod, first.addresses[0], source=each, wait=0.2) is None, each
            for each in stolen6:
                assert received_from(other, pod, other.addresses[1], source=each, wait=0.2) is None, each
            for each in (*stolen, *stolen6):
                pod.run("ip", "address", "delete", f"{each}/{128 if ':' in each else 32}", "dev", "eth0")
            for i in (0, 1):
                source = pod.addresses[i]
                assert received_from(other, pod, other.addresses[i], source=source) == source
                assert received_from(first, pod, first.addresses[i], source=source) == source
                assert received_from(pod, other, source) == other.addresses[i], "inbound packets"


async def test_other_machines_cannot_use_addresses_of_pods(machine: RealMachine, lab: Any, local_server: Any) -> None:
    net = lab(0, 1)
    first, second = net.nodes.values()
    async with routed(local_server.client, net) as routes:
        pod, other = add_pods(machine, net)
        # A machine of the network, with the address of a Pod of each node: it sends directly, and by VXLAN.
        attacker, target = net.lan, pod.addresses[0]
        attacker.ip(f"""
            address add 10.244.11.77/32 dev lo
            address add {other.addresses[0]}/32 dev lo
            link add false-vx address 02:02:02:02:02:02 type vxlan id 77 dstport 8472 local 172.31.0.1 remote 172.31.0.11
            link set false-vx up
            neighbour add 10.244.11.0 lladdr {tunnel_mac(first.name)} dev false-vx nud permanent
            route add 10.244.11.0/24 via 10.244.11.0 dev false-vx onlink metric 10""")
        by_tunnel, direct = other.addresses[0], "10.244.11.77"
        assert received_from(pod, attacker, target, source=by_tunnel) == by_tunnel, "without rules"
        async with address_rules(local_server.client, first, routes[first.name].plan):
            assert received_from(pod, attacker, target, source=by_tunnel, wait=0.2) is None
            assert received_from(pod, other, target) == other.addresses[0], "by the tunnel of the node"
        attacker.run("ip", "route", "add", "10.244.11.0/24", "via", "172.31.0.11", "metric", "5")
        assert received_from(pod, attacker, target, source=direct) == direct, "without rules"
        async with address_rules(local_server.client, first, routes[first.name].plan):
            assert received_from(pod, attacker, target, source=direct, wait=0.2) is None
        # A node that sends with an address of a Pod of another one.
        second.run("ip", "address", "add", "192.0.2.1/32", "dev", "lo")
        assert received_from(pod, second, target, source="192.0.2.1") == "192.0.2.1", "without rules"
        async with address_rules(local_server.client, first, routes[first.name].plan):
            assert received_from(pod, second, target, source="192.0.2.1", wait=0.2) is None


async def test_loopback_of_the_node_is_out_of_reach(machine: RealMachine, lab: Any, local_server: Any) -> None:
    """CVE-2020-8558: neither Pods nor other machines reach ports that listen on 127.0.0.1."""
    net = lab(0, 0)
    first, second = net.nodes.values()
    (pod, _) = add_pods(machine, net)
    async with routed(local_server.client, net):
        for client, link in ((pod, pod.link), (second, "eth0")):
            # The worst case: somebody has made the kernel route loopback addresses.
            first.run("sh", "-c", f"echo 1 > /proc/sys/net/ipv4/conf/{link}/route_localnet")
            client.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/eth0/route_localnet")
            gateway = ("via", first.addresses[0]) if client is second else ("via", "10.244.11.1")
            client.run("ip", "route", "replace", "127.9.9.9", *gateway, "dev", "eth0", "table", "10")
            client.run("ip", "rule", "add", "pref", "0", "to", "127.9.9.9", "lookup", "10")
            client.run("ip", "rule", "delete", "pref", "0", "lookup", "local")
            client.run("ip", "rule", "add", "pref", "1", "lookup", "local")
            source = client.addresses[0]
            assert received_from(first, client, "127.9.9.9", source=source) == source, "without rules"
            async with address_rules(local_server.client, first):
                assert received_from(first, client, "127.9.9.9", source=source, wait=0.2) is None
