"""CSI volumes are attached to the nodes that need them."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.testing import VirtualCluster, virtual

Obj = dict[str, Any]
CLAIMS, VOLUMES, NODES = builtin("persistentvolumeclaims"), builtin("persistentvolumes"), builtin("nodes")
ATTACHMENTS, PODS = builtin("volumeattachments", "storage.k8s.io"), builtin("pods")
ONLY: Obj = {
    "nodes": 0,
    "scheduler": False,
    "controllers": [
        "persistentvolume-binder-controller", "persistentvolume-attach-detach-controller", "serviceaccount-controller",
    ],
}  # fmt: skip
UNIQUE = "kubernetes.io/csi/disks.example^handle"


async def stage(cluster: VirtualCluster, modes: tuple[str, ...] = ("ReadWriteOnce",), managed: bool = True) -> None:
    """Two nodes, a volume and a claim for it."""
    for name in ("n1", "n2"):
        noted = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"} if managed else {}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": noted}}
        await cluster.client.create(node)
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        await cluster.client.patch(NODES, name, {"status": ready}, subresource="status")
    source = {"driver": "disks.example", "volumeHandle": "handle"}
    spec: Obj = {"capacity": {"storage": "1Gi"}, "accessModes": list(modes), "csi": source}
    await cluster.client.create(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": spec}
    )
    wish = {
        "accessModes": list(modes), "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "",
        "volumeName": "disk",
    }  # fmt: skip
    meta = {"name": "data", "namespace": "default"}
    await cluster.client.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": wish})
    await cluster.sleep(1)


def a_pod(name: str, node: str) -> Obj:
    spec = {
        "nodeName": node,
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def places(cluster: VirtualCluster) -> list[str]:
    return [found["spec"]["nodeName"] for found in await cluster.all(ATTACHMENTS, "")]


async def report(cluster: VirtualCluster, status: Obj) -> None:
    """As the driver's attacher does."""
    (found,) = await cluster.all(ATTACHMENTS, "")
    await cluster.client.patch(ATTACHMENTS, found["metadata"]["name"], {"status": status}, subresource="status")
    await cluster.sleep(1)


async def attached(cluster: VirtualCluster, node: str) -> list[str]:
    found = await cluster.client.get(NODES, node)
    return [each["name"] for each in found["status"].get("volumesAttached") or ()]


@virtual(**ONLY)
async def test_a_volume_comes_and_goes_with_the_pod(cluster: VirtualCluster) -> None:
    await stage(cluster)
    await cluster.client.create(a_pod("one", "n1"))
    await cluster.sleep(1)
    (found,) = await cluster.all(ATTACHMENTS, "")
    assert found["spec"] == {
        "attacher": "disks.example", "nodeName": "n1", "source": {"persistentVolumeName": "disk"},
    }  # fmt: skip
    assert found["metadata"]["name"].startswith("csi-") and len(found["metadata"]["name"]) == 68
    assert not await attached(cluster, "n1")
    await report(cluster, {"attached": True})
    assert await attached(cluster, "n1") == [UNIQUE]
    text = 'AttachVolume.Attach succeeded for volume "disk" '
    assert ("Normal", "SuccessfulAttachVolume", text) in await cluster.events("one")
    await cluster.client.patch(NODES, "n1", {"status": {"volumesInUse": [UNIQUE]}}, subresource="status")
    await cluster.client.delete(PODS, "one", "default", grace_period=0)
    await cluster.sleep(600)
    assert await places(cluster) == ["n1"], "still mounted, and the node is well"
    await cluster.client.patch(NODES, "n1", {"status": {"volumesInUse": None}}, subresource="status")
    await cluster.sleep(1)
    assert not await places(cluster) and not await attached(cluster, "n1")


@virtual(**ONLY)
async def test_one_node_only_waits_for_the_other(cluster: VirtualCluster) -> None:
    await stage(cluster)
    await cluster.client.create(a_pod("one", "n1"))
    await cluster.sleep(1)
    await report(cluster, {"attached": True})
    await cluster.client.create(a_pod("two", "n2"))
    await cluster.sleep(1)
    assert await places(cluster) == ["n1"]
    text = 'Waiting for detach for volume "disk" Volume is already used by pod(s) one'
    assert ("Warning", "FailedAttachVolume", text) in await cluster.events("two")
    await cluster.client.delete(PODS, "one", "default", grace_period=0)
    await cluster.sleep(1)
    assert await places(cluster) == ["n2"]


@virtual(**ONLY)
async def test_shared_volumes_are_at_many_nodes(cluster: VirtualCluster) -> None:
    await stage(cluster, ("ReadWriteMany",))
    await cluster.client.create(a_pod("one", "n1"))
    await cluster.client.create(a_pod("two", "n2"))
    await cluster.sleep(1)
    assert sorted(await places(cluster)) == ["n1", "n2"]


@virtual(**ONLY)
async def test_a_node_that_is_not_well_loses_it_by_force(cluster: VirtualCluster) -> None:
    await stage(cluster)
    await cluster.client.create(a_pod("one", "n1"))
    await cluster.sleep(1)
    await report(cluster, {"attached": True})
    gone = {"volumesInUse": [UNIQUE], "conditions": [{"type": "Ready", "status": "Unknown"}]}
    await cluster.client.patch(NODES, "n1", {"status": gone}, subresource="status")
    await cluster.client.delete(PODS, "one", "default", grace_period=0)
    await cluster.sleep(350)
    assert await places(cluster) == ["n1"]
    await cluster.sleep(20)
    assert not await places(cluster)


@virtual(**ONLY)
async def test_a_failure_is_told_to_the_pod(cluster: VirtualCluster) -> None:
    await stage(cluster)
    await cluster.client.create(a_pod("one", "n1"))
    await cluster.sleep(1)
    await report(cluster, {"attached": False, "attachError": {"message": "no such disk"}})
    text = 'AttachVolume.Attach failed for volume "disk" : no such disk'
    assert ("Warning", "FailedAttachVolume", text) in await cluster.events("one")


@virtual(**ONLY)
async def test_drivers_and_nodes_that_need_none(cluster: VirtualCluster) -> None:
    await cluster.client.create(
        {
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "disks.example"},
            "spec": {"attachRequired": False},
        }
    )  # fmt: skip
    await stage(cluster)
    await cluster.client.create(a_pod("one", "n1"))
    await cluster.sleep(10)
    assert not await places(cluster)


@virtual(**ONLY)
async def test_a_node_may_attach_by_itself(cluster: VirtualCluster) -> None:
    await stage(cluster, managed=False)
    await cluster.client.create(a_pod("one", "n1"))
    await cluster.sleep(10)
    assert not await places(cluster)
