"""Stories C1 to C4 (the part about DaemonSets): workloads, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.reconcile import Informer
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
PODS, SETS, CLAIMS = builtin("pods"), builtin("replicasets", "apps"), builtin("persistentvolumeclaims")
DEPLOYMENTS, STATEFUL_SETS = builtin("deployments", "apps"), builtin("statefulsets", "apps")
DAEMON_SETS, NODES = builtin("daemonsets", "apps"), builtin("nodes")
REVISION = "deployment.kubernetes.io/revision"
ALONE: dict[str, Any] = {"nodes": 0, "scheduler": False}
"""Nobody but the controllers: what becomes of a Pod is up to the test."""


def template(image: str, app: str = "web", **spec: Any) -> Obj:
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": image}], **spec}}


def workload(kind: str, name: str = "web", image: str = "one", **spec: Any) -> Obj:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template(image, name), **spec},
    }


def image_of(obj: Obj) -> str:
    spec = obj["spec"].get("template", obj)["spec"]
    return str(spec["containers"][0]["image"])


def is_ready(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def mark(cluster: VirtualCluster, pod: Obj, *, ready: bool = True) -> None:
    stamp = cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": stamp}]}
    meta = pod["metadata"]
    await cluster.client.patch(PODS, meta["name"], {"status": status}, meta["namespace"], subresource="status")


async def deployment(cluster: VirtualCluster) -> Obj:
    return await cluster.client.get(DEPLOYMENTS, "web", "default")


async def change(cluster: VirtualCluster, **spec: Any) -> None:
    await cluster.client.patch(DEPLOYMENTS, "web", {"spec": spec}, "default")


async def is_complete(cluster: VirtualCluster) -> bool:
    found = await deployment(cluster)
    status, size = found.get("status") or {}, found["spec"]["replicas"]
    return bool(
        status.get("observedGeneration") == found["metadata"]["generation"]
        and status.get("updatedReplicas") == status.get("availableReplicas") == status.get("replicas") == size
    )


def progress(found: Obj) -> tuple[str, str]:
    conditions = {each["type"]: each for each in found["status"]["conditions"]}
    return conditions["Progressing"]["status"], conditions["Progressing"]["reason"]


async def revisions(cluster: VirtualCluster) -> dict[int, str]:
    """The images by revision."""
    found = await cluster.all(SETS)
    return {int(each["metadata"]["annotations"][REVISION]): image_of(each) for each in found}


@asynccontextmanager
async def every_change_of_pods(cluster: VirtualCluster, look: Callable[[list[Obj]], None]) -> AsyncIterator[None]:
    """`look` is given all Pods after each change, while the block runs."""
    informer = Informer[Any](cluster.client, PODS, cluster.clock, namespace="default")
    informer.add_handler(lambda old, new: look(list(informer.items.values())) if informer.synced.is_set() else None)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(informer.run())
        await informer.synced.wait()
        yield
        following.cancel()


# -- C1: Deployments ------------------------------------------------------------------------------------------------


@virtual(nodes=3)
async def test_c1_a_rolling_update_respects_surge_and_unavailability(cluster: VirtualCluster) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}}
    await cluster.client.create(workload("Deployment", replicas=8, strategy=strategy))
    await cluster.until(lambda: is_complete(cluster))

    broken: list[str] = []

    def look(pods: list[Obj]) -> None:
        pods = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        ready = sum(is_ready(pod) for pod in pods)
        if len(pods) > 10 or ready < 7:
            broken.append(f"{len(pods)} Pods, {ready} ready")

    async with every_change_of_pods(cluster, look):
        await change(cluster, template=template("two"))
        await cluster.until(lambda: is_complete(cluster), within=300)
    assert not broken
    assert {image_of(pod) for pod in await cluster.all(PODS) if is_ready(pod)} == {"two"}
    assert progress(await deployment(cluster)) == ("True", "NewReplicaSetAvailable")
    names = {image_of(each): each["metadata"]["name"] for each in await cluster.all(SETS)}
    messages = [message for _, reason, message in await cluster.events("web") if reason == "ScalingReplicaSet"]
    assert messages[:2] == [
        f"Scaled up replica set {names['one']} from 0 to 8",
        f"Scaled up replica set {names['two']} from 0 to 2",
    ]


@virtual(nodes=3)
async def test_c1_history_undo_and_its_limit(cluster: VirtualCluster) -> None:
    await cluster.client.create(workload("Deployment", replicas=2, revisionHistoryLimit=2))
    await cluster.until(lambda: is_complete(cluster))
    for image in ("two", "three", "four"):
        await change(cluster, template=template(image))
        await cluster.until(lambda: is_complete(cluster), within=300)
    await cluster.instant()
    assert await revisions(cluster) == {2: "two", 3: "three", 4: "four"}
    # What `rollout undo --to-revision=2` does.
    await change(cluster, template=template("two"))
    await cluster.until(lambda: is_complete(cluster), within=300)
    assert await revisions(cluster) == {3: "three", 4: "four", 5: "two"}
    found = await deployment(cluster)
    assert found["metadata"]["annotations"][REVISION] == "5"
    (back,) = [each for each in await cluster.all(SETS) if image_of(each) == "two"]
    assert back["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"] == "2"


@virtual(**ALONE)
async def test_c1_a_stuck_rollout_exceeds_its_progress_deadline(cluster: VirtualCluster) -> None:
    await cluster.client.create(workload("Deployment", replicas=3, progressDeadlineSeconds=60))
    await cluster.instant()
    assert progress(await deployment(cluster)) == ("True", "ReplicaSetUpdated")
    await cluster.sleep(59)
    assert progress(await deployment(cluster)) == ("True", "ReplicaSetUpdated")
    await cluster.sleep(5)
    found = await deployment(cluster)
    assert progress(found) == ("False", "ProgressDeadlineExceeded")
    for pod in await cluster.all(PODS):
        await mark(cluster, pod)
    await cluster.instant()
    assert progress(await deployment(cluster)) == ("True", "NewReplicaSetAvailable")


@virtual(**ALONE)
async def test_c1_minimum_ready_seconds_slow_a_rollout_down(cluster: VirtualCluster) -> None:
    await cluster.client.create(workload("Deployment", replicas=1, minReadySeconds=20))
    await cluster.instant()
    (pod,) = await cluster.all(PODS)
    await mark(cluster, pod)
    await cluster.sleep(15)
    found = (await deployment(cluster))["status"]
    assert (found["readyReplicas"], found.get("availableReplicas", 0)) == (1, 0)
    await cluster.sleep(6)
    assert await is_complete(cluster)


@virtual(**ALONE)
async def test_c1_a_paused_deployment_scales_but_does_not_roll_out(cluster: VirtualCluster) -> None:
    await cluster.client.create(workload("Deployment", replicas=2, progressDeadlineSeconds=60))
    await cluster.instant()
    await change(cluster, paused=True, replicas=4, template=template("two"))
    await cluster.instant()
    assert progress(await deployment(cluster)) == ("Unknown", "DeploymentPaused")
    assert [image_of(pod) for pod in await cluster.all(PODS)] == ["one"] * 4
    await cluster.sleep(600)
    assert progress(await deployment(cluster)) == ("Unknown", "DeploymentPaused"), "a pause is no lack of progress"
    await change(cluster, paused=None)
    await cluster.instant()
    assert "two" in {image_of(pod) for pod in await cluster.all(PODS)}
    assert progress(await deployment(cluster))[0] == "True"


@virtual(**ALONE)
async def test_c1_scaling_during_a_rollout_is_proportional(cluster: VirtualCluster) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}
    await cluster.client.create(workload("Deployment", replicas=10, strategy=strategy))
    await cluster.instant()
    for pod in await cluster.all(PODS):
        await mark(cluster, pod)
    await cluster.instant()
    await change(cluster, template=template("broken"))
    await cluster.instant()

    async def sizes() -> dict[str, int]:
        return {image_of(each): each["spec"]["replicas"] for each in await cluster.all(SETS)}

    assert await sizes() == {"one": 8, "broken": 5}
    await change(cluster, replicas=15)
    await cluster.instant()
    assert await sizes() == {"one": 11, "broken": 7}
    annotations = [each["metadata"]["annotations"] for each in await cluster.all(SETS)]
    assert {each["deployment.kubernetes.io/desired-replicas"] for each in annotations} == {"15"}
    assert {each["deployment.kubernetes.io/max-replicas"] for each in annotations} == {"18"}


@virtual(nodes=2)
async def test_c1_recreate_never_runs_old_and_new_pods_together(cluster: VirtualCluster) -> None:
    await cluster.client.create(workload("Deployment", replicas=3, strategy={"type": "Recreate"}))
    await cluster.until(lambda: is_complete(cluster))
    both: list[set[str]] = []

    def look(pods: list[Obj]) -> None:
        images = {image_of(pod) for pod in pods}
        if len(images) > 1:
            both.append(images)

    async with every_change_of_pods(cluster, look):
        await change(cluster, template=template("two"))
        await cluster.until(lambda: is_complete(cluster), within=300)
    assert not both


@virtual(**ALONE)
async def test_c1_an_exhausted_quota_is_reported(cluster: VirtualCluster) -> None:
    meta = {"name": "q", "namespace": "default"}
    hard = {"hard": {"pods": "1"}}
    await cluster.client.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": hard})
    status = {"status": {**hard, "used": {"pods": "0"}}}
    await cluster.client.patch(builtin("resourcequotas"), "q", status, "default", subresource="status")
    await cluster.client.create(workload("Deployment", replicas=2))
    await cluster.sleep(1)
    conditions = {each["type"]: each for each in (await deployment(cluster))["status"]["conditions"]}
    assert (conditions["ReplicaFailure"]["status"], conditions["ReplicaFailure"]["reason"]) == ("True", "FailedCreate")
    assert "exceeded quota: q" in conditions["ReplicaFailure"]["message"]


# -- C2: adoption and release ---------------------------------------------------------------------------------------


@virtual(nodes=2)
async def test_c2_a_relabelled_pod_is_released_and_replaced(cluster: VirtualCluster) -> None:
    await cluster.client.create(workload("Deployment", replicas=3))
    await cluster.until(lambda: is_complete(cluster))
    odd = (await cluster.all(PODS))[0]["metadata"]["name"]
    await cluster.client.patch(PODS, odd, {"metadata": {"labels": {"app": "debug"}}}, "default")
    await cluster.sleep(1)
    assert "ownerReferences" not in (await cluster.client.get(PODS, odd, "default"))["metadata"]
    assert len(await cluster.all(PODS, selector="app=web")) == 3


@virtual(nodes=2)
async def test_c2_orphans_are_adopted_by_a_new_owner(cluster: VirtualCluster) -> None:
    await cluster.client.create(workload("Deployment", replicas=3))
    await cluster.until(lambda: is_complete(cluster))
    uids = {pod["metadata"]["uid"] for pod in await cluster.all(PODS)}
    (replica_set,) = await cluster.all(SETS)
    await cluster.client.delete(DEPLOYMENTS, "web", "default", propagation="Orphan")

    async def is_orphan() -> bool:
        found = await cluster.client.get(SETS, replica_set["metadata"]["name"], "default")
        return "ownerReferences" not in found["metadata"]

    await cluster.until(is_orphan)
    again = await cluster.client.create(workload("Deployment", replicas=3))
    await cluster.until(lambda: is_complete(cluster))
    (adopted,) = await cluster.all(SETS)
    assert adopted["metadata"]["uid"] == replica_set["metadata"]["uid"]
    assert adopted["metadata"]["ownerReferences"][0]["uid"] == again["metadata"]["uid"]
    assert {pod["metadata"]["uid"] for pod in await cluster.all(PODS)} == uids
    assert progress(await deployment(cluster)) == ("True", "NewReplicaSetAvailable")


@virtual(**ALONE)
async def test_c2_bare_pods_are_adopted_by_a_matching_set(cluster: VirtualCluster) -> None:
    for number in range(2):
        meta = {"name": f"bare-{number}", "namespace": "default", "labels": {"app": "web"}}
        spec = {"containers": [{"name": "c", "image": "bare"}]}
        await cluster.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    await cluster.client.create(workload("ReplicaSet", replicas=3))
    await cluster.instant()
    assert sorted(image_of(pod) for pod in await cluster.all(PODS)) == ["bare", "bare", "one"]
    owners = {pod["metadata"]["ownerReferences"][0]["name"] for pod in await cluster.all(PODS)}
    assert owners == {"web"}


# -- C3: StatefulSets -----------------------------------------------------------------------------------------------


@virtual(nodes=3)
async def test_c3_a_pod_keeps_its_name_and_its_claim(cluster: VirtualCluster) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    made = workload("StatefulSet", replicas=3, serviceName="web", volumeClaimTemplates=[claim])
    await cluster.client.create(made)

    async def names() -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in await cluster.all(PODS) if is_ready(pod))

    await until_names(cluster, names, ["web-0", "web-1", "web-2"])
    order = [message for _, _, message in await cluster.events("web") if message.startswith("Create Pod")]
    assert order == [f"Create Pod web-{ordinal} in StatefulSet web successful" for ordinal in range(3)]
    claims = {found["metadata"]["name"]: found["metadata"]["uid"] for found in await cluster.all(CLAIMS)}
    assert sorted(claims) == ["data-web-0", "data-web-1", "data-web-2"]
    first = (await cluster.client.get(PODS, "web-1", "default"))["metadata"]["uid"]
    await cluster.client.delete(PODS, "web-1", "default", grace_period=0)
    await until_names(cluster, names, ["web-0", "web-1", "web-2"])
    again = await cluster.client.get(PODS, "web-1", "default")
    assert again["metadata"]["uid"] != first
    assert {"claimName": "data-web-1"} in [each.get("persistentVolumeClaim") for each in again["spec"]["volumes"]]
    for size in (1, 3):
        await cluster.client.patch(STATEFUL_SETS, "web", {"spec": {"replicas": size}}, "default")
        await until_names(cluster, names, [f"web-{ordinal}" for ordinal in range(size)])
    assert {found["metadata"]["name"]: found["metadata"]["uid"] for found in await cluster.all(CLAIMS)} == claims


async def until_names(cluster: VirtualCluster, names: Any, expected: list[str]) -> None:
    async def check() -> bool:
        found = await cluster.client.get(STATEFUL_SETS, "web", "default")
        return bool(found["status"].get("replicas") == len(expected) and await names() == expected)

    await cluster.until(check, within=300)


@virtual(nodes=3)
async def test_c3_a_partition_stages_an_update(cluster: VirtualCluster) -> None:
    await cluster.client.create(workload("StatefulSet", replicas=4, serviceName="web"))

    async def are(*expected: str) -> bool:
        found = {pod["metadata"]["name"]: image_of(pod) for pod in await cluster.all(PODS) if is_ready(pod)}
        return found == {f"web-{ordinal}": image for ordinal, image in enumerate(expected)}

    await cluster.until(lambda: are("one", "one", "one", "one"))
    for partition, expected in ((3, ("one", "one", "one", "two")), (0, ("two",) * 4)):
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}
        spec = {"template": template("two"), "updateStrategy": strategy}
        await cluster.client.patch(STATEFUL_SETS, "web", {"spec": spec}, "default")
        await cluster.until(partial(are, *expected), within=600)
        await cluster.sleep(60)
        assert await are(*expected)
    status = (await cluster.client.get(STATEFUL_SETS, "web", "default"))["status"]
    assert status["currentRevision"] == status["updateRevision"]


# -- C4: DaemonSets -------------------------------------------------------------------------------------------------


@virtual(nodes=3)
async def test_c4_every_eligible_node_runs_a_daemon_pod_including_new_nodes(cluster: VirtualCluster) -> None:
    await cluster.client.patch(NODES, "node-3", {"metadata": {"labels": {"gpu": "yes"}}})
    await cluster.client.create(workload("DaemonSet", "everywhere"))
    await cluster.client.create(
        workload("DaemonSet", "gpu", template=template("one", "gpu", nodeSelector={"gpu": "yes"}))
    )

    async def run_on(name: str, *nodes: str) -> bool:
        pods = [pod for pod in await cluster.all(PODS, selector=f"app={name}") if is_ready(pod)]
        return sorted(pod["spec"]["nodeName"] for pod in pods) == sorted(nodes)

    await cluster.until(lambda: run_on("everywhere", "node-1", "node-2", "node-3"))
    await cluster.until(lambda: run_on("gpu", "node-3"))
    await cluster.client.create(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late", "labels": {"gpu": "yes"}}}
    )
    await cluster.client.patch(NODES, "late", {"spec": {"taints": None}})

    async def wanted() -> list[int]:
        found = [await cluster.client.get(DAEMON_SETS, name, "default") for name in ("everywhere", "gpu")]
        return [each["status"]["desiredNumberScheduled"] for each in found]

    async def grown() -> bool:
        return await wanted() == [4, 2] and len(await cluster.all(PODS)) == 6

    await cluster.until(grown)
    await cluster.client.patch(NODES, "node-3", {"metadata": {"labels": {"gpu": None}}})
    await cluster.until(lambda: run_on("gpu"))
    assert await wanted() == [4, 1]
