"""NetworkPolicies with real packets: namespaces stand for Pods on two nodes, connected by the CNI plugin."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest
from effort import tries
from network_lab import Lab, LabNode, Namespace
from packet_probes import Probes
from policy_oracle import World, differences
from policy_worlds import all_packets, namespace, pod, policy, random_world
from real_machine import RealMachine

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.node.host.network.nft import NftTable
from setpoint.node.host.network.policies import PolicyIndex, parse_policy, pod_facts
from setpoint.node.host.network.policy_enforcer import PolicyEnforcer
from setpoint.node.host.network.policy_rules import PolicyRules
from setpoint.node.host.network.ruleset import StateSection
from setpoint.reconcile import Manager
from setpoint.system import RandomIds, SystemClock

pytestmark = pytest.mark.real
PORTS = (80, 81, 443, 8080)
POLICIES = builtin("networkpolicies", "networking.k8s.io")


class Enforced:
    """The rules of one node, in its namespace."""

    def __init__(self, node: LabNode) -> None:
        self.index = PolicyIndex(node.name)
        self.table: NftTable = node.table()
        self.node = node
        self.section = StateSection(self.table.reference, PolicyRules(self.index).state)
        self.table.add_section(self.section)

    async def show(self, world: World) -> None:
        """Replace all objects, and change the table by the difference."""
        index = self.index
        for each in world.namespaces:
            index.set_namespace(each["metadata"]["name"], each["metadata"]["labels"])
        pods = {_key(each): pod_facts(each) for each in world.pods}
        for key in [*index.pods, *pods]:
            index.set_pod(key, pods.get(key))
        policies = {_key(each): parse_policy(each) for each in world.policies}
        for key in [*index.policies, *policies]:
            index.set_policy(key, policies.get(key))
        assert await self.table.update(self.section)

    def rules(self) -> list[Any]:
        """Return the table without handles, in an order of its own."""
        listed = json.loads(self.node.run("nft", "-j", "list", "table", "inet", "setpoint"))["nftables"]
        for each in listed:
            for value in each.values():
                value.pop("handle", None)
                if isinstance(value.get("elem"), list):
                    value["elem"].sort(key=json.dumps)
        return sorted((each for each in listed if "rule" not in each), key=json.dumps) + [
            each
            for each in sorted(listed, key=lambda each: (each.get("rule") or {}).get("chain", ""))
            if "rule" in each
        ]


def _key(obj: dict[str, Any]) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


@pytest.fixture(scope="module")
def lab(machine: RealMachine) -> Lab:
    found = Lab(machine)
    one, two = found.add_node("one", 11), found.add_node("two", 12)
    for node, other in ((one, two), (two, one)):
        for cidr, address in zip(other.pod_cidrs, other.addresses, strict=True):
            node.run("ip", "route", "add", cidr, "via", address)
        for name in ("a", "b", "c"):
            node.add_pod(machine, name)
    return found


@pytest.fixture(scope="module")
def probes(lab: Lab) -> Iterator[Probes]:
    found = Probes(
        {address: pod for node in lab.nodes.values() for pod in node.pods.values() for address in pod.addresses}, PORTS
    )
    yield found
    found.close()


def test_random_policies_let_through_what_the_independent_evaluator_allows(lab: Lab, probes: Probes) -> None:
    enforced = [Enforced(node) for node in lab.nodes.values()]
    sites = [(node.name, pod.addresses) for node in lab.nodes.values() for pod in node.pods.values()]
    random = Random(7)
    for i in range(tries(6, 200)):
        world = random_world(random, sites)
        asyncio.run(_show(enforced, world))
        packets = [each for each in all_packets(world, ports=PORTS, others=False) if each.source != each.destination]
        expected = {each: world.allows(each) for each in packets}
        actual = probes.send(packets, expected)
        problems = differences(expected.items(), actual)
        assert not problems, "\n".join([f"world {i}", *problems[:5], *map(str, world.policies)])
        assert enforced[0].table.replacements == 1, "every later change was a difference"
    changed = enforced[0].rules()
    asyncio.run(enforced[0].table.replace())
    assert changed == enforced[0].rules(), "the differences lead to the same rules as a whole table"
    for each in enforced:
        asyncio.run(each.table.delete())


async def _show(enforced: list[Enforced], world: World) -> None:
    for each in enforced:
        await each.show(world)


# -- the loop, at an API server ----------------------------------------------------------------------------------------


@asynccontextmanager
async def enforcing(client: Client, node: LabNode) -> AsyncIterator[PolicyEnforcer]:
    manager, table = Manager(client, SystemClock(), RandomIds(1)), node.table()
    enforcer = PolicyEnforcer(manager, node.name, table, SystemClock())
    manager.add(enforcer)
    task = asyncio.ensure_future(manager.run())
    try:
        await asyncio.wait_for(enforcer.ready.wait(), 10)
        yield enforcer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await table.delete()


async def create_pods(client: Client, node: LabNode) -> None:
    await client.create(namespace("shop"))
    for name, space in node.pods.items():
        made = pod(name, "shop", space.addresses, {"app": name}, node=node.name)
        del made["metadata"]["uid"]
        created = await client.create(made)
        await client.update({**created, "status": made["status"]}, subresource="status")


@asynccontextmanager
async def echo_server(space: Namespace, address: str, port: int) -> AsyncIterator[None]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while content := await reader.read(100):
                writer.write(content)
        writer.close()

    listener = space.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    server = await asyncio.start_server(echo, sock=listener)
    try:
        yield
    finally:
        server.close()


async def connect(space: Namespace, address: str, port: int) -> socket.socket | None:
    """Return a connection, or None if there is no answer in half a second."""
    client = space.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(client, (address, port)), 0.5)
    except (TimeoutError, OSError):
        client.close()
        return None
    return client


async def echoes(connection: socket.socket) -> bool:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, b"x")
    try:
        return await asyncio.wait_for(loop.sock_recv(connection, 100), 0.5) != b""
    except TimeoutError:
        return False


async def test_a_change_is_in_force_within_a_second_for_open_connections_too(lab: Lab, local_server: Any) -> None:
    node, client = lab.nodes["one"], local_server.client
    a, b = node.pods["a"], node.pods["b"]
    await create_pods(client, node)
    async with enforcing(client, node), echo_server(b, b.addresses[0], 9000):
        opened = await connect(a, b.addresses[0], 9000)
        assert opened is not None and await echoes(opened)
        made = await client.create(policy("deny", "shop", podSelector={"matchLabels": {"app": "b"}}))
        await asyncio.sleep(1)
        assert not await echoes(opened), "the next packets of an open connection"
        assert await connect(a, b.addresses[0], 9000) is None
        probe = await connect(node, b.addresses[0], 9000)
        assert probe is not None, "the node of the Pod always reaches it"
        async with echo_server(a, a.addresses[0], 9000):
            outbound = await connect(b, a.addresses[0], 9000)
            assert outbound is not None and await echoes(outbound), "replies reach an isolated Pod"
        await client.delete(POLICIES, "deny", "shop", uid=made["metadata"]["uid"])
        await asyncio.sleep(1)
        again = await connect(a, b.addresses[0], 9000)
        assert again is not None and await echoes(again)
        for each in (opened, probe, outbound, again):
            each.close()


async def test_the_destination_of_a_service_is_judged(lab: Lab, local_server: Any) -> None:
    node, client = lab.nodes["one"], local_server.client
    a, b = node.pods["a"], node.pods["b"]
    await create_pods(client, node)
    service = f"""
    table ip service {{
      chain in {{
        type nat hook prerouting priority dstnat; policy accept;
        ip daddr 10.96.0.1 tcp dport 80 dnat to {b.addresses[0]}:9000
      }}
      chain out {{
        type nat hook postrouting priority srcnat; policy accept;
        ct status dnat ip saddr {b.addresses[0]} ip daddr {b.addresses[0]} masquerade
      }}
    }}
    """
    node.run("nft", "-f", "-", text=service)
    try:
        async with enforcing(client, node), echo_server(b, b.addresses[0], 9000):

            async def reaches(source: Namespace) -> bool:
                connection = await connect(source, "10.96.0.1", 80)
                if connection is not None:
                    connection.close()
                return connection is not None

            assert await reaches(a)
            for port, expected in ((80, False), (9000, True)):
                rules = {"ingress": [{"ports": [{"port": port}]}], "egress": [{"ports": [{"port": port}]}]}
                made = await client.create(
                    policy("ports", "shop", podSelector={}, policyTypes=["Ingress", "Egress"], **rules)
                )
                await asyncio.sleep(1)
                assert await reaches(a) is expected
                assert await reaches(b), "a Pod reaches itself through its Service"
                await client.delete(POLICIES, "ports", "shop", uid=made["metadata"]["uid"])
    finally:
        node.run("nft", "delete", "table", "ip", "service")
