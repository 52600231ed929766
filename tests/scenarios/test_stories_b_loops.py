"""Stories B2, B3, B4 and B6: repair, restarts, leaders, and unreachable desired state, in virtual time."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.cluster.components import ComponentOptions, Components
from setpoint.cluster.virtual.link import Link, LinkedClient
from setpoint.meta.objects import Obj
from setpoint.system import RandomIds
from setpoint.testing import VirtualCluster, virtual

PODS, NODES, QUOTAS = builtin("pods"), builtin("nodes"), builtin("resourcequotas")
DEPLOYMENTS, SETS = builtin("deployments", "apps"), builtin("replicasets", "apps")
LEASES = builtin("leases", "coordination.k8s.io")


def deployment(replicas: int, name: str = "web", **container: Any) -> Obj:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "nginx", **container}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


async def running(cluster: VirtualCluster, count: int) -> bool:
    pods = await cluster.all(PODS)
    up = [pod for pod in pods if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]]
    return len(up) == len(pods) == count


async def holder(cluster: VirtualCluster, name: str) -> str:
    lease = await cluster.client.get(LEASES, name, "kube-system")
    return str(lease["spec"].get("holderIdentity") or "")


@virtual(nodes=3)
async def test_b2_a_deleted_pod_is_replaced_within_a_second(cluster: VirtualCluster) -> None:
    await cluster.client.create(deployment(3))
    await cluster.until(lambda: running(cluster, 3))
    before = {pod["metadata"]["name"] for pod in await cluster.all(PODS)}
    gone = sorted(before)[0]
    await cluster.client.delete(PODS, gone, "default")
    deleted = cluster.clock.monotonic()

    async def replaced() -> bool:
        names = {pod["metadata"]["name"] for pod in await cluster.all(PODS)}
        return len(names - before) == 1

    await cluster.until(replaced, within=1)
    assert cluster.clock.monotonic() - deleted < 1
    (owner,) = await cluster.all(SETS)
    created = [
        message
        for _, reason, message in await cluster.events(owner["metadata"]["name"])
        if reason == "SuccessfulCreate"
    ]
    new = {pod["metadata"]["name"] for pod in await cluster.all(PODS)} - before
    assert f"Created pod: {new.pop()}" in created
    await cluster.until(lambda: running(cluster, 3))

    async def counted() -> bool:
        (found,) = await cluster.all(SETS)
        return bool(found["status"].get("readyReplicas") == found["status"].get("replicas") == 3)

    await cluster.until(counted)


@virtual(nodes=5)
async def test_b3_a_hundred_pods_lost_during_an_outage_are_replaced(cluster: VirtualCluster) -> None:
    await cluster.client.create(deployment(150))
    await cluster.until(lambda: running(cluster, 150), within=120)
    before = {pod["metadata"]["uid"] for pod in await cluster.all(PODS)}
    await cluster.stop("controllers", "scheduler")
    for pod in (await cluster.all(PODS))[:100]:
        await cluster.client.delete(PODS, pod["metadata"]["name"], "default", grace_period=0)
    await cluster.sleep(600)
    assert len(await cluster.all(PODS)) == 50
    await cluster.start("controllers", "scheduler")
    await cluster.until(lambda: running(cluster, 150), within=120)
    after = {pod["metadata"]["uid"] for pod in await cluster.all(PODS)}
    assert len(after & before) == 50, "those that were left alone are left alone"


@virtual(nodes=2)
async def test_b3_restarts_of_components_repeat_nothing(cluster: VirtualCluster) -> None:
    await cluster.client.create(deployment(6))
    for name in ("controllers", "scheduler", "fleet") * 3:
        await cluster.sleep(0.3)
        await cluster.kill(name)
        await cluster.start(name)
    await cluster.until(lambda: running(cluster, 6))
    uids = {pod["metadata"]["uid"] for pod in await cluster.all(PODS)}
    for name in ("controllers", "scheduler", "fleet"):
        await cluster.kill(name)
        await cluster.start(name)
    await cluster.sleep(120)
    pods = await cluster.all(PODS)
    assert {pod["metadata"]["uid"] for pod in pods} == uids
    assert all(status["restartCount"] == 0 for pod in pods for status in pod["status"]["containerStatuses"])
    assert len(await cluster.all(SETS)) == 1


@virtual(nodes=2, leader_elect=True)
async def test_b4_a_standby_takes_over_when_the_leader_dies(cluster: VirtualCluster) -> None:
    link = Link("second")
    options = ComponentOptions(
        nodes=0, identity="second", wrap=lambda _, client: LinkedClient(client, link), default_storage_class=False
    )
    second = Components(cluster.embedded.api, cluster.clock, RandomIds(99), options)
    async with second:
        for name in ("kube-controller-manager", "kube-scheduler"):
            assert await holder(cluster, name) == "virtual"
        assert second.controllers.running.manager is None, "who does not lead does not work"
        await cluster.client.create(deployment(4))
        await cluster.until(lambda: running(cluster, 4))
        await cluster.kill("controllers", "scheduler")
        died = cluster.clock.monotonic()
        await cluster.client.delete(PODS, (await cluster.all(PODS))[0]["metadata"]["name"], "default", grace_period=0)
        await cluster.sleep(9)
        assert len(await cluster.all(PODS)) == 3, "the lease of the dead one still runs"
        await cluster.until(lambda: running(cluster, 4), within=30)
        assert cluster.clock.monotonic() - died < 15 + 2 * 2.2 + 2
        for name in ("kube-controller-manager", "kube-scheduler"):
            assert await holder(cluster, name) == "second"
        await cluster.start("controllers", "scheduler")
        await cluster.sleep(60)
        assert await holder(cluster, "kube-controller-manager") == "second", "who comes back stands by"


@virtual(nodes=3)
async def test_b6_an_unschedulable_pod_reports_why_and_is_scheduled_later(cluster: VirtualCluster) -> None:
    await cluster.client.create(deployment(1, resources={"requests": {"cpu": "64"}}))
    await cluster.until(lambda: pending_with(cluster, "0/3 nodes are available: 3 Insufficient cpu."))
    (pod,) = await cluster.all(PODS)
    (scheduled,) = [each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    assert scheduled["message"].startswith("0/3 nodes are available: 3 Insufficient cpu.")
    await cluster.sleep(1200)
    large = {
        "status": {
            "capacity": {"cpu": "96", "memory": "64Gi", "pods": "110"},
            "allocatable": {"cpu": "96", "memory": "64Gi", "pods": "110"},
        }
    }
    await cluster.client.patch(NODES, "node-2", large, subresource="status")
    await cluster.until(lambda: running(cluster, 1), within=15)


async def pending_with(cluster: VirtualCluster, message: str) -> bool:
    pod = next(iter(await cluster.all(PODS)), None)
    if pod is None:
        return False
    said = [
        text for kind, reason, text in await cluster.events(pod["metadata"]["name"]) if reason == "FailedScheduling"
    ]
    return any(text.startswith(message) for text in said)


@virtual(nodes=1)
async def test_b6_an_exhausted_quota_delays_pods(cluster: VirtualCluster) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": "default"},
        "spec": {"hard": {"pods": "2"}},
    }
    await cluster.client.create(quota)
    await cluster.sleep(5)
    await cluster.client.create(deployment(3))
    await cluster.until(lambda: running(cluster, 2))
    await cluster.sleep(30)
    assert len(await cluster.all(PODS)) == 2
    (owner,) = await cluster.all(SETS)
    failed = [text for _, reason, text in await cluster.events(owner["metadata"]["name"]) if reason == "FailedCreate"]
    assert any(
        "is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2" in text for text in failed
    )
    conditions = {each["type"]: each for each in owner["status"]["conditions"]}
    assert conditions["ReplicaFailure"]["reason"] == "FailedCreate"
    await cluster.client.patch(QUOTAS, "few", {"spec": {"hard": {"pods": "5"}}}, "default")
    await cluster.until(lambda: running(cluster, 3), within=1200)
