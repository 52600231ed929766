"""The Service proxy follows the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from local_server import LocalServer
from service_objects import endpoint, endpoint_slice, service

from setpoint.client.resources import builtin
from setpoint.meta.exposition import text
from setpoint.node.host.network.host_ports import HostPort
from setpoint.node.host.network.nft import NftTable
from setpoint.node.host.network.service_proxy import ProxySettings, ServiceProxy
from setpoint.node.host.network.services import Endpoint
from setpoint.reconcile import Manager
from setpoint.system import RandomIds, SystemClock
from setpoint.tasks import child_tasks

SERVICES, SLICES = builtin("services"), builtin("endpointslices", "discovery.k8s.io")


class Node:
    def __init__(self, server: LocalServer, directory: Path, min_interval: float = 0.0) -> None:
        program = directory / "nft"
        program.write_text(f"#!/bin/sh\ncat >> {directory}/inputs; echo == >> {directory}/inputs\n")
        program.chmod(0o755)
        self._inputs = directory / "inputs"
        clock = SystemClock()
        self.client = server.client
        self.manager = Manager(server.client, clock, RandomIds(1))
        self.table = NftTable("t", clock, program=str(program), generation=lambda: None)
        settings = ProxySettings(min_interval=min_interval, conntrack="")
        self.proxy = ServiceProxy(self.manager, "node-a", self.table, settings, clock)

    def inputs(self) -> list[str]:
        return self._inputs.read_text().split("==\n")[:-1] if self._inputs.exists() else []

    async def next_input(self) -> str:
        """Return the next text that nft is given."""
        count = len(self.inputs())
        for _ in range(1000):
            if len(self.inputs()) > count and self.proxy.is_synced:
                return self.inputs()[-1]
            await asyncio.sleep(0.01)
        pytest.fail("nothing is written")


@pytest.fixture
async def node(local_server: LocalServer, tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(local_server, tmp_path)
    await local_server.client.create(service("web", "10.96.0.50"))
    await local_server.client.create(endpoint_slice("web", endpoint("10.244.1.2")))
    async with child_tasks(made.manager.run(), made.proxy.run()):
        yield made


async def test_the_table_is_first_written_when_host_ports_are_known(node: Node) -> None:
    await node.manager.ready.wait()
    await asyncio.sleep(0.05)
    node.proxy.set_host_ports("uid", [HostPort("tcp", 8000, Endpoint("10.244.1.2", 80))])
    assert node.inputs() == [] and not node.proxy.is_synced
    node.proxy.host_ports_known.set()
    first = await node.next_input()
    assert "10.96.0.50 . tcp . 80 : goto svc4-default/web/tcp/80" in first
    assert "tcp . 8000 : goto svc-host4-uid/tcp/8000" in first


async def test_changes_of_all_inputs_are_written(node: Node) -> None:
    node.proxy.host_ports_known.set()
    await node.next_input()
    chain = "svc4-default/web/tcp/80"
    await node.client.patch(SLICES, "web-1", {"endpoints": [endpoint("10.244.1.3")]}, "default")
    assert f"add rule inet t {chain} meta l4proto tcp dnat ip to 10.244.1.3:8080" in await node.next_input()
    node.proxy.set_pod_cidrs(["10.244.1.0/24"])
    assert await node.next_input() == "add element inet t svc-pod-cidrs4 { 10.244.1.0/24 }\n"
    node.proxy.set_local_redirects({("10.96.0.10", "udp", 53): 10053})
    assert "add element inet t svc-redirects4 { 10.96.0.10 . udp . 53 : 10053 }" in await node.next_input()
    node.proxy.set_host_ports("uid", [HostPort("tcp", 8000, Endpoint("10.244.1.2", 80))])
    assert "add chain inet t svc-host4-uid/tcp/8000" in await node.next_input()
    node.proxy.set_host_ports("uid", [])
    assert "delete chain inet t svc-host4-uid/tcp/8000" in await node.next_input()
    await node.client.delete(SERVICES, "web", "default")
    assert f"delete chain inet t {chain}" in await node.next_input()
    assert node.table.replacements == 1
    metrics = text(node.proxy.families())
    assert "kubeproxy_sync_proxy_rules_duration_seconds_count 7" in metrics
    assert node.proxy.metrics.sync_count == 7


async def test_a_service_with_endpoints_is_not_redirected(node: Node) -> None:
    node.proxy.host_ports_known.set()
    await node.next_input()
    node.proxy.set_local_redirects({("10.96.0.50", "tcp", 80): 10053, ("10.96.0.10", "udp", 53): 10053})
    first = await node.next_input()
    assert "svc-redirects4 { 10.96.0.10 . udp . 53 : 10053 }" in first and "10.96.0.50" not in first
    await node.client.patch(SLICES, "web-1", {"endpoints": []}, "default")
    assert "add element inet t svc-redirects4 { 10.96.0.50 . tcp . 80 : 10053 }" in await node.next_input()
    await node.client.patch(SLICES, "web-1", {"endpoints": [endpoint("10.244.1.9")]}, "default")
    assert "delete element inet t svc-redirects4 { 10.96.0.50 . tcp . 80 }" in await node.next_input()


async def test_changes_are_coalesced(local_server: LocalServer, tmp_path: Path) -> None:
    node = Node(local_server, tmp_path, min_interval=0.5)
    node.proxy.host_ports_known.set()
    async with child_tasks(node.manager.run(), node.proxy.run()):
        await node.next_input()
        await node.client.create(service("first", "10.96.1.100"))
        await node.next_input()
        before = len(node.inputs())
        for number in range(20):
            await node.client.create(service(f"s{number}", f"10.96.1.{number + 1}"))
            await asyncio.sleep(0.01)
        while "default/s19" not in node.proxy.services or not node.proxy.is_synced:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert len(node.inputs()) - before <= 4


async def test_the_zone_selects_endpoints(node: Node) -> None:
    node.proxy.host_ports_known.set()
    await node.next_input()
    endpoints = [
        endpoint(f"10.244.1.{number}", hints={"forZones": [{"name": f"zone-{number}"}]}, zone=f"zone-{number}")
        for number in (2, 3)
    ]
    await node.client.patch(SLICES, "web-1", {"endpoints": endpoints}, "default")
    assert "mod 2" in await node.next_input()
    node.proxy.set_zone("zone-3")
    assert "dnat ip to 10.244.1.3:8080" in await node.next_input()
