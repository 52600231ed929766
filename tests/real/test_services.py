"""Services and host ports on the kernel's own packet rules. Pods are network namespaces."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from local_server import LocalServer
from real_machine import RealMachine
from service_network import (
    CLIENT,
    NODE,
    NODE6,
    POD_CIDRS,
    PORT,
    Namespace,
    ServedPod,
    ServiceNetwork,
    ask,
    ask_udp,
)
from service_objects import endpoint, endpoint_slice, service

from setpoint.client.resources import builtin
from setpoint.node.host.network.host_ports import HostPort
from setpoint.node.host.network.nft import NftTable
from setpoint.node.host.network.ruleset import Ruleset
from setpoint.node.host.network.service_proxy import ProxySettings, ServiceProxy
from setpoint.node.host.network.service_rules import base_fragment, network_fragment, service_fragment
from setpoint.node.host.network.services import Endpoint, Topology, service_ports
from setpoint.reconcile import Manager
from setpoint.system import RandomIds, SystemClock
from setpoint.tasks import child_tasks

pytestmark = pytest.mark.real

SERVICES, SLICES = builtin("services"), builtin("endpointslices", "discovery.k8s.io")
WEB = "10.96.0.50"
EXTERNAL = "203.0.113.7"


@pytest.fixture(scope="module")
def network(machine: RealMachine) -> ServiceNetwork:
    return ServiceNetwork(machine)


@pytest.fixture
async def pods(network: ServiceNetwork) -> AsyncIterator[list[Namespace]]:
    async with AsyncExitStack() as stack:
        for each in network.pods:
            served = ServedPod(each)
            await served.start()
            stack.push_async_callback(served.stop)
        yield network.pods


class Node:
    """The proxy of a node, the server that it follows, and the table that it writes."""

    def __init__(self, server: LocalServer, proxy: ServiceProxy, table: NftTable) -> None:
        self.client = server.client
        self.proxy = proxy
        self.table = table

    async def create(self, *objects: dict[str, Any]) -> None:
        for each in objects:
            await self.client.create(each)
        await self.synced()

    async def endpoints(self, *endpoints: dict[str, Any], name: str = "web") -> None:
        """Replace the endpoints of a Service."""
        await self.client.patch(SLICES, f"{name}-1", {"endpoints": [*endpoints]}, "default")
        await self.synced()

    async def synced(self) -> None:
        for _ in range(3):  # the watch event may still be on its way
            await asyncio.sleep(0.02)
            await until_synced(self.proxy)


@pytest.fixture
async def node(network: ServiceNetwork, local_server: LocalServer) -> AsyncIterator[Node]:
    clock = SystemClock()
    manager = Manager(local_server.client, clock, RandomIds(1))
    table = NftTable("setpoint-services", clock)
    proxy = ServiceProxy(manager, "node-a", table, ProxySettings(), clock)
    proxy.set_pod_cidrs(POD_CIDRS)
    proxy.host_ports_known.set()
    async with child_tasks(manager.run(), proxy.run(), table.run()):
        made = Node(local_server, proxy, table)
        await until_synced(proxy)
        yield made
    await table.delete()


async def until_synced(proxy: ServiceProxy) -> None:
    for _ in range(1000):
        if proxy.is_synced:
            return
        await asyncio.sleep(0.01)
    pytest.fail("the table is not written")


def local_endpoints(pods: list[Namespace]) -> list[dict[str, Any]]:
    return [endpoint(each.address) for each in pods]


async def answers(namespace: Namespace, address: str, port: int, count: int) -> Counter[str]:
    return Counter([(await namespace.ask(address, port)).split()[0] for _ in range(count)])


async def from_node(address: str, port: int) -> str:
    client = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    client.setblocking(False)
    return await ask(client, address, port)


async def test_cluster_ip_balances_and_keeps_the_source(node: Node, pods: list[Namespace]) -> None:
    await node.create(service("web", WEB), endpoint_slice("web", *local_endpoints(pods[1:])))
    assert set(await answers(pods[0], WEB, 80, 30)) == {"pod3", "pod4"}
    assert (await pods[0].ask(WEB, 80)).split()[1] == pods[0].address
    assert (await from_node(WEB, 80)).split()[0] in {"pod3", "pod4"}
    await node.endpoints(endpoint(pods[2].address))
    assert await answers(pods[0], WEB, 80, 10) == {"pod4": 10}


async def test_an_endpoint_reaches_itself_through_its_service(node: Node, pods: list[Namespace]) -> None:
    await node.create(service("web", WEB), endpoint_slice("web", endpoint(pods[0].address)))
    name, source = (await pods[0].ask(WEB, 80)).split()
    assert name == "pod2" and source != pods[0].address


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
async def test_without_endpoints_clients_are_refused_at_once(
    node: Node, network: ServiceNetwork, pods: list[Namespace], protocol: str
) -> None:
    port = {"port": 80, "protocol": protocol, "nodePort": 30080}
    await node.create(service("web", WEB, type="NodePort", ports=[port], externalIPs=[EXTERNAL]))
    ask_from = Namespace.ask if protocol == "TCP" else Namespace.ask_udp
    for client, address, number in (
        (pods[0], WEB, 80),
        (network.client, NODE, 30080),
        (network.client, EXTERNAL, 80),
        (pods[0], NODE, 30080),
    ):
        with pytest.raises(ConnectionRefusedError):
            await ask_from(client, address, number)
    with pytest.raises(ConnectionRefusedError):
        await from_node(WEB, 80)


async def test_a_port_that_the_service_does_not_have_is_refused(node: Node, pods: list[Namespace]) -> None:
    await node.create(service("web", WEB), endpoint_slice("web", *local_endpoints(pods)))
    with pytest.raises(ConnectionRefusedError):
        await pods[0].ask(WEB, 81)


async def test_node_ports_and_external_addresses(node: Node, network: ServiceNetwork, pods: list[Namespace]) -> None:
    spec: dict[str, Any] = {"type": "NodePort", "externalIPs": [EXTERNAL], "ports": [{"port": 80, "nodePort": 30080}]}
    await node.create(service("web", WEB, **spec), endpoint_slice("web", *local_endpoints(pods)))
    found = [(await network.client.ask(NODE, 30080)).split() for _ in range(20)]
    assert {name for name, _ in found} == {"pod2", "pod3", "pod4"}
    assert CLIENT not in {source for _, source in found}
    assert (await network.client.ask(EXTERNAL, 80)).split()[0].startswith("pod")
    assert (await pods[0].ask(NODE, 30080)).split()[0].startswith("pod")
    assert (await from_node(NODE, 30080)).split()[0].startswith("pod")
    with pytest.raises(ConnectionRefusedError):
        await from_node("127.0.0.1", 30080)


async def test_external_traffic_policy_local(node: Node, network: ServiceNetwork, pods: list[Namespace]) -> None:
    spec: dict[str, Any] = {
        "type": "LoadBalancer",
        "externalTrafficPolicy": "Local",
        "ports": [{"port": 80, "nodePort": 30080}],
        "healthCheckNodePort": 31080,
    }
    near, other = endpoint(pods[1].address), endpoint(pods[2].address, "node-b")
    await node.create(service("web", WEB, **spec), endpoint_slice("web", near, other))
    status = {"status": {"loadBalancer": {"ingress": [{"ip": EXTERNAL}]}}}
    await node.client.patch(SERVICES, "web", status, "default", subresource="status")
    await node.synced()
    for address, port in ((NODE, 30080), (EXTERNAL, 80)):
        assert {await network.client.ask(address, port) for _ in range(10)} == {f"pod3 {CLIENT}"}
        # Traffic of Pods is not external.
        assert set(await answers(pods[0], address, port, 30)) == {"pod3", "pod4"}
    assert b'"localEndpoints": 1' in await health(31080)

    await node.endpoints(other)
    with pytest.raises(TimeoutError):
        await network.client.ask(NODE, 30080, 0.3)
    assert await answers(pods[0], EXTERNAL, 80, 5) == {"pod4": 5}
    # The endpoint may be on another node, which has to answer to this one.
    assert await from_node(NODE, 30080) == "pod4 10.244.1.1"
    answer = await health(31080)
    assert answer.startswith(b"HTTP/1.1 503 ") and b'"localEndpoints": 0' in answer


async def health(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
    found = await reader.read()
    writer.close()
    return found


async def test_internal_traffic_policy_local(node: Node, pods: list[Namespace]) -> None:
    near, other = endpoint(pods[1].address), endpoint(pods[2].address, "node-b")
    await node.create(service("web", WEB, internalTrafficPolicy="Local"), endpoint_slice("web", near, other))
    assert await answers(pods[0], WEB, 80, 10) == {"pod3": 10}
    await node.endpoints(other)
    with pytest.raises(TimeoutError):
        await pods[0].ask(WEB, 80, 0.3)


async def test_source_ranges_of_a_load_balancer(node: Node, network: ServiceNetwork, pods: list[Namespace]) -> None:
    spec: dict[str, Any] = {
        "type": "LoadBalancer",
        "loadBalancerSourceRanges": ["10.244.0.0/16"],
        "ports": [{"port": 80, "nodePort": 30080}],
    }
    await node.create(service("web", WEB, **spec), endpoint_slice("web", *local_endpoints(pods)))
    status = {"status": {"loadBalancer": {"ingress": [{"ip": EXTERNAL}]}}}
    await node.client.patch(SERVICES, "web", status, "default", subresource="status")
    await node.synced()
    assert await pods[0].ask(EXTERNAL, 80)
    assert await network.client.ask(NODE, 30080)
    with pytest.raises(TimeoutError):
        await network.client.ask(EXTERNAL, 80, 0.3)


async def test_session_affinity(node: Node, network: ServiceNetwork, pods: list[Namespace]) -> None:
    ports = [{"port": 80, "nodePort": 30080}]
    spec: dict[str, Any] = {"type": "NodePort", "ports": ports, "sessionAffinity": "ClientIP"}
    await node.create(service("web", WEB, **spec), endpoint_slice("web", *local_endpoints(pods)))
    (chosen,) = await answers(network.client, NODE, 30080, 12)
    # Other endpoints come and go without an effect.
    await node.endpoints(*(endpoint(each.address) for each in pods if each.name == chosen))
    await node.endpoints(*local_endpoints(pods))
    assert set(await answers(network.client, NODE, 30080, 12)) == {chosen}
    await node.table.replace()
    assert set(await answers(network.client, NODE, 30080, 12)) == {chosen}

    timeout = {"spec": {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}}}}
    await node.client.patch(SERVICES, "web", timeout, "default")
    await node.synced()

    async def chosen_after_timeout() -> str:
        await asyncio.sleep(1.1)
        # A single connection: on a busy machine a second one may come after the timeout.
        (name,) = await answers(network.client, NODE, 30080, 1)
        return name

    # One of three endpoints each time: the same one eight times in a row is unlikely.
    for _ in range(8):
        if await chosen_after_timeout() != chosen:
            return
    pytest.fail("the affinity does not end")


async def test_udp_connections_follow_the_endpoints(node: Node, network: ServiceNetwork, pods: list[Namespace]) -> None:
    ports = [{"port": 53, "protocol": "UDP", "nodePort": 30053}]
    objects = (
        service("dns", WEB, type="NodePort", ports=ports),
        endpoint_slice("dns", endpoint(pods[1].address), protocol="UDP"),
    )
    await node.create(*objects)
    inside, outside = (each.socket(socket.SOCK_DGRAM, NODE) for each in (pods[0], network.client))
    with inside, outside:
        for client, address, port in ((inside, WEB, 53), (outside, NODE, 30053)):
            assert (await ask_udp(client, address, port, close=False)).startswith("pod3 ")
        await node.endpoints(endpoint(pods[2].address), name="dns")
        # The client's port is the same, so that the kernel would keep the connection.
        for client, address, port in ((inside, WEB, 53), (outside, NODE, 30053)):
            assert (await ask_udp(client, address, port, close=False)).startswith("pod4 ")
        await node.endpoints(name="dns")
        with pytest.raises(ConnectionRefusedError):
            await ask_udp(inside, WEB, 53, close=False)
        await node.endpoints(endpoint(pods[1].address), name="dns")
        assert (await ask_udp(inside, WEB, 53, close=False)).startswith("pod3 ")
        await node.client.delete(SERVICES, "dns", "default")
        await node.synced()
        with pytest.raises((TimeoutError, OSError)):
            await ask_udp(inside, WEB, 53, 0.3, close=False)


async def test_a_udp_client_that_was_there_before_the_node_port(
    node: Node, network: ServiceNetwork, pods: list[Namespace]
) -> None:
    # A server of the node keeps the connection alive without translation.
    loop = asyncio.get_running_loop()
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with server, network.client.socket(socket.SOCK_DGRAM, NODE) as client:
        server.bind((NODE, 30053))
        client.connect((NODE, 30053))
        client.send(b"?")
        server.setblocking(False)
        async with asyncio.timeout(2):
            _, address = await loop.sock_recvfrom(server, 100)
        server.sendto(b"node", address)
        async with asyncio.timeout(2):
            assert await loop.sock_recv(client, 100) == b"node"
        ports = [{"port": 53, "protocol": "UDP", "nodePort": 30053}]
        await node.create(
            service("dns", WEB, type="NodePort", ports=ports),
            endpoint_slice("dns", endpoint(pods[1].address), protocol="UDP"),
        )
        client.send(b"?")
        async with asyncio.timeout(2):
            assert (await loop.sock_recv(client, 100)).startswith(b"pod3 ")


async def test_host_ports(node: Node, network: ServiceNetwork, pods: list[Namespace]) -> None:
    target = Endpoint(pods[0].address, PORT)
    other = Endpoint(pods[1].address, PORT)
    node.proxy.set_host_ports("a", [HostPort("tcp", 8000, target), HostPort("udp", 8000, other)])
    node.proxy.set_host_ports("b", [HostPort("tcp", 8001, other, "127.0.0.1"), HostPort("tcp", 8001, target, NODE)])
    await node.synced()
    assert await network.client.ask(NODE, 8000) == f"pod2 {CLIENT}"
    assert await network.client.ask_udp(NODE, 8000) == f"pod3 {CLIENT}"
    assert (await pods[0].ask(NODE, 8000)).startswith("pod2 ")
    assert (await from_node(NODE, 8000)).startswith("pod2 ")
    assert (await network.client.ask(NODE, 8001)).startswith("pod2 ")
    with pytest.raises(OSError):
        await network.client.ask("172.32.0.1", 8001)
    assert (await network.client.ask("172.32.0.1", 8000)).startswith("pod2 ")
    # The loopback address serves clients that use an address of the node as their source.
    local = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    local.setblocking(False)
    local.bind((NODE, 0))
    assert (await ask(local, "127.0.0.1", 8001)).startswith("pod3 ")

    node.proxy.set_host_ports("a", [])
    await node.synced()
    with pytest.raises(ConnectionRefusedError):
        await network.client.ask(NODE, 8000)


async def test_local_redirects(node: Node, network: ServiceNetwork, pods: list[Namespace]) -> None:
    loop = asyncio.get_running_loop()
    await node.create(service("kube-dns", "10.96.0.10", ports=[{"port": 53, "protocol": "UDP"}]))
    node.proxy.set_local_redirects({("10.96.0.10", "udp", 53): 10053})
    await node.synced()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("0.0.0.0", 10053))
        server.setblocking(False)

        async def serve() -> None:
            while True:
                _, address = await loop.sock_recvfrom(server, 100)
                await loop.sock_sendto(server, address[0].encode(), address)

        async with child_tasks(serve()):
            assert await pods[0].ask_udp("10.96.0.10", 53) == pods[0].address
            local = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            local.setblocking(False)
            assert await ask_udp(local, "10.96.0.10", 53) == "127.0.0.1"
            # The server answers for the Service alone.
            with pytest.raises(TimeoutError):
                await network.client.ask_udp("172.32.0.1", 10053, 0.3)


async def test_an_endpoint_in_the_network_of_the_host(node: Node, pods: list[Namespace]) -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"node {writer.get_extra_info('peername')[0]}".encode())
        writer.close()

    await node.create(service("api", "10.96.0.2"), endpoint_slice("api", endpoint(NODE), port=6443))
    async with await asyncio.start_server(serve, NODE, 6443):
        assert (await from_node("10.96.0.2", 80)).startswith("node ")
        assert await pods[0].ask("10.96.0.2", 80) == f"node {pods[0].address}"


async def test_dual_stack(network: ServiceNetwork, pods: list[Namespace]) -> None:
    made = service(
        "web",
        WEB,
        "fd00:96::50",
        type="NodePort",
        ports=[{"port": 80, "nodePort": 30080}, {"name": "dns", "port": 53, "protocol": "UDP"}],
    )
    slices = [
        endpoint_slice("web", *(endpoint(each.address6) for each in pods[:2])),
        endpoint_slice("web", *(endpoint(each.address6) for each in pods[:2]), port_name="dns", protocol="UDP"),
    ]
    table = NftTable("setpoint-six", SystemClock())
    rules = Ruleset(table.reference)
    rules.put("", base_fragment())
    rules.put("pod cidrs", network_fragment(POD_CIDRS))
    rules.put("web", service_fragment(service_ports(made, slices, Topology("node-a"))))
    table.add_section(rules)
    try:
        assert await table.update(rules)
        assert set(await answers(pods[2], "fd00:96::50", 80, 20)) == {"pod2", "pod3"}
        assert (await pods[2].ask("fd00:96::50", 80)).split()[1] == pods[2].address6
        assert (await pods[2].ask_udp("fd00:96::50", 53)).split()[0] in {"pod2", "pod3"}
        assert set(await answers(pods[0], "fd00:96::50", 80, 20)) == {"pod2", "pod3"}
        assert (await network.client.ask(NODE6, 30080)).split()[0] in {"pod2", "pod3"}
        with pytest.raises(ConnectionRefusedError):
            await pods[0].ask("fd00:96::50", 81)
        # The other family of the Service has no endpoints.
        with pytest.raises(ConnectionRefusedError):
            await pods[0].ask(WEB, 80)
        with pytest.raises(ConnectionRefusedError):
            await network.client.ask(NODE, 30080)
    finally:
        await table.delete()


async def test_a_table_that_another_program_changed_is_repaired(
    node: Node, network: ServiceNetwork, pods: list[Namespace]
) -> None:
    await node.create(service("web", WEB), endpoint_slice("web", *local_endpoints(pods)))
    run = network.machine.run
    await node.table.check()
    for change in (
        ("delete", "table", "inet", "setpoint-services"),
        ("flush", "chain", "inet", "setpoint-services", "svc-dispatch"),
    ):
        run("nft", *change)
        with pytest.raises(OSError):
            await pods[0].ask(WEB, 80)
        before = node.table.replacements
        await node.table.check()
        assert node.table.replacements == before + 1
        assert await pods[0].ask(WEB, 80)
    # A change of another table is none of this one.
    await node.table.check()
    before = node.table.replacements
    run("nft", "add", "table", "inet", "other")
    await node.table.check()
    run("nft", "delete", "table", "inet", "other")
    await node.table.check()
    assert node.table.replacements == before


async def test_a_restart_does_not_interrupt_connections(node: Node, pods: list[Namespace]) -> None:
    await node.create(service("web", WEB), endpoint_slice("web", *local_endpoints(pods)))
    asked = asyncio.Event()

    async def ask_often() -> int:
        count = 0
        while not asked.is_set():
            assert await pods[0].ask(WEB, 80, 0.5)
            count += 1
        return count

    async with child_tasks(ask_often()) as (asking,):
        for _ in range(5):
            await node.table.replace()
        asked.set()
        assert await asking > 5
