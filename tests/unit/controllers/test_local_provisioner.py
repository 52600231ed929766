"""Volumes are provisioned for claims, protected while in use, and deleted with their claims."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.cluster.components import ensure_default_storage
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
CLAIMS, VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
CLASSES, PODS, NODES = builtin("storageclasses", "storage.k8s.io"), builtin("pods"), builtin("nodes")
STORAGE: Obj = {
    "nodes": 0,
    "scheduler": False,
    "controllers": [
        "persistentvolume-binder-controller",
        "persistentvolume-protection-controller",
        "persistentvolumeclaim-protection-controller",
        "setpoint-local-provisioner-controller",
        "ephemeral-volume-controller",
        "garbage-collector-controller",
        "serviceaccount-controller",
        "namespace-controller",
        "persistentvolume-expander-controller",
    ],
}


def a_claim(name: str = "data", size: str = "1Gi", **spec: Any) -> Obj:
    wanted: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": wanted}


def a_pod(name: str = "user", claim: str = "data", **more: Any) -> Obj:
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
        **more,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def immediate(name: str = "now", **more: Any) -> Obj:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "setpoint.dev/local",
        **more,
    }


async def a_node(cluster: VirtualCluster, name: str = "n1") -> None:
    labels = {"kubernetes.io/hostname": f"host-of-{name}"}
    await cluster.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})


async def bound(cluster: VirtualCluster, name: str = "data") -> Obj | None:
    """Return the volume that the claim is bound to."""
    claim = await cluster.client.get(CLAIMS, name, "default")
    if claim["status"]["phase"] != "Bound":
        return None
    return await cluster.client.get(VOLUMES, claim["spec"]["volumeName"])


async def select_node(cluster: VirtualCluster, node: str, claim: str = "data") -> None:
    """Select a node for a claim, as the scheduler does."""
    noted = {"volume.kubernetes.io/selected-node": node}
    await cluster.client.patch(CLAIMS, claim, {"metadata": {"annotations": noted}}, "default")


@virtual(**STORAGE)
async def test_a_volume_is_provisioned_on_the_selected_node(cluster: VirtualCluster) -> None:
    await a_node(cluster)
    await cluster.client.create(a_claim())
    await cluster.sleep(20)
    claim = await cluster.client.get(CLAIMS, "data", "default")
    assert claim["spec"]["storageClassName"] == "standard"
    assert claim["status"] == {"phase": "Pending"} and not await cluster.all(VOLUMES, "")
    await select_node(cluster, "n1")
    await cluster.until(lambda: bound(cluster), within=1)
    claim, volume = await cluster.client.get(CLAIMS, "data", "default"), await bound(cluster)
    assert volume is not None
    name = f"pvc-{claim['metadata']['uid']}"
    assert volume["metadata"]["name"] == name
    assert volume["metadata"]["annotations"] == {"pv.kubernetes.io/provisioned-by": "setpoint.dev/local"}
    assert volume["metadata"]["finalizers"] == [
        "external-provisioner.volume.kubernetes.io/finalizer",
        "kubernetes.io/pv-protection",
    ]
    spec = volume["spec"]
    assert (spec["capacity"], spec["persistentVolumeReclaimPolicy"]) == ({"storage": "1Gi"}, "Delete")
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["host-of-n1"]}
    assert spec["nodeAffinity"] == {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    reasons = {reason for _, reason, _ in await cluster.events("data")}
    assert reasons == {"WaitForFirstConsumer", "ExternalProvisioning", "Provisioning", "ProvisioningSucceeded"}
    assert ("Normal", "ProvisioningSucceeded", f"Successfully provisioned volume {name}") in await cluster.events()
    await cluster.client.delete(CLAIMS, "data", "default")
    await cluster.sleep(1)
    assert not await cluster.all(CLAIMS) and not await cluster.all(VOLUMES, "")


@virtual(**STORAGE)
async def test_a_class_may_retain_its_volumes(cluster: VirtualCluster) -> None:
    await cluster.client.create(immediate(reclaimPolicy="Retain"))
    await cluster.client.create(a_claim(storageClassName="now"))
    await cluster.until(lambda: bound(cluster), within=1)
    await cluster.client.delete(CLAIMS, "data", "default")
    await cluster.sleep(60)
    (volume,) = await cluster.all(VOLUMES, "")
    assert volume["status"]["phase"] == "Released" and "deletionTimestamp" not in volume["metadata"]
    await cluster.client.delete(VOLUMES, volume["metadata"]["name"])
    await cluster.sleep(1)
    assert not await cluster.all(VOLUMES, "")


@virtual(**STORAGE)
async def test_provisioning_is_rescheduled_if_the_selected_node_is_gone(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_claim())
    await select_node(cluster, "gone")
    await cluster.sleep(1)
    claim = await cluster.client.get(CLAIMS, "data", "default")
    assert "volume.kubernetes.io/selected-node" not in claim["metadata"]["annotations"]
    text = 'failed to get target node: node "gone" not found'
    assert ("Warning", "ProvisioningFailed", text) in await cluster.events("data")


@virtual(**STORAGE)
async def test_unsupported_volumes_are_not_provisioned(cluster: VirtualCluster) -> None:
    await cluster.client.create(immediate())
    await cluster.client.create(a_claim(storageClassName="now", volumeMode="Block"))
    await cluster.sleep(1)
    why = "setpoint.dev/local does not support block volume provisioning"
    text = f'failed to provision volume with StorageClass "now": {why}'
    assert ("Warning", "ProvisioningFailed", text) in await cluster.events("data")
    assert not await bound(cluster)


@virtual(**STORAGE)
async def test_a_claim_is_expanded(cluster: VirtualCluster) -> None:
    await cluster.client.create(immediate(allowVolumeExpansion=True))
    await cluster.client.create(a_claim(storageClassName="now"))
    await cluster.until(lambda: bound(cluster), within=5)
    larger = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
    await cluster.client.patch(CLAIMS, "data", larger, "default")
    await cluster.sleep(1)
    claim, volume = await cluster.client.get(CLAIMS, "data", "default"), await bound(cluster)
    assert volume is not None and volume["spec"]["capacity"] == {"storage": "3Gi"}
    status = claim["status"]
    assert (status["capacity"], status["allocatedResources"]) == ({"storage": "3Gi"}, {"storage": "3Gi"})
    assert [found["type"] for found in status["conditions"]] == ["Unused"]
    assert "allocatedResourceStatuses" not in status
    events = await cluster.events("data")
    name = volume["metadata"]["name"]
    assert ("Normal", "ExternalExpanding", "waiting for an external controller to expand this PVC") in events
    assert ("Normal", "Resizing", f"External resizer is resizing volume {name}") in events
    assert ("Normal", "VolumeResizeSuccessful", "Resize volume succeeded") in events


@virtual(**STORAGE)
async def test_a_claim_is_protected_while_a_pod_uses_it(cluster: VirtualCluster) -> None:
    await a_node(cluster)
    await cluster.client.create(immediate())
    await cluster.client.create(a_claim(storageClassName="now"))
    await cluster.client.create(a_pod(nodeName="n1"))
    await cluster.until(lambda: bound(cluster), within=5)
    volume = await bound(cluster)
    assert volume is not None
    await cluster.client.delete(CLAIMS, "data", "default")
    await cluster.client.delete(VOLUMES, volume["metadata"]["name"])
    await cluster.sleep(100)
    assert "deletionTimestamp" in (await cluster.client.get(CLAIMS, "data", "default"))["metadata"]
    still = await bound(cluster)
    assert still is not None and still["status"]["phase"] == "Bound" and "deletionTimestamp" in still["metadata"]
    await cluster.client.delete(PODS, "user", "default", grace_period=0)
    await cluster.sleep(1)
    assert not await cluster.all(CLAIMS) and not await cluster.all(VOLUMES, "")


@virtual(**STORAGE)
async def test_the_unused_condition_of_a_claim(cluster: VirtualCluster) -> None:
    await cluster.client.create(immediate())
    await cluster.client.create(a_claim(storageClassName="now"))

    async def unused() -> Obj:
        found = (await cluster.client.get(CLAIMS, "data", "default"))["status"].get("conditions") or [{}]
        return dict(found[0])

    await cluster.sleep(1)
    noted = await unused()
    assert (noted["type"], noted["status"], noted["reason"]) == ("Unused", "True", "NoPodsUsingPVC")
    assert noted["message"] == "No pods are currently referencing this PVC"
    await cluster.client.create(a_pod())
    await cluster.sleep(1)
    noted = await unused()
    assert (noted["status"], noted["reason"]) == ("False", "PodUsingPVC")
    assert noted["message"] == "A pod is currently referencing this PVC"
    await cluster.client.delete(PODS, "user", "default")
    await cluster.sleep(1)
    assert (await unused())["status"] == "True"


@virtual(**STORAGE)
async def test_an_unscheduled_pod_does_not_protect_its_claim(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_claim())
    await cluster.client.create(a_pod())
    await cluster.client.delete(CLAIMS, "data", "default")
    await cluster.sleep(1)
    assert not await cluster.all(CLAIMS)


@virtual(**STORAGE)
async def test_an_ephemeral_volume_is_created_and_deleted_with_its_pod(cluster: VirtualCluster) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": a_claim()["spec"]}
    pod = a_pod(volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}])
    made = await cluster.client.create(pod)
    await cluster.sleep(1)
    claim = await cluster.client.get(CLAIMS, "user-scratch", "default")
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", made["metadata"]["uid"], True)
    assert claim["metadata"]["labels"] == {"a": "b"}
    await cluster.client.delete(CLAIMS, "user-scratch", "default")
    await cluster.sleep(1)
    again = await cluster.client.get(CLAIMS, "user-scratch", "default")
    assert again["metadata"]["uid"] != claim["metadata"]["uid"]
    await cluster.client.delete(PODS, "user", "default")
    await cluster.sleep(5)
    assert not await cluster.all(CLAIMS)


@virtual(**STORAGE)
async def test_a_foreign_claim_with_the_name_of_an_ephemeral_volume_is_reported(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_claim("user-scratch"))
    template = {"spec": a_claim()["spec"]}
    await cluster.client.create(a_pod(volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]))
    await cluster.sleep(1)
    why = "PVC default/user-scratch was not created for pod default/user (pod is not owner)"
    assert ("Warning", "FailedBinding", f"ephemeral volume scratch: {why}") in await cluster.events("user")


@virtual(**STORAGE)
async def test_a_namespace_with_claims_is_deleted(cluster: VirtualCluster) -> None:
    await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    await cluster.client.create(immediate())
    claim = a_claim(storageClassName="now")
    claim["metadata"]["namespace"] = "team"
    await cluster.client.create(claim)
    await cluster.sleep(2)
    assert await cluster.all(VOLUMES, "")
    await cluster.client.delete(("v1", "Namespace"), "team")
    await cluster.sleep(60)
    assert await cluster.find(("v1", "Namespace"), "team", "") is None
    assert not await cluster.all(VOLUMES, "")


@virtual(nodes=0, scheduler=False, controllers=[])
async def test_users_may_change_the_default_class(cluster: VirtualCluster) -> None:
    standard = await cluster.client.get(CLASSES, "standard")
    assert standard["metadata"]["annotations"] == {"storageclass.kubernetes.io/is-default-class": "true"}
    assert (standard["provisioner"], standard["volumeBindingMode"]) == ("setpoint.dev/local", "WaitForFirstConsumer")
    await cluster.client.delete(CLASSES, "standard")
    await ensure_default_storage(cluster.client)
    assert await cluster.find(CLASSES, "standard", "") is None
