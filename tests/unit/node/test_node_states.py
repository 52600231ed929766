"""Simulated nodes are stopped, partitioned, adopted and removed through the API."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
PODS, NODES = builtin("pods"), builtin("nodes")
LEASES = builtin("leases", "coordination.k8s.io")
STATE = "simulate.setpoint.dev/state"


def a_pod(name: str, script: str = "sleep 99999", **spec: Any) -> Obj:
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
    }


async def set_state(cluster: VirtualCluster, node: str, state: str | None) -> None:
    await cluster.client.patch(NODES, node, {"metadata": {"annotations": {STATE: state}}})


async def ready(cluster: VirtualCluster, node: str) -> str:
    found = await cluster.client.get(NODES, node)
    return next(str(each["status"]) for each in found["status"]["conditions"] if each["type"] == "Ready")


async def get(cluster: VirtualCluster, name: str) -> Obj:
    return await cluster.client.get(PODS, name, "default")


@virtual(nodes=1)
async def test_the_status_is_that_of_a_kubelet(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("p"))
    await cluster.sleep(45)
    node = await cluster.client.get(NODES, "node-1")
    status = node["status"]
    assert status["capacity"] == status["allocatable"]
    assert (status["capacity"]["cpu"], status["capacity"]["memory"], status["capacity"]["pods"]) == ("8", "32Gi", "110")
    assert [(each["type"], each["status"], each["reason"]) for each in status["conditions"]] == [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ]
    assert [each["type"] for each in status["addresses"]] == ["InternalIP", "Hostname"]
    assert all(status["nodeInfo"][key] for key in ("machineID", "systemUUID", "bootID", "kubeletVersion"))
    assert [each["names"][1] for each in status["images"]] == ["docker.io/library/busybox:latest"]
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "node-1"
    reasons = [reason for _, reason, _ in await cluster.events("node-1")]
    assert reasons[:2] == ["Starting", "NodeHasSufficientMemory"] and "NodeReady" in reasons


@virtual(nodes=2)
async def test_a_stopped_node_restarts_its_containers_when_it_returns(
    cluster: VirtualCluster,
) -> None:
    await cluster.client.create(
        a_pod(
            "stays", nodeName="node-1", initContainers=[a_pod("i", "sleep 2")["spec"]["containers"][0] | {"name": "i"}]
        )
    )
    await cluster.client.create(a_pod("once", nodeName="node-1", restartPolicy="Never"))
    await cluster.client.create(a_pod("deleted", nodeName="node-1"))
    await cluster.sleep(5)
    boot = (await cluster.client.get(NODES, "node-1"))["status"]["nodeInfo"]["bootID"]
    await set_state(cluster, "node-1", "stopped")
    await cluster.sleep(70)
    assert await ready(cluster, "node-1") == "Unknown"
    await cluster.client.delete(PODS, "deleted", "default")
    await cluster.sleep(60)
    assert await cluster.find(PODS, "deleted"), "nobody is there who could end it"
    assert (await get(cluster, "stays"))["status"]["phase"] == "Running", "nor anybody to say otherwise"
    await set_state(cluster, "node-1", "running")
    await cluster.sleep(10)
    assert await ready(cluster, "node-1") == "True"
    assert await cluster.find(PODS, "deleted") is None
    assert (await cluster.client.get(NODES, "node-1"))["status"]["nodeInfo"]["bootID"] != boot
    once = (await get(cluster, "once"))["status"]
    assert once["phase"] == "Failed"
    ended = once["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (255, "Unknown")
    stays = (await get(cluster, "stays"))["status"]
    assert stays["phase"] == "Running"
    assert [stays[field][0]["restartCount"] for field in ("initContainerStatuses", "containerStatuses")] == [1, 1]
    text = "Pod sandbox changed, it will be killed and re-created."
    assert ("Normal", "SandboxChanged", text) in await cluster.events("stays")


@virtual(nodes=2)
async def test_a_partitioned_node_keeps_running_its_containers(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("long", nodeName="node-1"))
    await cluster.client.create(a_pod("short", "sleep 30; exit 5", nodeName="node-1", restartPolicy="Never"))
    await cluster.client.create(a_pod("deleted", nodeName="node-1"))
    await cluster.sleep(5)
    before = await get(cluster, "long")
    await set_state(cluster, "node-1", "partitioned")
    await cluster.sleep(60)
    assert (await get(cluster, "short"))["status"]["phase"] == "Running"
    await cluster.client.delete(PODS, "deleted", "default", grace_period=5)
    await cluster.sleep(30)
    assert await cluster.find(PODS, "deleted")
    await set_state(cluster, "node-1", None)
    await cluster.sleep(7)
    assert await ready(cluster, "node-1") == "True"
    assert await cluster.find(PODS, "deleted") is None
    short = (await get(cluster, "short"))["status"]
    assert (short["phase"], short["containerStatuses"][0]["state"]["terminated"]["exitCode"]) == ("Failed", 5)
    assert short["containerStatuses"][0]["state"]["terminated"]["finishedAt"].endswith("00:30Z"), "when it happened"
    after = await get(cluster, "long")
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]


@virtual(nodes=1)
async def test_a_created_node_is_adopted_and_a_deleted_one_removed(cluster: VirtualCluster) -> None:
    await cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": "mine",
                "annotations": {"simulate.setpoint.dev/node": "true"},
                "labels": {"pool": "x"},
            },
            "status": {"capacity": {"cpu": "2", "memory": "1Gi", "pods": "5"}},
        }
    )
    await cluster.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}})
    await cluster.until(lambda: is_ready(cluster, "mine"), within=20)
    assert (await cluster.client.get(NODES, "mine"))["status"]["allocatable"]["cpu"] == "2"
    await cluster.client.create(a_pod("p", nodeSelector={"pool": "x"}))
    await cluster.sleep(5)
    assert (await get(cluster, "p"))["status"]["phase"] == "Running"
    assert await cluster.client.get(LEASES, "mine", "kube-node-lease")
    assert not (await cluster.client.get(NODES, "other"))["status"].get("nodeInfo", {}).get("kubeletVersion")
    await cluster.client.delete(NODES, "mine")
    await cluster.client.delete(NODES, "node-1")
    await cluster.sleep(400)
    assert [node["metadata"]["name"] for node in await cluster.all(NODES, "")] == ["other"]


@virtual(nodes=0)
async def test_an_empty_fleet_adopts_created_nodes(cluster: VirtualCluster) -> None:
    await cluster.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}})
    await cluster.sleep(3600)
    labels = {"simulate.setpoint.dev/node": "true"}
    await cluster.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine", "labels": labels}})
    await cluster.until(lambda: is_ready(cluster, "mine"), within=20)
    await cluster.client.create(a_pod("p"))
    await cluster.sleep(5)
    pod = await get(cluster, "p")
    assert (pod["status"]["phase"], pod["spec"]["nodeName"]) == ("Running", "mine")
    starts = [
        each for each in (await cluster.client.list(("v1", "Event"), "default")).items if each["reason"] == "Starting"
    ]
    assert [each.get("count", 1) for each in starts] == [1]


@virtual(nodes=1)
async def test_an_unknown_state_is_reported_as_an_event(cluster: VirtualCluster) -> None:
    await set_state(cluster, "node-1", "stoped")
    await cluster.sleep(70)
    assert await ready(cluster, "node-1") == "True"
    told = [event for event in await cluster.events("node-1") if event[0] == "Warning"]
    message = "annotation simulate.setpoint.dev/state: 'stoped' is not one of running, stopped, partitioned"
    assert told == [("Warning", "InvalidSimulatedState", message)]
    await set_state(cluster, "node-1", "stopped")
    await cluster.sleep(70)
    assert await ready(cluster, "node-1") == "Unknown"


async def is_ready(cluster: VirtualCluster, node: str) -> bool:
    found = await cluster.client.get(NODES, node)
    return any(each["type"] == "Ready" and each["status"] == "True" for each in found["status"].get("conditions") or ())


@virtual(nodes=1)
async def test_pods_get_addresses_of_the_nodes_pod_cidr(cluster: VirtualCluster) -> None:
    await cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "spec": {"podCIDR": "10.9.8.0/24", "podCIDRs": ["10.9.8.0/24"]},
            "metadata": {"name": "ranged", "labels": {"simulate.setpoint.dev/node": "true"}},
        }
    )
    await cluster.until(lambda: is_ready(cluster, "ranged"), within=20)
    tolerations = [{"operator": "Exists"}]
    pods: dict[str, Obj] = {"a": {}, "b": {}, "host": {"hostNetwork": True}}
    for name, more in pods.items():
        await cluster.client.create(a_pod(name, nodeName="ranged", tolerations=tolerations, **more))
    await cluster.sleep(2)
    found = [(await get(cluster, name))["status"]["podIP"] for name in ("a", "b", "host")]
    assert found[0].startswith("10.9.8.") and found[1].startswith("10.9.8.") and found[0] != found[1]
    assert found[2] == (await get(cluster, "a"))["status"]["hostIP"]
