"""Simulated nodes: what they say about Pods, and that they keep saying it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network
from typing import Any

import pytest
from stopped_clock import StoppedClock, settle

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.cluster.system import RandomIds
from setpoint.meta.errors import NotFound
from setpoint.node.addresses import AddressPool
from setpoint.node.fleet import add_fleet
from setpoint.node.pod_status import Addresses, differs, pod_status
from setpoint.node.runtime.simulated import SimulatedRuntime, image_id_of
from setpoint.reconcile import Manager

Obj = dict[str, Any]
NOW = datetime(2030, 1, 1, tzinfo=UTC)
HERE = Addresses("172.30.0.1", "10.244.0.1")
PODS, NODES = builtin("pods"), builtin("nodes")
LEASES = builtin("leases", "coordination.k8s.io")


def a_pod(**spec: Any) -> Obj:
    spec = {"nodeName": "node-1", "containers": [{"name": "c", "image": "nginx"}], **spec}
    return {
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "generation": 1},
    }  # fmt: skip


def conditions(status: Obj) -> dict[str, str]:
    return {found["type"]: found["status"] for found in status["conditions"]}


async def test_the_status_of_a_pod_from_start_to_end() -> None:
    clock = StoppedClock()
    runtime = SimulatedRuntime(clock, RandomIds(1))
    pod = a_pod(initContainers=[{"name": "i", "image": "busybox:1"}])
    await runtime.start(pod)
    assert list(runtime.running()) == ["u"]
    report = runtime.status("u")
    assert report is not None
    status = pod_status(pod, report, HERE, NOW)
    assert status["phase"] == "Running"
    assert set(conditions(status).values()) == {"True"}
    (container,), (init,) = status["containerStatuses"], status["initContainerStatuses"]
    assert container["state"] == {"running": {"startedAt": "2030-01-01T00:00:00Z"}}
    assert (container["ready"], container["started"], container["restartCount"]) == (True, True, 0)
    assert init["state"]["terminated"]["reason"] == "Completed"
    assert (status["podIP"], status["hostIP"]) == (HERE.pod, HERE.host)

    running = {**pod, "status": status}
    assert not differs(running, pod_status(running, report, HERE, NOW + timedelta(hours=1)))

    await runtime.stop(running, 30)
    report = runtime.status("u")
    assert report is not None
    ended = pod_status(running, report, HERE, NOW + timedelta(seconds=1))
    assert differs(running, ended)
    assert ended["phase"] == "Succeeded"
    assert conditions(ended)["Ready"] == conditions(ended)["ContainersReady"] == "False"
    assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert ended["startTime"] == status["startTime"]


async def test_containers_outlive_the_agent() -> None:
    first, later = StoppedClock(), StoppedClock()
    await later.advance(3600)
    pod = a_pod()
    runtime = SimulatedRuntime(first, RandomIds(1))
    await runtime.start(pod)
    report = runtime.status("u")
    assert report is not None
    pod = {**pod, "status": pod_status(pod, report, HERE, NOW)}
    again = SimulatedRuntime(later, RandomIds(2))
    await again.start(pod)
    assert again.status("u") == report


def test_a_closed_readiness_gate_keeps_a_pod_unready() -> None:
    from setpoint.node.runtime.interface import ContainerReport, PodReport

    pod = a_pod(readinessGates=[{"conditionType": "example.com/open"}])
    report = PodReport(containers=[ContainerReport("c", "nginx", started_at=NOW)])
    status = pod_status(pod, report, HERE, NOW)
    assert (conditions(status)["ContainersReady"], conditions(status)["Ready"]) == ("True", "False")
    pod["status"] = {"conditions": [{"type": "example.com/open", "status": "True"}]}
    assert conditions(pod_status(pod, report, HERE, NOW))["Ready"] == "True"


@pytest.mark.parametrize(
    ("image", "name"),
    [("nginx", "nginx"), ("nginx:1.2", "nginx"), ("host:50/a/b", "host:50/a/b"), ("host:50/a/b:c", "host:50/a/b")],
)
def test_an_image_has_an_id(image: str, name: str) -> None:
    assert image_id_of(image).partition("@sha256:")[0] == name
    assert image_id_of(f"{name}@sha256:abc") == f"{name}@sha256:abc"


def test_addresses_are_unique_kept_and_used_again_late() -> None:
    pool = AddressPool(IPv4Network("10.0.0.0/29"))
    assert pool.take("kept", "10.0.0.3") == "10.0.0.3"
    taken = [pool.take(name) for name in "abcde"]
    assert taken == ["10.0.0.1", "10.0.0.2", "10.0.0.4", "10.0.0.5", "10.0.0.6"]
    assert pool.take("a") == "10.0.0.1"
    with pytest.raises(RuntimeError):
        pool.take("too many")
    pool.release("b")
    assert pool.take("f") == "10.0.0.2"


@asynccontextmanager
async def fleet(server: Any, count: int) -> AsyncIterator[Client]:
    client: Client = server.client
    manager = Manager(client, server.clock, RandomIds(1))
    heartbeat = add_fleet(
        manager, count, SimulatedRuntime(server.clock, RandomIds(1)),
        client_for=lambda _: client, version="v1.37.0", runtime_version="1",
    )  # fmt: skip
    task = asyncio.ensure_future(manager.run())
    await heartbeat.registered.wait()
    yield client
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
        assert await client.get(NODES, "node-2"), "a node that lives comes back"


async def test_a_fleet_of_no_nodes_rests(local_server: Any) -> None:
    async with fleet(local_server, 0) as client:
        await local_server.clock.advance(60)
        assert (await client.list(NODES)).items == []


async def test_a_fleet_that_starts_again_finds_its_nodes(local_server: Any) -> None:
    async with fleet(local_server, 1) as client:
        before = await client.get(NODES, "node-1")
    await local_server.clock.advance(100)
    async with fleet(local_server, 1) as client:
        after = await client.get(NODES, "node-1")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        for was, now in zip(before["status"]["conditions"], after["status"]["conditions"], strict=True):
            assert was["lastTransitionTime"] == now["lastTransitionTime"]
            assert was["lastHeartbeatTime"] < now["lastHeartbeatTime"]


async def test_a_bound_pod_runs_and_a_deleted_one_ends(local_server: Any) -> None:
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
            seen = []
            while not seen or seen[-1][0] != "DELETED":
                kind, obj = await watch.__anext__()
                seen.append((kind, obj["status"]["phase"], obj["metadata"].get("deletionGracePeriodSeconds")))
        assert seen[0] == ("MODIFIED", "Running", 30)
        assert seen[1] == ("MODIFIED", "Succeeded", 30)
        with pytest.raises(NotFound):
            await client.get(PODS, "p", "default")
