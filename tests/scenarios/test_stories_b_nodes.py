"""Story B5: a node fails, and its Pods are evicted."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_micro, format_time
from setpoint.testing import VirtualCluster, virtual

PODS, NODES, LEASES = builtin("pods"), builtin("nodes"), builtin("leases", "coordination.k8s.io")
SERVICES, SLICES = builtin("services"), builtin("endpointslices", "discovery.k8s.io")


class HandMade:
    """A node whose every sign of life the test gives itself."""

    def __init__(self, cluster: VirtualCluster, name: str, **labels: str) -> None:
        self._cluster = cluster
        self.name = name
        self._labels = labels

    async def join(self) -> None:
        await self._cluster.client.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": self.name, "labels": {"kubernetes.io/hostname": self.name, **self._labels}},
                "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "conditions": self.conditions()},
            }
        )
        await self.renew()

    def conditions(self, ready: str = "True") -> list[Obj]:
        stamp = format_time(self._cluster.clock.now())
        kinds = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": ready}
        return [
            {
                "type": kind,
                "status": status,
                "reason": "Kubelet",
                "lastHeartbeatTime": stamp,
                "lastTransitionTime": stamp,
            }
            for kind, status in kinds.items()
        ]

    async def post(self, ready: str = "True") -> None:
        change = {"status": {"conditions": self.conditions(ready)}}
        await self._cluster.client.patch(NODES, self.name, change, kind="strategic", subresource="status")

    async def renew(self) -> None:
        spec = {
            "holderIdentity": self.name,
            "leaseDurationSeconds": 40,
            "renewTime": format_micro(self._cluster.clock.now()),
        }
        where = {"name": self.name, "namespace": "kube-node-lease"}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": where, "spec": spec}
        await self._cluster.client.apply(lease, field_manager="test", force=True)

    async def get(self) -> Obj:
        return await self._cluster.client.get(NODES, self.name)

    async def ready(self) -> Obj:
        found: Obj = next(each for each in (await self.get())["status"]["conditions"] if each["type"] == "Ready")
        return found

    async def taints(self) -> set[tuple[str, str]]:
        taints = (await self.get())["spec"].get("taints") or ()
        return {(taint["key"].removeprefix("node.kubernetes.io/"), taint["effect"]) for taint in taints}

    async def run_pods(self) -> list[Obj]:
        """As a kubelet would, for all that are bound to it."""
        stamp = format_time(self._cluster.clock.now())
        found = [pod for pod in await self._cluster.all(PODS) if pod["spec"].get("nodeName") == self.name]
        for number, pod in enumerate(found):
            ip = f"10.9.0.{number + 1}"
            status = {
                "phase": "Running",
                "podIP": ip,
                "podIPs": [{"ip": ip}],
                "startTime": stamp,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": stamp}],
            }
            await self._cluster.client.patch(
                PODS, pod["metadata"]["name"], {"status": status}, "default", kind="strategic", subresource="status"
            )
        return found


def deployment(replicas: int) -> Obj:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }


def pod_on(node: str, name: str, **spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "nginx"}], **spec},
    }


async def running(cluster: VirtualCluster) -> int:
    pods = [pod for pod in await cluster.all(PODS) if "deletionTimestamp" not in pod["metadata"]]
    return sum(pod["status"].get("phase") == "Running" for pod in pods)


@virtual(nodes=3)
async def test_b5_pods_of_a_failed_node_are_replaced_and_the_node_can_return(cluster: VirtualCluster) -> None:
    lost = HandMade(cluster, "lost")
    await lost.join()
    assert await lost.taints() <= {("not-ready", "NoSchedule")}
    await cluster.until(lambda: _no_taints(lost), within=5)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    await cluster.client.create(service)
    await cluster.client.create(deployment(12))

    async def all_bound() -> bool:
        pods = await cluster.all(PODS)
        return len(pods) == 12 and all(pod["spec"].get("nodeName") for pod in pods)

    await cluster.until(all_bound, within=10)
    theirs = await lost.run_pods()
    assert theirs, "the scheduler left the node out"
    await cluster.until(lambda: _is(running(cluster), 12), within=30)
    names = {pod["metadata"]["name"] for pod in theirs}
    went_silent = cluster.clock.now()

    async def unknown() -> bool:
        return bool((await lost.ready())["status"] == "Unknown")

    await cluster.sleep(44)
    assert not await unknown()
    await cluster.until(unknown, within=18)
    ready = await lost.ready()
    assert (ready["reason"], ready["message"]) == ("NodeStatusUnknown", "Kubelet stopped posting node status.")
    await cluster.until(
        lambda: _has(lost.taints(), {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}), within=2
    )
    for pod in await cluster.all(PODS):
        if pod["metadata"]["name"] in names:
            (condition,) = [each for each in pod["status"]["conditions"] if each["type"] == "Ready"]
            assert condition["status"] == "False"
            assert ("Warning", "NodeNotReady", "Node is not ready") in await cluster.events(pod["metadata"]["name"])
    (found,) = await cluster.all(SLICES, selector="kubernetes.io/service-name=web")
    ready_ones = {each["targetRef"]["name"] for each in found["endpoints"] if each["conditions"]["ready"]}
    assert len(ready_ones) == 12 - len(names) and not ready_ones & names
    events = await cluster.events("lost")
    assert ("Normal", "NodeNotReady", "Node lost status is now: NodeNotReady") in events
    assert ("Normal", "RegisteredNode", "Node lost event: Registered Node lost in Controller") in events

    # They stay for as long as they tolerate it: five minutes.
    await cluster.sleep(290)
    assert all("deletionTimestamp" not in pod["metadata"] for pod in await cluster.all(PODS))

    async def told_to_go() -> bool:
        return all(
            "deletionTimestamp" in pod["metadata"]
            for pod in await cluster.all(PODS)
            if pod["metadata"]["name"] in names
        )

    await cluster.until(told_to_go, within=20)
    waited = (cluster.clock.now() - went_silent).total_seconds()
    assert 345 <= waited <= 362
    evicted = await cluster.client.get(PODS, sorted(names)[0], "default")
    (target,) = [each for each in evicted["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert (target["status"], target["reason"]) == ("True", "DeletionByTaintManager")
    assert target["message"] == "Taint manager: deleting due to NoExecute taint"
    name = sorted(names)[0]
    message = f"Marking for deletion Pod default/{name}"
    await cluster.until(lambda: _holds(cluster.events(name), ("Normal", "TaintManagerEviction", message)), within=5)
    await cluster.until(lambda: _is(running(cluster), 12), within=30)
    healthy = {pod["spec"]["nodeName"] for pod in await cluster.all(PODS) if "deletionTimestamp" not in pod["metadata"]}
    assert "lost" not in healthy

    await lost.post()
    await lost.renew()
    await cluster.until(lambda: _no_taints(lost), within=6)


async def _no_taints(node: HandMade) -> bool:
    return not await node.taints()


async def _is(found: Any, wanted: object) -> bool:
    return bool(await found == wanted)


async def _has(found: Any, wanted: set[Any]) -> bool:
    return bool(wanted <= await found)


async def _holds(found: Any, wanted: object) -> bool:
    return wanted in await found


@virtual(nodes=3)
async def test_leases_alone_keep_a_node_healthy(cluster: VirtualCluster) -> None:
    node = HandMade(cluster, "quiet")
    await node.join()
    for _ in range(20):
        await cluster.sleep(10)
        await node.renew()
    assert (await node.ready())["status"] == "True"
    await cluster.sleep(66)
    assert (await node.ready())["status"] == "Unknown"


@virtual(nodes=1)
async def test_a_node_without_a_heartbeat_becomes_unknown_after_a_minute(cluster: VirtualCluster) -> None:
    await cluster.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mute"}})
    await cluster.sleep(55)
    node = await cluster.client.get(NODES, "mute")
    assert not node["status"].get("conditions")
    await cluster.sleep(15)
    node = await cluster.client.get(NODES, "mute")
    assert {each["type"] for each in node["status"]["conditions"]} == {
        "Ready",
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
    }
    for each in node["status"]["conditions"]:
        assert (each["status"], each["reason"]) == ("Unknown", "NodeStatusNeverUpdated")
        assert each["message"] == "Kubelet never posted node status."


@virtual(nodes=2)
async def test_nothing_is_evicted_when_all_nodes_fail(cluster: VirtualCluster) -> None:
    await cluster.client.create(deployment(4))
    await cluster.until(lambda: _is(running(cluster), 4), within=30)
    await cluster.kill("fleet")
    await cluster.sleep(900)
    for node in await cluster.all(NODES, ""):
        assert next(each for each in node["status"]["conditions"] if each["type"] == "Ready")["status"] == "Unknown"
        assert {(taint["key"], taint["effect"]) for taint in node["spec"]["taints"]} == {
            ("node.kubernetes.io/unreachable", "NoSchedule")
        }
    assert all("deletionTimestamp" not in pod["metadata"] for pod in await cluster.all(PODS))
    await cluster.start("fleet")
    await cluster.sleep(15)
    for node in await cluster.all(NODES, ""):
        assert not node["spec"].get("taints")


@virtual(nodes=3)
async def test_a_restart_does_not_extend_tolerations(cluster: VirtualCluster) -> None:
    lost = HandMade(cluster, "lost")
    await lost.join()
    await cluster.client.create(pod_on("lost", "patient"))
    await lost.run_pods()
    await cluster.until(lambda: _has(lost.taints(), {("unreachable", "NoExecute")}), within=70)
    tainted = (await lost.get())["spec"]["taints"]
    await cluster.sleep(200)
    await cluster.kill("controllers")
    await cluster.sleep(60)
    await cluster.start("controllers")
    await cluster.sleep(30)
    assert (await lost.get())["spec"]["taints"] == tainted
    assert "deletionTimestamp" not in (await cluster.client.get(PODS, "patient", "default"))["metadata"]
    await cluster.sleep(15)
    assert "deletionTimestamp" in (await cluster.client.get(PODS, "patient", "default"))["metadata"]


@virtual(nodes=3)
async def test_tolerating_pods_stay_for_their_toleration_seconds(cluster: VirtualCluster) -> None:
    def tolerating(name: str, seconds: int | None) -> Obj:
        toleration: Obj = {"key": "fire", "operator": "Exists", "effect": "NoExecute"}
        return pod_on(
            "node-1", name, tolerations=[toleration | ({} if seconds is None else {"tolerationSeconds": seconds})]
        )

    await cluster.client.create(pod_on("node-1", "not-at-all"))
    await cluster.client.create(tolerating("a-minute", 60))
    await cluster.client.create(tolerating("ten-minutes", 600))
    await cluster.client.create(tolerating("forever", None))
    await cluster.until(lambda: _is(running(cluster), 4), within=30)
    await cluster.client.patch(NODES, "node-1", {"spec": {"taints": [{"key": "fire", "effect": "NoExecute"}]}})

    async def left() -> set[str]:
        return {
            pod["metadata"]["name"] for pod in await cluster.all(PODS) if "deletionTimestamp" not in pod["metadata"]
        }

    await cluster.sleep(1)
    assert await left() == {"a-minute", "ten-minutes", "forever"}
    await cluster.sleep(60)
    assert await left() == {"ten-minutes", "forever"}
    await cluster.client.patch(NODES, "node-1", {"spec": {"taints": None}})
    await cluster.sleep(900)
    assert await left() == {"ten-minutes", "forever"}
    message = "Cancelling deletion of Pod default/ten-minutes"
    assert ("Normal", "TaintManagerEviction", message) in await cluster.events("ten-minutes")


@virtual(nodes=2)
async def test_a_node_that_reports_not_ready_is_tainted(cluster: VirtualCluster) -> None:
    node = HandMade(cluster, "sick")
    await node.join()
    await cluster.until(lambda: _no_taints(node), within=5)
    await node.post("False")
    both = {("not-ready", "NoSchedule"), ("not-ready", "NoExecute")}
    await cluster.until(lambda: _is(node.taints(), both), within=6)
    taints = (await node.get())["spec"]["taints"]
    assert all(taint["timeAdded"] for taint in taints)
    await cluster.sleep(60)
    assert await node.taints() == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}


@virtual(nodes=3)
async def test_a_cordoned_node_has_the_unschedulable_taint(cluster: VirtualCluster) -> None:
    await cluster.client.patch(NODES, "node-1", {"spec": {"unschedulable": True}})
    await cluster.instant()
    (taint,) = (await cluster.client.get(NODES, "node-1"))["spec"]["taints"]
    assert (taint["key"], taint["effect"]) == ("node.kubernetes.io/unschedulable", "NoSchedule")
    await cluster.client.patch(NODES, "node-1", {"spec": {"unschedulable": None}})
    await cluster.instant()
    assert not (await cluster.client.get(NODES, "node-1"))["spec"].get("taints")


@virtual(nodes=8, controller_options=ControllerOptions(node_eviction_rate=0.1))
async def test_evictions_of_a_zone_are_rate_limited(cluster: VirtualCluster) -> None:
    lost = [HandMade(cluster, f"lost-{number}") for number in range(2)]
    for node in lost:
        await node.join()

    async def tainted() -> list[str]:
        return [node.name for node in lost if ("unreachable", "NoExecute") in await node.taints()]

    await cluster.until(tainted, within=70)
    assert len(await tainted()) == 1
    await cluster.sleep(8)
    assert len(await tainted()) == 1
    await cluster.sleep(3)
    assert len(await tainted()) == 2


@virtual(nodes=2)
async def test_pods_of_a_deleted_node_are_deleted(cluster: VirtualCluster) -> None:
    node = HandMade(cluster, "brief")
    await node.join()
    await cluster.client.create(pod_on("brief", "stranded"))
    await node.run_pods()
    await cluster.sleep(10)
    await cluster.client.delete(NODES, "brief")
    await cluster.sleep(35)
    assert await cluster.find(PODS, "stranded") is not None
    seen: list[Obj] = []
    async with cluster.client.watch(PODS, "default") as watch:

        async def follow() -> bool:
            return await cluster.find(PODS, "stranded") is None

        await cluster.until(follow, within=45)
        async for kind, pod in watch:
            if pod["metadata"]["name"] == "stranded":
                seen.append(pod)
                if kind == "DELETED":
                    break
    assert seen[-1]["status"]["phase"] == "Failed"
    (target,) = [each for each in seen[-1]["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert (target["reason"], target["message"]) == ("DeletionByPodGC", "PodGC: node no longer exists")
    assert ("Normal", "RemovingNode", "Node brief event: Removing Node brief from Controller") in await cluster.events(
        "brief"
    )


@virtual(nodes=1)
async def test_an_unscheduled_terminating_pod_with_a_finalizer_fails(cluster: VirtualCluster) -> None:
    pod = pod_on("", "waiting", schedulerName="nobody")
    pod["metadata"]["finalizers"] = ["example.com/hold"]
    await cluster.client.create(pod)
    await cluster.client.delete(PODS, "waiting", "default")
    await cluster.sleep(41)
    found = await cluster.client.get(PODS, "waiting", "default")
    assert found["status"]["phase"] == "Failed"
