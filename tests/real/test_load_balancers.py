"""Addresses of load balancers on real network namespaces: one node answers for each address, and another takes over."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from local_server import LocalServer
from network_lab import Lab, LabNode
from real_machine import RealMachine
from service_objects import endpoint, endpoint_slice, service

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.conditions import ADDRESS_FROM_POOL
from setpoint.node.host.network.load_balancers import LoadBalancerAddresses, elected
from setpoint.node.host.network.neighbour_announcer import Interface, NeighbourAnnouncer
from setpoint.reconcile import Manager
from setpoint.system import RandomIds, SystemClock

pytestmark = pytest.mark.real

NODES, SERVICES, SLICES = builtin("nodes"), builtin("services"), builtin("endpointslices", "discovery.k8s.io")
FOUR, SIX, ELSEWHERE = "172.31.0.200", "fd31:0::200", "192.0.2.1"
ASSIGNED = {"type": ADDRESS_FROM_POOL, "status": "True", "reason": "Assigned", "message": ""}


class NodeAnnouncer(NeighbourAnnouncer):
    """Announces in the namespace of a node, wherever the process is."""

    def __init__(self, node: LabNode) -> None:
        super().__init__()
        self._node = node

    def update(self, desired: Mapping[str, Interface], term: str = "") -> list[str]:
        with self._node.entered():
            return super().update(desired, term)


class Announcing:
    """The loops of two nodes, and their router as the client."""

    def __init__(self, client: Client, lab: Lab) -> None:
        self.client = client
        self.lab = lab
        self.announcers = {name: NodeAnnouncer(node) for name, node in lab.nodes.items()}
        self.used: dict[str, frozenset[str]] = {}
        links = {name: json.loads(node.run("ip", "-json", "link", "show", "eth0")) for name, node in lab.nodes.items()}
        self.names = {link["address"]: name for name, (link,) in links.items()}
        """The nodes by their hardware address."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        clock = SystemClock()
        async with asyncio.TaskGroup() as tasks:
            started = []
            for name, node in self.lab.nodes.items():
                manager = Manager(self.client, clock, RandomIds(1))

                def use(addresses: frozenset[str], name: str = name) -> None:
                    self.used[name] = addresses

                manager.add(LoadBalancerAddresses(manager, name, node.commands(), clock, self.announcers[name], use))
                started.append(tasks.create_task(manager.run()))
            yield
            for task in started:
                task.cancel()

    async def set_ready(self, name: str, status: str, transition: str) -> None:
        ready = {"type": "Ready", "status": status, "reason": "", "message": "", "lastTransitionTime": transition}
        await self.client.patch(NODES, name, {"status": {"conditions": [ready]}}, subresource="status")

    def holder(self, address: str) -> str:
        """Return the node whose hardware address the router has for an address; empty if it has none."""
        found = json.loads(self.lab.lan.run("ip", "-json", "neighbour", "show", "to", address))
        return next((self.names[each["lladdr"]] for each in found if each.get("lladdr")), "")

    def resolved(self, address: str) -> str:
        """Let the router send a packet, before which it asks for the hardware address, and return the holder."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with self.lab.lan.socket(family, socket.SOCK_DGRAM) as client, suppress(OSError):
            client.sendto(b"?", (address, 9))
        return self.holder(address)


async def until(holds: Callable[[], bool], what: str) -> None:
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"not within 10 s: {what}")


def balanced(name: str, *addresses: str, **spec: Any) -> dict[str, Any]:
    status = {"loadBalancer": {"ingress": [{"ip": each, "ipMode": "VIP"} for each in addresses]}}
    condition = {**ASSIGNED, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {**service(name, "10.96.0.50", type="LoadBalancer", **spec), "status": {**status, "conditions": [condition]}}


async def make(client: Client, wanted: dict[str, Any]) -> None:
    made = await client.create(wanted)
    await client.update({**made, "status": wanted["status"]}, subresource="status")


async def test_one_node_answers_for_an_address_and_another_takes_over(
    machine: RealMachine, local_server: LocalServer
) -> None:
    client, lab = local_server.client, Lab(machine)
    for number in (11, 12):
        await client.create(lab.add_node(f"node-{number}", number).node())
    found = Announcing(client, lab)
    first = elected("default/web", lab.nodes) or ""
    (second,) = lab.nodes.keys() - {first}
    for name in lab.nodes:
        await found.set_ready(name, "True", "2026-01-01T00:00:00Z")
    # An address that another implementation has assigned is left alone.
    other = balanced("other", "172.31.0.201")
    await make(client, {**other, "spec": {**other["spec"], "clusterIP": "10.96.0.51", "clusterIPs": ["10.96.0.51"]}})
    await client.patch(SERVICES, "other", {"status": {"conditions": []}}, "default", subresource="status")
    async with found.running():
        await make(client, balanced("web", FOUR, SIX, ELSEWHERE))
        addresses = frozenset({FOUR, "fd31::200", ELSEWHERE})
        own = addresses - {ELSEWHERE}
        await until(lambda: found.announcers[first].addresses == own, "the elected node announces")
        assert not found.announcers[second].addresses
        assert found.used == {first: addresses, second: addresses}
        await until(lambda: found.resolved(FOUR) == found.resolved(SIX) == first, "it answers")
        # The other node announces it. The router sends nothing in between.
        await found.set_ready(first, "Unknown", "2026-01-01T00:01:00Z")
        await until(lambda: found.holder(FOUR) == found.holder(SIX) == second, "the other node takes over")
        await until(lambda: not found.announcers[first].addresses, "the first one does not answer any more")
        await found.set_ready(first, "True", "2026-01-01T00:02:00Z")
        await until(lambda: found.holder(FOUR) == found.holder(SIX) == first, "the first one takes over again")
        await client.patch(
            NODES, first, {"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}}}
        )
        await until(lambda: found.holder(FOUR) == second, "a node may be excluded")
        # With the policy Local, only a node with endpoints may answer.
        await client.patch(NODES, first, {"metadata": {"labels": None}})
        await client.create(endpoint_slice("web", endpoint("10.244.1.2", second)))
        await client.patch(SERVICES, "web", {"spec": {"externalTrafficPolicy": "Local"}}, "default")
        await until(lambda: found.announcers[second].addresses == own, "it has the endpoint")
        await client.patch(SLICES, "web-1", {"endpoints": [endpoint("10.244.1.3", first)]}, "default")
        await until(lambda: found.announcers[first].addresses == own, "the endpoint has moved")
        await until(lambda: found.holder(FOUR) == first, "and the address with it")
        await client.delete(SERVICES, "web", "default")
        await until(lambda: not found.announcers[first].addresses, "the Service is gone")
        assert not found.used[first]
    assert found.announcers["node-11"].addresses == frozenset()
