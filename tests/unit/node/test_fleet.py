"""A fleet registers its nodes, renews their Leases and runs bound Pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Network
from itertools import pairwise
from typing import Any

import pytest
from stopped_clock import settle

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.errors import NotFound
from setpoint.meta.objects import Obj
from setpoint.node.fleet import add_fleet
from setpoint.node.node_state import AddressPool, NodeState
from setpoint.node.runtime.simulated import SimulatedRuntime
from setpoint.reconcile import Manager
from setpoint.system import RandomIds

STORES = ("memory", "lagging")
PODS, NODES = builtin("pods"), builtin("nodes")
LEASES = builtin("leases", "coordination.k8s.io")


def a_pod(**spec: Any) -> Obj:
    spec = {"nodeName": "node-1", "containers": [{"name": "c", "image": "nginx"}], **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": spec,
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "generation": 1},
    }


def test_addresses_are_unique_and_reused_late() -> None:
    pool = AddressPool(IPv4Network("10.0.0.0/29"))
    assert pool.allocate("kept", "10.0.0.3") == "10.0.0.3"
    taken = [pool.allocate(name) for name in "abcde"]
    assert taken == ["10.0.0.1", "10.0.0.2", "10.0.0.4", "10.0.0.5", "10.0.0.6"]
    assert pool.allocate("a") == "10.0.0.1"
    with pytest.raises(RuntimeError):
        pool.allocate("too many")
    pool.release("b")
    assert pool.allocate("f") == "10.0.0.2"


def test_restored_addresses_are_not_given_away() -> None:
    """A Pod that is restored before its Node was observed keeps its address when the Pod CIDR is known."""
    node = NodeState("node-1", "172.30.0.1", AddressPool(IPv4Network("10.244.0.0/14")))
    restored: Any = a_pod()
    new: Any = a_pod()
    restored["status"], new["metadata"]["uid"] = {"podIP": "10.244.7.1"}, "other"
    node.allocate_resources("u", {})
    assert node.address_for(restored) == "10.244.7.1"
    node.object = {"metadata": {"name": "node-1"}, "spec": {"podCIDRs": ["10.244.7.0/24"]}}
    assert node.address_for(new) == "10.244.7.2"
    assert node.address_for(restored) == "10.244.7.1"


@asynccontextmanager
async def fleet(server: Any, count: int) -> AsyncIterator[Client]:
    client: Client = server.client
    manager = Manager(client, server.clock, RandomIds(1))
    heartbeat = add_fleet(
        manager,
        count,
        SimulatedRuntime(server.clock, RandomIds(1)),
        client_for=lambda _: client,
        stage_client=client,
        version="v1.37.0",
        runtime_version="1",
    )
    task = asyncio.ensure_future(manager.run())
    await heartbeat.registered.wait()
    try:
        yield client
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_nodes_register_and_renew_their_leases(local_server: Any) -> None:
    async with fleet(local_server, 2) as client:
        assert [node["metadata"]["name"] for node in (await client.list(NODES)).items] == ["node-1", "node-2"]
        first = await client.get(LEASES, "node-2", "kube-node-lease")
        await local_server.clock.advance(11)
        renewed = await client.get(LEASES, "node-2", "kube-node-lease")
        assert renewed["spec"]["renewTime"] > first["spec"]["renewTime"]
        await client.delete(LEASES, "node-2", "kube-node-lease")
        await local_server.clock.advance(11)
        assert await client.get(LEASES, "node-2", "kube-node-lease")
        await client.delete(NODES, "node-2")
        await local_server.clock.advance(301)
        with pytest.raises(NotFound):
            await client.get(NODES, "node-2")


async def test_leases_of_a_large_fleet_are_renewed_in_groups(
    local_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet(local_server, 120) as client:
        update, renewals = client.update, dict[float, list[str]]()

        async def record(obj: Obj, **options: Any) -> Obj:
            renewals.setdefault(local_server.clock.monotonic(), []).append(obj["metadata"]["name"])
            return await update(obj, **options)

        monkeypatch.setattr(client, "update", record)
        await local_server.clock.advance(10)
        assert [len(names) for names in renewals.values()] == [3] * 40
        assert len({name for names in renewals.values() for name in names}) == 120
        times = list(renewals)
        assert [later - earlier for earlier, later in pairwise(times)] == pytest.approx([0.25] * 39)


async def test_an_empty_fleet_is_idle(local_server: Any) -> None:
    async with fleet(local_server, 0) as client:
        await local_server.clock.advance(60)
        assert (await client.list(NODES)).items == []


async def test_a_restarted_fleet_finds_its_nodes(local_server: Any) -> None:
    async with fleet(local_server, 1) as client:
        before = await client.get(NODES, "node-1")
    await local_server.clock.advance(100)
    async with fleet(local_server, 1) as client:
        after = await client.get(NODES, "node-1")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        for was, now in zip(before["status"]["conditions"], after["status"]["conditions"], strict=True):
            assert was["lastTransitionTime"] == now["lastTransitionTime"]
            assert was["lastHeartbeatTime"] < now["lastHeartbeatTime"]


async def test_new_images_are_reported_within_40_seconds_and_nothing_else(
    local_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet(local_server, 1) as client:
        patch, reports = client.patch, list[Obj]()

        async def record(resource: Any, name: str, change: Obj, *arguments: Any, **options: Any) -> Obj:
            if resource == NODES:
                reports.append(change)
            return await patch(resource, name, change, *arguments, **options)

        monkeypatch.setattr(client, "patch", record)
        meta = {"name": "default", "namespace": "default"}
        await client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
        await client.create({**a_pod(), "metadata": {"name": "p", "namespace": "default"}})
        await settle()
        await local_server.clock.advance(19)
        assert reports == []
        await local_server.clock.advance(22)
        assert [set(change["status"]) for change in reports] == [{"conditions", "images"}]
        before = await client.get(NODES, "node-1")
        await patch(NODES, "node-1", {"status": {"nodeInfo": {"architecture": "other"}}}, subresource="status")
        await settle()
        await local_server.clock.advance(301)
        assert (await client.get(NODES, "node-1"))["status"]["nodeInfo"] == before["status"]["nodeInfo"]


async def test_a_bound_pod_runs_and_a_deleted_pod_ends(local_server: Any) -> None:
    async with fleet(local_server, 1) as client:
        meta = {"name": "default", "namespace": "default"}
        await client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
        made = a_pod()
        made["metadata"] = {"name": "p", "namespace": "default"}
        await client.create(made)
        await settle()
        pod = await client.get(PODS, "p", "default")
        assert pod["status"]["phase"] == "Running"
        async with client.watch(PODS, "default", resource_version=pod["metadata"]["resourceVersion"]) as watch:
            await client.delete(PODS, "p", "default")
            seen: list[tuple[str, str, int | None]] = []
            while not seen or seen[-1][0] != "DELETED":
                kind, obj = await watch.__anext__()
                seen.append((kind, obj["status"]["phase"], obj["metadata"].get("deletionGracePeriodSeconds")))
        assert seen[0] == ("MODIFIED", "Running", 30)
        assert seen[1] == ("MODIFIED", "Succeeded", 30)
        with pytest.raises(NotFound):
            await client.get(PODS, "p", "default")
