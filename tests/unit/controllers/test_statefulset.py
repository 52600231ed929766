"""StatefulSets through the API server, in virtual time."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from setpoint.client.resources import builtin
from setpoint.meta.errors import NotFound
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging", "two-views")
PODS, SETS, CLAIMS = builtin("pods"), builtin("statefulsets", "apps"), builtin("persistentvolumeclaims")
REVISIONS = builtin("controllerrevisions", "apps")
ALONE: dict[str, Any] = {"nodes": 0, "scheduler": False}
"""Nobody but the controllers: what becomes of a Pod is up to the test."""


def web(replicas: int = 3, image: str = "one", *, claims: bool = False, **spec: Any) -> Obj:
    template = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "serviceName": "nginx",
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": pod_template(image),
            **({"volumeClaimTemplates": [template]} if claims else {}),
            **spec,
        },
    }


def pod_template(image: str) -> Obj:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}}


async def make_ready(cluster: VirtualCluster, *names: str, ready: bool = True, phase: str = "Running") -> None:
    stamp = cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": stamp}
    for name in names:
        status = {"status": {"phase": phase, "conditions": [condition]}}
        await cluster.client.patch(PODS, name, status, "default", subresource="status")
        await cluster.instant()


async def names(cluster: VirtualCluster) -> list[str]:
    await cluster.instant()
    return sorted(pod["metadata"]["name"] for pod in await cluster.all(PODS))


async def status(cluster: VirtualCluster) -> Obj:
    await cluster.instant()
    found: Obj = (await cluster.client.get(SETS, "web", "default"))["status"]
    return found


async def image_of(cluster: VirtualCluster, name: str) -> str:
    pod = await cluster.find(PODS, name)
    return pod["spec"]["containers"][0]["image"] if pod else ""


@virtual(**ALONE)
async def test_pods_are_created_in_order(cluster: VirtualCluster) -> None:
    await cluster.client.create(web(3))
    assert await names(cluster) == ["web-0"]
    await make_ready(cluster, "web-0", ready=False)
    assert await names(cluster) == ["web-0"]
    await make_ready(cluster, "web-0")
    assert await names(cluster) == ["web-0", "web-1"]
    await make_ready(cluster, "web-1")
    await make_ready(cluster, "web-2")
    found = await status(cluster)
    assert found["replicas"] == found["readyReplicas"] == found["currentReplicas"] == found["updatedReplicas"] == 3
    assert found["availableReplicas"] == 3
    assert found["currentRevision"] == found["updateRevision"]
    assert (found["collisionCount"], found["observedGeneration"]) == (0, 1)
    (revision,) = await cluster.all(REVISIONS)
    assert revision["metadata"]["name"] == found["currentRevision"]
    assert revision["revision"] == 1
    assert await cluster.events("web") == [
        ("Normal", "SuccessfulCreate", f"Create Pod web-{ordinal} in StatefulSet web successful")
        for ordinal in range(3)
    ]


@virtual(**ALONE)
async def test_a_pod_has_an_identity(cluster: VirtualCluster) -> None:
    await cluster.client.create(web(1, ordinals={"start": 5}, claims=True))
    assert await names(cluster) == ["web-5"]
    pod = await cluster.client.get(PODS, "web-5", "default")
    revision = (await status(cluster))["updateRevision"]
    assert pod["metadata"]["labels"] == {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": "web-5",
        "apps.kubernetes.io/pod-index": "5",
        "controller-revision-hash": revision,
    }
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("web-5", "nginx")
    assert pod["metadata"]["generateName"] == "web-"
    assert pod["spec"]["volumes"][0] == {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-5"}}
    claim = await cluster.client.get(CLAIMS, "data-web-5", "default")
    assert claim["metadata"]["labels"] == {"app": "web"}
    assert "ownerReferences" not in claim["metadata"]
    assert ("Normal", "SuccessfulCreate", "Create Claim data-web-5 Pod web-5 in StatefulSet web success") in (
        await cluster.events("web")
    )
    await cluster.client.patch(
        PODS, "web-5", {"metadata": {"labels": {"statefulset.kubernetes.io/pod-name": None}}}, "default"
    )
    await make_ready(cluster, "web-5")
    pod = await cluster.client.get(PODS, "web-5", "default")
    assert pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "web-5"


@virtual(**ALONE)
async def test_parallel_management_creates_all_pods_at_once(cluster: VirtualCluster) -> None:
    await cluster.client.create(web(4, podManagementPolicy="Parallel"))
    assert await names(cluster) == ["web-0", "web-1", "web-2", "web-3"]
    await cluster.client.patch(SETS, "web", {"spec": {"replicas": 1}}, "default")
    assert await names(cluster) == ["web-0"]


async def up(cluster: VirtualCluster, count: int, **options: Any) -> None:
    await cluster.client.create(web(count, **options))
    for ordinal in range(count):
        await cluster.instant()
        await make_ready(cluster, f"web-{ordinal}")


@virtual(**ALONE)
async def test_scaling_down_starts_with_the_highest_ordinal_and_waits_for_the_others(cluster: VirtualCluster) -> None:
    await up(cluster, 3)
    await make_ready(cluster, "web-0", ready=False)
    await cluster.client.patch(SETS, "web", {"spec": {"replicas": 1}}, "default")
    assert len(await names(cluster)) == 3, "web-0 is not well: nobody leaves"
    await make_ready(cluster, "web-0")
    assert await names(cluster) == ["web-0"]
    assert [message for _, reason, message in await cluster.events("web") if reason == "SuccessfulDelete"] == [
        "Delete Pod web-2 in StatefulSet web successful",
        "Delete Pod web-1 in StatefulSet web successful",
    ]


@virtual(**ALONE)
async def test_an_ended_pod_is_recreated(cluster: VirtualCluster) -> None:
    await up(cluster, 2)
    before = (await cluster.client.get(PODS, "web-0", "default"))["metadata"]["uid"]
    await make_ready(cluster, "web-0", ready=False, phase="Failed")
    assert await names(cluster) == ["web-0", "web-1"]
    assert (await cluster.client.get(PODS, "web-0", "default"))["metadata"]["uid"] != before


@virtual(**ALONE)
async def test_an_update_proceeds_from_the_highest_ordinal_to_the_partition(cluster: VirtualCluster) -> None:
    await up(cluster, 3)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    change = {"spec": {"template": pod_template("two"), "updateStrategy": strategy}}
    await cluster.client.patch(SETS, "web", change, "default")
    await cluster.instant()
    images = [await image_of(cluster, f"web-{ordinal}") for ordinal in range(3)]
    assert images == ["one", "one", "two"]
    found = await status(cluster)
    assert (found["currentReplicas"], found["updatedReplicas"]) == (2, 1)
    assert found["currentRevision"] != found["updateRevision"]
    await make_ready(cluster, "web-2")
    await make_ready(cluster, "web-1")
    images = [await image_of(cluster, f"web-{ordinal}") for ordinal in range(3)]
    assert images == ["one", "two", "two"]
    # What is below the partition comes back as it was.
    await cluster.client.delete(PODS, "web-0", "default", grace_period=0)
    await cluster.instant()
    assert await image_of(cluster, "web-0") == "one"
    await make_ready(cluster, "web-0")
    change = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}
    await cluster.client.patch(SETS, "web", change, "default")
    await cluster.instant()
    await make_ready(cluster, "web-0")
    found = await status(cluster)
    assert found["currentRevision"] == found["updateRevision"]
    assert (found["currentReplicas"], found["updatedReplicas"]) == (3, 3)
    assert [revision["revision"] for revision in await cluster.all(REVISIONS)] in ([1, 2], [2, 1])


@virtual(**ALONE)
async def test_a_rollback_makes_the_old_revision_the_newest(cluster: VirtualCluster) -> None:
    await up(cluster, 1, revisionHistoryLimit=1)
    first = (await status(cluster))["currentRevision"]
    for image in ("two", "one"):
        await cluster.client.patch(SETS, "web", {"spec": {"template": pod_template(image)}}, "default")
        await cluster.instant()
        await make_ready(cluster, "web-0")
    found = await status(cluster)
    assert found["currentRevision"] == found["updateRevision"] == first
    assert (await cluster.client.get(REVISIONS, first, "default"))["revision"] == 3
    for image in ("three", "four"):
        await cluster.client.patch(SETS, "web", {"spec": {"template": pod_template(image)}}, "default")
        await cluster.instant()
        await make_ready(cluster, "web-0")
    await cluster.instant()
    assert sorted(revision["revision"] for revision in await cluster.all(REVISIONS)) == [4, 5]


@virtual(**ALONE)
async def test_max_unavailable_updates_several_pods_at_once(cluster: VirtualCluster) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    await up(cluster, 4, updateStrategy=strategy, podManagementPolicy="Parallel")
    await cluster.client.patch(SETS, "web", {"spec": {"template": pod_template("two")}}, "default")
    await cluster.instant()
    assert [await image_of(cluster, f"web-{ordinal}") for ordinal in range(4)] == ["one", "one", "two", "two"]
    await make_ready(cluster, "web-2")
    assert [await image_of(cluster, f"web-{ordinal}") for ordinal in range(4)] == ["one", "two", "two", "two"]


@virtual(**ALONE)
async def test_on_delete_waits_for_the_user(cluster: VirtualCluster) -> None:
    await up(cluster, 2, updateStrategy={"type": "OnDelete"})
    await cluster.client.patch(SETS, "web", {"spec": {"template": pod_template("two")}}, "default")
    await cluster.instant()
    assert [await image_of(cluster, f"web-{ordinal}") for ordinal in range(2)] == ["one", "one"]
    await cluster.client.delete(PODS, "web-0", "default", grace_period=0)
    await cluster.instant()
    assert [await image_of(cluster, f"web-{ordinal}") for ordinal in range(2)] == ["two", "one"]


@virtual(**ALONE)
async def test_a_pod_is_available_after_min_ready_seconds(cluster: VirtualCluster) -> None:
    await cluster.client.create(web(2, minReadySeconds=30))
    await cluster.instant()
    await make_ready(cluster, "web-0")
    found = await status(cluster)
    assert (found["readyReplicas"], found["availableReplicas"]) == (1, 0)
    assert await names(cluster) == ["web-0"]
    await cluster.sleep(29)
    assert await names(cluster) == ["web-0"]
    await cluster.sleep(2)
    assert await names(cluster) == ["web-0", "web-1"]
    assert (await status(cluster))["availableReplicas"] == 1


@virtual(**ALONE)
async def test_claims_are_deleted_when_the_set_is_scaled_down(cluster: VirtualCluster) -> None:
    policy = {"whenDeleted": "Retain", "whenScaled": "Delete"}
    await up(cluster, 2, claims=True, persistentVolumeClaimRetentionPolicy=policy)
    assert len(await cluster.all(CLAIMS)) == 2
    await cluster.client.patch(SETS, "web", {"spec": {"replicas": 1}}, "default")
    await cluster.until(lambda: claims_are(cluster, "data-web-0"))
    # An ordinal that comes back gets a claim of its own.
    await cluster.client.patch(SETS, "web", {"spec": {"replicas": 2}}, "default")
    await cluster.until(lambda: claims_are(cluster, "data-web-0", "data-web-1"))
    await cluster.client.delete(SETS, "web", "default", propagation="Background")
    await cluster.until(lambda: no_pods(cluster))
    assert await claims_are(cluster, "data-web-0", "data-web-1")


@virtual(**ALONE)
async def test_claims_are_deleted_with_the_set(cluster: VirtualCluster) -> None:
    await up(cluster, 2, claims=True)
    policy = {"whenDeleted": "Delete", "whenScaled": "Retain"}
    change = {"spec": {"persistentVolumeClaimRetentionPolicy": policy}}
    made = await cluster.client.patch(SETS, "web", change, "default")
    await cluster.instant()
    for claim in await cluster.all(CLAIMS):
        assert [each["uid"] for each in claim["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]
    await cluster.client.patch(SETS, "web", {"spec": {"replicas": 1}}, "default")
    await cluster.instant()
    assert await claims_are(cluster, "data-web-0", "data-web-1")
    await cluster.client.delete(SETS, "web", "default", propagation="Background")
    await cluster.until(lambda: claims_are(cluster))


async def claims_are(cluster: VirtualCluster, *expected: str) -> bool:
    """Remove the finalizers of terminating claims, because no controller does it here, and return whether exactly these
    claims exist."""
    for claim in await cluster.all(CLAIMS):
        if "deletionTimestamp" in claim["metadata"]:
            with suppress(NotFound):
                await cluster.client.patch(
                    CLAIMS, claim["metadata"]["name"], {"metadata": {"finalizers": None}}, "default"
                )
    return {claim["metadata"]["name"] for claim in await cluster.all(CLAIMS)} == set(expected)


async def no_pods(cluster: VirtualCluster) -> bool:
    return not await cluster.all(PODS)


@virtual(**ALONE)
async def test_orphans_with_the_right_name_are_adopted(cluster: VirtualCluster) -> None:
    await up(cluster, 2)
    await cluster.client.delete(SETS, "web", "default", propagation="Orphan")
    await cluster.until(lambda: _owners_are(cluster, None))
    uids = {pod["metadata"]["uid"] for pod in await cluster.all(PODS)}
    made = await cluster.client.create(web(2))
    await cluster.until(lambda: _owners_are(cluster, made["metadata"]["uid"]))
    assert {pod["metadata"]["uid"] for pod in await cluster.all(PODS)} == uids
    assert len(await cluster.all(REVISIONS)) == 1


async def _owners_are(cluster: VirtualCluster, uid: str | None) -> bool:
    owners = [
        [each["uid"] for each in found["metadata"].get("ownerReferences", ())]
        for resource in (PODS, REVISIONS)
        for found in await cluster.all(resource)
    ]
    return all(each == ([uid] if uid else []) for each in owners)


@virtual(**ALONE)
async def test_a_restart_of_the_controllers_changes_nothing(cluster: VirtualCluster) -> None:
    await up(cluster, 2)
    version = (await cluster.client.get(SETS, "web", "default"))["metadata"]["resourceVersion"]
    await cluster.kill("controllers")
    await cluster.client.delete(PODS, "web-1", "default", grace_period=0)
    await cluster.start("controllers")
    assert await names(cluster) == ["web-0", "web-1"]
    assert (await cluster.client.get(SETS, "web", "default"))["metadata"]["resourceVersion"] != version


@virtual(nodes=3)
async def test_a_set_starts_and_stops_on_simulated_nodes(cluster: VirtualCluster) -> None:
    await cluster.client.create(web(3))

    async def all_ready() -> bool:
        return (await status(cluster)).get("readyReplicas") == 3

    await cluster.until(all_ready)
    await cluster.client.patch(SETS, "web", {"spec": {"template": pod_template("two")}}, "default")

    async def updated() -> bool:
        found = await status(cluster)
        return found["currentRevision"] == found["updateRevision"] and found.get("updatedReplicas") == 3

    await cluster.until(updated, within=300)
    assert {await image_of(cluster, name) for name in await names(cluster)} == {"two"}
