"""CSI volumes are attached to the nodes that need them."""

from __future__ import annotations

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
CLAIMS, VOLUMES, NODES = builtin("persistentvolumeclaims"), builtin("persistentvolumes"), builtin("nodes")
ATTACHMENTS, PODS = builtin("volumeattachments", "storage.k8s.io"), builtin("pods")
ONLY: Obj = {
    "nodes": 0,
    "scheduler": False,
    "controllers": [
        "persistentvolume-binder-controller",
        "persistentvolume-attach-detach-controller",
        "serviceaccount-controller",
    ],
}
UNIQUE = "kubernetes.io/csi/disks.example^handle"


async def create_volume_and_nodes(
    cluster: VirtualCluster, modes: tuple[str, ...] = ("ReadWriteOnce",), managed: bool = True
) -> None:
    """Create two nodes, a volume and a claim for it."""
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
    spec = {
        "accessModes": list(modes),
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "",
        "volumeName": "disk",
    }
    meta = {"name": "data", "namespace": "default"}
    await cluster.client.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    await cluster.sleep(1)


def a_pod(name: str, node: str) -> Obj:
    spec = {
        "nodeName": node,
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def attachments_by_node(cluster: VirtualCluster) -> list[str]:
    return [found["spec"]["nodeName"] for found in await cluster.all(ATTACHMENTS, "")]


async def report_attached(cluster: VirtualCluster, status: Obj) -> None:
    """Report an attachment as attached, as the driver's attacher does."""
    (found,) = await cluster.all(ATTACHMENTS, "")
    await cluster.client.patch(ATTACHMENTS, found["metadata"]["name"], {"status": status}, subresource="status")
    await cluster.sleep(1)


async def attached(cluster: VirtualCluster, node: str) -> list[str]:
    found = await cluster.client.get(NODES, node)
    return [each["name"] for each in found["status"].get("volumesAttached") or ()]


@virtual(**ONLY)
async def test_a_volume_is_attached_and_detached_with_its_pod(cluster: VirtualCluster) -> None:
    await create_volume_and_nodes(cluster)
    await cluster.client.create(a_pod("one", "n1"))
    await cluster.sleep(1)
    (found,) = await cluster.all(ATTACHMENTS, "")
    assert found["spec"] == {
        "attacher": "disks.example",
        "nodeName": "n1",
        "source": {"persistentVolumeName": "disk"},
    }
    assert found["metadata"]["name"].startswith("csi-") and len(found["metadata"]["name"]) == 68
    assert not await attached(cluster, "n1")
    await report_attached(cluster, {"attached": True})
    assert await attached(cluster, "n1") == [UNIQUE]
    text = 'AttachVolume.Attach succeeded for volume "disk" '
    assert ("Normal", "SuccessfulAttachVolume", text) in await cluster.events("one")
    await cluster.client.patch(NODES, "n1", {"status": {"volumesInUse": [UNIQUE]}}, subresource="status")
    await cluster.client.delete(PODS, "one", "default", grace_period=0)
    await cluster.sleep(600)
    assert await attachments_by_node(cluster) == ["n1"], "still mounted, and the node is well"
    await cluster.client.patch(NODES, "n1", {"status": {"volumesInUse": None}}, subresource="status")
    await cluster.sleep(1)
    assert not await attachments_by_node(cluster) and not await attached(cluster, "n1")


@virtual(**ONLY)
async def test_a_single_node_volume_is_attached_after_it_was_detached_elsewhere(cluster: VirtualCluster) -> None:
    await create_volume_and_nodes(cluster)
    await cluster.client.create(a_pod("one", "n1"))
    await cluster.sleep(1)
    await report_attached(cluster, {"attached": True})
    await cluster.client.create(a_pod("two", "n2"))
    await cluster.sleep(1)
    assert await attachments_by_node(cluster) == ["n1"]
    text = 'Waiting for detach for volume "disk" Volume is already used by pod(s) one'
    assert ("Warning", "FailedAttachVolume", text) in await cluster.events("two")
    await cluster.client.delete(PODS, "one", "default", grace_period=0)
    await cluster.sleep(1)
    assert await attachments_by_node(cluster) == ["n2"]


@virtual(**ONLY)
async def test_shared_volumes_are_attached_to_many_nodes(cluster: VirtualCluster) -> None:
    await create_volume_and_nodes(cluster, ("ReadWriteMany",))
    await cluster.client.create(a_pod("one", "n1"))
    await cluster.client.create(a_pod("two", "n2"))
    await cluster.sleep(1)
    assert sorted(await attachments_by_node(cluster)) == ["n1", "n2"]


@virtual(**ONLY)
async def test_volumes_are_force_detached_from_an_unhealthy_node(cluster: VirtualCluster) -> None:
    await create_volume_and_nodes(cluster)
    await cluster.client.create(a_pod("one", "n1"))
    await cluster.sleep(1)
    await report_attached(cluster, {"attached": True})
    gone = {"volumesInUse": [UNIQUE], "conditions": [{"type": "Ready", "status": "Unknown"}]}
    await cluster.client.patch(NODES, "n1", {"status": gone}, subresource="status")
    await cluster.client.delete(PODS, "one", "default", grace_period=0)
    await cluster.sleep(350)
    assert await attachments_by_node(cluster) == ["n1"]
    await cluster.sleep(20)
    assert not await attachments_by_node(cluster)


@virtual(**ONLY)
async def test_a_failed_attachment_is_an_event_of_the_pod(cluster: VirtualCluster) -> None:
    await create_volume_and_nodes(cluster)
    await cluster.client.create(a_pod("one", "n1"))
    await cluster.sleep(1)
    await report_attached(cluster, {"attached": False, "attachError": {"message": "no such disk"}})
    text = 'AttachVolume.Attach failed for volume "disk" : no such disk'
    assert ("Warning", "FailedAttachVolume", text) in await cluster.events("one")


@virtual(**ONLY)
async def test_no_attachment_for_drivers_and_nodes_that_need_none(cluster: VirtualCluster) -> None:
    await cluster.client.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": "disks.example"},
            "spec": {"attachRequired": False},
        }
    )
    await create_volume_and_nodes(cluster)
    await cluster.client.create(a_pod("one", "n1"))
    await cluster.sleep(10)
    assert not await attachments_by_node(cluster)


@virtual(**ONLY)
async def test_volumes_of_nodes_that_attach_themselves_are_not_attached(cluster: VirtualCluster) -> None:
    await create_volume_and_nodes(cluster, managed=False)
    await cluster.client.create(a_pod("one", "n1"))
    await cluster.sleep(10)
    assert not await attachments_by_node(cluster)
