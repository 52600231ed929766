"""CSINodes and CSI drivers of simulated nodes, and the attachment of volumes."""

from __future__ import annotations

import pytest

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.node.options import FleetFileError, VolumeDriver, parse_fleet_options
from setpoint.node.registration import csi_node, node_object, updated_csi_node
from setpoint.testing import VirtualCluster, virtual

NODES, CSI_NODES = builtin("nodes"), builtin("csinodes", "storage.k8s.io")
ATTACHMENTS = builtin("volumeattachments", "storage.k8s.io")
MANAGED = "volumes.kubernetes.io/controller-managed-attach-detach"
HAND_MADE = {"name": "disks.example", "nodeID": "machine-7", "topologyKeys": ["zone"]}


@virtual(nodes=2)
async def test_every_node_has_a_csi_node(cluster: VirtualCluster) -> None:
    for node in await cluster.all(NODES, ""):
        assert node["metadata"]["annotations"][MANAGED] == "true"
        found = await cluster.client.get(CSI_NODES, node["metadata"]["name"])
        owner = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
        assert found["metadata"]["ownerReferences"] == [owner]
        assert not found["spec"]["drivers"]
        assert found["metadata"]["managedFields"][0]["manager"] == "kubelet"


@virtual(nodes=2)
async def test_a_csi_node_is_deleted_with_its_node(cluster: VirtualCluster) -> None:
    await cluster.client.delete(NODES, "node-2")
    await cluster.until(lambda: is_absent(cluster, "node-2"))
    assert await cluster.find(CSI_NODES, "node-1", "") is not None


async def is_absent(cluster: VirtualCluster, name: str) -> bool:
    return await cluster.find(CSI_NODES, name, "") is None


@virtual(nodes=1)
async def test_drivers_of_other_clients_are_kept(cluster: VirtualCluster) -> None:
    await cluster.client.patch(CSI_NODES, "node-1", {"spec": {"drivers": [HAND_MADE]}})
    await cluster.stop("fleet")
    await cluster.client.patch(NODES, "node-1", {"metadata": {"annotations": {MANAGED: None}}})
    await cluster.start("fleet")
    await cluster.sleep(10)
    assert (await cluster.client.get(CSI_NODES, "node-1"))["spec"]["drivers"] == [HAND_MADE]
    assert (await cluster.client.get(NODES, "node-1"))["metadata"]["annotations"][MANAGED] == "true"


@virtual(nodes=1)
async def test_volumes_of_pods_on_simulated_nodes_are_attached(cluster: VirtualCluster) -> None:
    source = {"driver": "disks.example", "volumeHandle": "handle"}
    spec: Obj = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": source}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": spec}
    meta = {"name": "data", "namespace": "default"}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta,
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
            "volumeName": "disk",
        },
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "containers": [{"name": "c", "image": "nginx"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }
    for obj in (volume, claim, pod):
        await cluster.client.create(obj)
    await cluster.sleep(5)
    (attachment,) = await cluster.all(ATTACHMENTS, "")
    assert attachment["spec"] == {
        "attacher": "disks.example",
        "nodeName": "node-1",
        "source": {"persistentVolumeName": "disk"},
    }


def test_drivers_may_be_declared_for_all_nodes() -> None:
    text = """
    nodes:
      csiDrivers:
      - {name: disks.example, topologyKeys: [topology.disks.example/node], allocatable: {count: 7}}
      - {name: files.example}
    """
    template = parse_fleet_options(text).template
    node = node_object("n", 0, template, {})
    assert node["metadata"]["labels"]["topology.disks.example/node"] == "n"
    ids = '{"disks.example":"n","files.example":"n"}'
    assert node["metadata"]["annotations"] == {MANAGED: "true", "csi.volume.kubernetes.io/nodeid": ids}
    node["metadata"]["uid"] = "u"
    assert csi_node(node, template.drivers)["spec"]["drivers"] == [
        {
            "name": "disks.example",
            "nodeID": "n",
            "topologyKeys": ["topology.disks.example/node"],
            "allocatable": {"count": 7},
        },
        {"name": "files.example", "nodeID": "n", "topologyKeys": None},
    ]


@pytest.mark.parametrize("driver", ["{}", "{name: 7}", "{name: x, allocatable: {count: -1}}", "{name: x, more: 1}"])
def test_invalid_drivers_are_rejected(driver: str) -> None:
    with pytest.raises(FleetFileError, match=r"nodes\.csiDrivers\[0\]"):
        parse_fleet_options(f"nodes: {{csiDrivers: [{driver}]}}")


def test_a_restarted_node_adds_missing_drivers() -> None:
    node = {"metadata": {"name": "n", "uid": "new"}}
    before = csi_node({"metadata": {"name": "n", "uid": "old"}}, ())
    before["spec"]["drivers"] = [HAND_MADE]
    found = updated_csi_node(before, csi_node(node, [VolumeDriver("disks.example"), VolumeDriver("files.example")]))
    assert [driver["nodeID"] for driver in found["spec"]["drivers"]] == ["machine-7", "n"]
    assert found["metadata"]["ownerReferences"][0]["uid"] == "new"
