"""Faults are injected through the API under the rights of the user, recorded, undone, or end by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from why_scenarios import World, plain, workload

from setpoint.meta.errors import BadRequest, Conflict, Forbidden, NotFound, TooManyRequests
from setpoint.testing import VirtualCluster, virtual
from setpoint.view.faults import FAULTS, fault_sentence

PATH = "/setpoint/v1/faults"
POD, NODE, LEASE = ("v1", "Pod"), ("v1", "Node"), ("coordination.k8s.io/v1", "Lease")


async def state(cluster: VirtualCluster) -> dict[str, Any]:
    return await cluster.client.sender.json("GET", PATH)


async def active(cluster: VirtualCluster) -> list[tuple[str, str]]:
    return [(each["fault"], each["text"]) for each in (await state(cluster))["active"]]


async def inject(cluster: VirtualCluster, fault: str, **args: Any) -> dict[str, Any]:
    answer = await cluster.client.sender.json("POST", PATH, body={"fault": fault, **args})
    return dict(answer["injected"])


async def undo(cluster: VirtualCluster, fault: dict[str, Any]) -> None:
    await cluster.client.sender.json("POST", PATH, body={"undo": fault["id"]})


async def phases(cluster: VirtualCluster) -> list[str]:
    return sorted(pod["status"].get("phase", "") for pod in await cluster.all(POD))


async def waiting_reasons(cluster: VirtualCluster) -> set[str]:
    found = set()
    for pod in await cluster.all(POD):
        for each in pod["status"].get("containerStatuses") or ():
            found.add(((each.get("state") or {}).get("waiting") or {}).get("reason", ""))
    return found - {""}


@virtual()
async def test_a_node_is_stopped_and_comes_back(cluster: VirtualCluster) -> None:
    fault = await inject(cluster, "node-stop", node="node-2")
    assert await active(cluster) == [("node-stop", "powered node-2 off")]
    await cluster.sleep(90)
    node = await cluster.client.get(NODE, "node-2")
    (ready,) = (each for each in node["status"]["conditions"] if each["type"] == "Ready")
    assert ready["status"] == "Unknown"
    messages = [message for _, reason, message in await cluster.events("node-2") if reason == "FaultInjected"]
    assert messages == ["kubernetes-admin powered node-2 off"]
    await undo(cluster, fault)
    await cluster.sleep(30)
    node = await cluster.client.get(NODE, "node-2")
    (ready,) = (each for each in node["status"]["conditions"] if each["type"] == "Ready")
    assert ready["status"] == "True"
    assert await active(cluster) == []
    # A node that was stopped otherwise is listed too, and can be started.
    await cluster.client.patch(
        NODE, "node-1", {"metadata": {"annotations": {"simulate.setpoint.dev/state": "stopped"}}}
    )
    (found,) = (await state(cluster))["active"]
    await undo(cluster, found)
    assert await active(cluster) == []


@virtual()
async def test_containers_crash_hang_and_run_out_of_memory(cluster: VirtualCluster) -> None:
    web = workload("Deployment", "web", 1)
    container = web["spec"]["template"]["spec"]["containers"][0]
    probe = {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1, "failureThreshold": 1}
    container |= {"readinessProbe": probe, "resources": {"limits": {"memory": "64Mi"}}}
    await cluster.client.create(web)
    await cluster.settle()
    (pod,) = await cluster.all(POD)
    target = {"namespace": "default", "pod": pod["metadata"]["name"]}

    async def status() -> dict[str, Any]:
        found = (await cluster.client.get(POD, target["pod"], "default"))["status"]["containerStatuses"][0]
        return dict(found)

    for count in (1, 2):
        assert not (await inject(cluster, "container-crash", **target, code=3))["undo"]
        await cluster.sleep(30 * count)
        found = await status()
        assert found["restartCount"] == count
        assert found["lastState"]["terminated"]["exitCode"] == 3
    fault = await inject(cluster, "container-unready", **target)
    await cluster.sleep(5)
    assert not (await status())["ready"]
    await undo(cluster, fault)
    await cluster.sleep(5)
    assert (await status())["ready"]
    fault = await inject(cluster, "container-oom", **target, container=container["name"])
    await cluster.sleep(5)
    assert (await status())["lastState"]["terminated"]["reason"] == "OOMKilled"
    await undo(cluster, fault)
    await cluster.sleep(300)
    assert (await status())["ready"]
    # Gone with the Pod, it is not in effect any more.
    await inject(cluster, "container-hang", **target)
    assert len(await active(cluster)) == 1
    await inject(cluster, "pod-delete", **target)
    await cluster.settle()
    assert await active(cluster) == []


@virtual()
async def test_images_break_and_the_registry_goes_away(cluster: VirtualCluster) -> None:
    broken = await inject(cluster, "image-broken", image="nginx:1.29")
    web = workload("Deployment", "web", 1)
    web["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:1.29"
    await cluster.client.create(web)
    await cluster.sleep(5)
    assert await waiting_reasons(cluster) <= {"ErrImagePull", "ImagePullBackOff"}
    assert await waiting_reasons(cluster)
    await undo(cluster, broken)
    await cluster.sleep(120)
    assert await phases(cluster) == ["Running"]
    away = await inject(cluster, "registry-away")
    other = workload("Deployment", "other", 1)
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "redis:8"
    await cluster.client.create(other)
    await cluster.sleep(5)
    assert await phases(cluster) == ["Pending", "Running"]
    await undo(cluster, away)
    await cluster.sleep(120)
    assert await phases(cluster) == ["Running", "Running"]


@virtual(leader_elect=True)
async def test_components_stop_die_and_lose_their_lease(cluster: VirtualCluster) -> None:
    components = cluster.embedded.components
    stopped = await inject(cluster, "component-stop", component="scheduler")
    await cluster.client.create(workload("Deployment", "web", 2))
    await cluster.sleep(20)
    assert await phases(cluster) == ["Pending", "Pending"]
    with pytest.raises(Conflict, match="stopped already"):
        await inject(cluster, "component-kill", component="scheduler")
    await undo(cluster, stopped)
    await cluster.sleep(20)
    assert await phases(cluster) == ["Running", "Running"]
    await inject(cluster, "component-kill", component="controllers")
    assert components.controllers.current is None
    await cluster.sleep(30)
    assert components.controllers.current is not None
    assert await active(cluster) == []
    lease = await inject(cluster, "lease-lost", component="controllers")
    assert lease["until"] - lease["since"] == 20_000
    await cluster.sleep(10)
    elected = components.controllers.running
    assert elected.manager is None
    assert elected.state.endswith("fault-injection is the leader")
    await cluster.sleep(20)
    assert elected.manager is not None
    assert await active(cluster) == []
    holder = (await cluster.client.get(LEASE, "kube-controller-manager", "kube-system"))["spec"]["holderIdentity"]
    assert holder == "virtual"


@virtual()
async def test_the_api_server_is_slow_and_refuses_for_a_time(cluster: VirtualCluster) -> None:
    slow = await inject(cluster, "api-slow", milliseconds=700, seconds=30)
    started = cluster.clock.monotonic()
    await cluster.client.list(POD)
    assert cluster.clock.monotonic() - started >= 0.7
    started = cluster.clock.monotonic()
    assert (await state(cluster))["active"][0]["id"] == slow["id"]  # it can be looked at and ended without a delay
    assert cluster.clock.monotonic() == started
    await cluster.sleep(31)
    assert await active(cluster) == []
    assert cluster.embedded.api.disturbance is None
    refusing = await inject(cluster, "api-refuses", percent=100)
    with pytest.raises(TooManyRequests):
        await cluster.client.list(POD)
    await undo(cluster, refusing)
    await cluster.client.list(POD)


@virtual()
async def test_a_full_quota_and_a_drained_node(cluster: VirtualCluster) -> None:
    await cluster.client.create(workload("Deployment", "web", 3))
    await cluster.settle()
    quota = await inject(cluster, "quota-full", namespace="default")
    victim = (await cluster.all(POD))[0]["spec"]["nodeName"]
    await cluster.client.patch(("apps/v1", "Deployment"), "web", {"spec": {"replicas": 5}}, "default")
    await cluster.sleep(10)
    assert len(await cluster.all(POD)) == 3
    await undo(cluster, quota)
    await cluster.sleep(30)
    assert len(await cluster.all(POD)) == 5
    drained = await inject(cluster, "node-drain", node=victim)
    assert "evicted" in drained["text"]
    await cluster.sleep(60)
    pods = await cluster.all(POD)
    assert len(pods) == 5
    assert all(pod["spec"]["nodeName"] != victim for pod in pods)
    await undo(cluster, drained)
    assert not (await cluster.client.get(NODE, victim))["spec"].get("unschedulable")


@virtual()
async def test_rights_and_wrong_requests(cluster: VirtualCluster) -> None:
    await cluster.client.create(workload("Deployment", "web", 1))
    await cluster.settle()
    (pod,) = await cluster.all(POD)
    target = {"namespace": "default", "pod": pod["metadata"]["name"]}
    for body, expected in (
        ({"fault": "node-explode"}, BadRequest),
        ({"fault": "node-stop"}, BadRequest),
        ({"fault": "node-stop", "node": "node-9"}, NotFound),
        ({"fault": "node-stop", "node": "node-1", "pod": "x"}, BadRequest),
        ({"fault": "node-stop", "node": "../pods"}, BadRequest),
        ({"fault": "node-stop", "node": 7}, BadRequest),
        ({"fault": "api-slow", "seconds": 100_000}, BadRequest),
        ({"fault": "api-slow", "milliseconds": 0}, BadRequest),
        ({"fault": "image-broken", "image": "UPPER CASE"}, BadRequest),
        ({"fault": "component-stop", "component": "kubelet"}, BadRequest),
        ({"fault": "lease-lost", "component": "scheduler"}, Conflict),  # this cluster elects no leaders
        ({"fault": "container-hang", **target}, Conflict),  # it has no probes
        ({"fault": "container-oom", **target}, Conflict),  # it has no limit
        ({"fault": "container-crash", **target, "container": "none"}, NotFound),
        ({"undo": "f99"}, NotFound),
    ):
        with pytest.raises(expected):
            await cluster.client.sender.json("POST", PATH, body=body)
    assert await active(cluster) == []
    node = await cluster.client.get(NODE, "node-1")
    real = plain("v1", "Node", "machine", "", status={"nodeInfo": node["status"]["nodeInfo"]})
    real["status"]["nodeInfo"] = {**real["status"]["nodeInfo"], "containerRuntimeVersion": "containerd://2.0"}
    await cluster.client.create(real)
    await cluster.client.patch(NODE, "machine", {"status": real["status"]}, subresource="status")
    with pytest.raises(Conflict, match="is real"):
        await inject(cluster, "node-stop", node="machine")
    # A user who may inject faults still needs the rights for what they write.
    rules = [{"nonResourceURLs": [PATH], "verbs": ["get", "post"]}]
    await cluster.client.create(plain("rbac.authorization.k8s.io/v1", "ClusterRole", "breaker", "", rules=rules))
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "breaker"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "carol"}]
    binding = plain("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "carol", "", roleRef=role, subjects=subjects)
    await cluster.client.create(binding)
    carol = cluster.embedded.components.clients.copying_client("carol", (), agent="kubectl")
    dave = cluster.embedded.components.clients.copying_client("dave", (), agent="kubectl")
    with pytest.raises(Forbidden, match='cannot get resource "nodes"'):
        await carol.sender.json("POST", PATH, body={"fault": "node-stop", "node": "node-1"})
    with pytest.raises(Forbidden):
        await dave.sender.json("GET", PATH)


@virtual()
async def test_the_same_from_the_command_line(cluster: VirtualCluster, tmp_path: Path) -> None:
    world = World(cluster, tmp_path)

    async def typed(line: str, code: int = 0) -> str:
        found, out, err = await world.typed(line)
        assert found == code, err
        return out + err

    assert "node-stop NODE" in await typed("fault")
    assert await typed("fault node-stop node/node-2") == (
        "kubernetes-admin powered node-2 off.\n`setpoint fault undo f1` ends it.\n"
    )
    assert "kubernetes-admin powered node-2 off" in (await typed("fault")).splitlines()[-1]
    text = await typed("fault api-slow --milliseconds 300 --seconds 2m")
    assert "slowed the API server down by 300 ms for 120 s" in text
    assert "ends after 120 s" in text
    assert len((await typed("fault undo all")).splitlines()) == 2
    assert "there is no fault explode" in await typed("fault explode", 1)
    assert "node-stop needs NODE" in await typed("fault node-stop", 1)


def test_every_fault_has_a_sentence() -> None:
    args = {"node": "node-1", "namespace": "default", "pod": "web", "image": "nginx", "component": "scheduler"}
    sentences = {fault_sentence(fault, args) for fault in FAULTS}
    assert len(sentences) == len(FAULTS)
    assert not any(sentence in FAULTS for sentence in sentences)
