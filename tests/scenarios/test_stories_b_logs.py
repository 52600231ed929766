"""B7: the logs of the control plane, as the logs of its Pods."""

from __future__ import annotations

import asyncio
import re

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

PODS, NODES = builtin("pods"), builtin("nodes")
LINE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [a-z_]+\.py:\d+\] .+")


def deployment(name: str, replicas: int) -> Obj:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}},
        },
    }


async def component(cluster: VirtualCluster, name: str) -> Obj:
    """Found as people find it."""
    (pod,) = await cluster.all(PODS, "kube-system", f"component={name}")
    return pod


async def log(cluster: VirtualCluster, name: str, query: str = "") -> str:
    pod = await component(cluster, name)
    path = f"/api/v1/namespaces/kube-system/pods/{pod['metadata']['name']}/log"
    reply = await cluster.client.sender.transport.request("GET", path, query, [], b"")
    assert reply.status == 200, reply.body
    return reply.body.decode()


async def all_there(cluster: VirtualCluster) -> bool:
    pods = await cluster.all(PODS, "kube-system", "tier=control-plane")
    return len(pods) == 3 and all(pod["status"].get("phase") == "Running" for pod in pods)


@virtual(nodes=2, control_plane_pods=True)
async def test_the_components_are_mirror_pods_on_the_first_node(cluster: VirtualCluster) -> None:
    await cluster.until(lambda: all_there(cluster))
    node = await cluster.client.get(NODES, "node-1")
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        pod = await component(cluster, name)
        meta, spec, status = pod["metadata"], pod["spec"], pod["status"]
        assert meta["name"] == f"{name}-node-1"
        assert meta["labels"] == {"component": name, "tier": "control-plane"}
        notes = meta["annotations"]
        assert notes["kubernetes.io/config.source"] == "file"
        assert notes["kubernetes.io/config.mirror"] == notes["kubernetes.io/config.hash"]
        (owner,) = meta["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Node", node["metadata"]["uid"], True)
        assert spec["hostNetwork"] and spec["nodeName"] == "node-1"
        assert (spec["priorityClassName"], spec["priority"]) == ("system-node-critical", 2_000_001_000)
        assert {"effect": "NoExecute", "operator": "Exists"} in spec["tolerations"]
        assert status["podIP"] == status["hostIP"]
        assert all(each["status"] == "True" for each in status["conditions"])
        assert status["containerStatuses"][0]["ready"]


@virtual(nodes=1, control_plane_pods=True, leader_elect=True)
async def test_their_logs_show_the_activity_of_the_controllers(cluster: VirtualCluster) -> None:
    await cluster.until(lambda: all_there(cluster))
    await cluster.client.create(deployment("web", 3))
    await cluster.sleep(5)
    assert len((await log(cluster, "kube-controller-manager", "tailLines=5")).splitlines()) == 5
    told = await log(cluster, "kube-controller-manager")
    assert all(LINE.fullmatch(line) for line in told.splitlines()), told
    assert 'kind="Deployment" type="Normal" reason="ScalingReplicaSet"' in told
    assert told.count('reason="SuccessfulCreate"') == 3
    assert "became leader of kube-controller-manager" in told
    assert (await log(cluster, "kube-scheduler")).count('reason="Scheduled"') == 3
    assert 'reason="Started"' not in told, "what nodes say is not the control plane's"
    assert "SuccessfulCreate" not in await log(cluster, "kube-scheduler")


@virtual(nodes=1, control_plane_pods=True)
async def test_the_logs_can_be_followed(cluster: VirtualCluster) -> None:
    await cluster.until(lambda: all_there(cluster))
    await cluster.sleep(2)
    path = "/api/v1/namespaces/kube-system/pods/kube-controller-manager-node-1/log"
    stream = await cluster.client.sender.transport.stream("GET", path, "follow=true&tailLines=0", [], b"")
    seen: list[str] = []

    async def read() -> None:
        async for piece in stream:
            seen.append(piece.decode())

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        await cluster.sleep(1)
        assert not seen
        await cluster.client.create(deployment("later", 2))
        await cluster.sleep(1)
        assert sum('reason="SuccessfulCreate"' in line for line in seen) == 2
        reading.cancel()
    stream.close()


@virtual(nodes=1, control_plane_pods=True)
async def test_a_deleted_mirror_pod_is_recreated(cluster: VirtualCluster) -> None:
    await cluster.until(lambda: all_there(cluster))
    before = await component(cluster, "kube-scheduler")
    await cluster.client.delete(PODS, before["metadata"]["name"], "kube-system")

    async def is_back() -> bool:
        found = await cluster.find(PODS, before["metadata"]["name"], "kube-system")
        return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

    await cluster.until(is_back, within=10)
    await cluster.until(lambda: all_there(cluster))
    after = await component(cluster, "kube-scheduler")
    assert after["status"]["startTime"] == before["status"]["startTime"], "what runs was not touched"
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]


@virtual(nodes=1)
async def test_without_a_log_there_is_no_mirror_pod(cluster: VirtualCluster) -> None:
    await cluster.sleep(5)
    assert await cluster.all(PODS, "kube-system") == []
