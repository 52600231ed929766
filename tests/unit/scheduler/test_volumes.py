"""Pods with volumes: on which nodes they can run, and what is bound first."""

from __future__ import annotations

import asyncio
from typing import Any

from scheduler_objects import PODS, ZONE, a_node, a_pod, add_node, alone, condition, node_of

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.reconcile import Manager
from setpoint.scheduler.config import load
from setpoint.scheduler.scheduler import add_scheduler
from setpoint.system import RandomIds
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
CLAIMS, VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
SELECTED = "volume.kubernetes.io/selected-node"

with_binder = virtual(nodes=0, controllers=["serviceaccount-controller", "persistentvolume-binder-controller"])


def a_class(name: str, mode: str = "WaitForFirstConsumer", **more: Any) -> Any:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "example.com/disks",
        "volumeBindingMode": mode,
        **more,
    }


def a_claim(name: str, storage_class: str = "late", size: str = "1Gi", mode: str = "ReadWriteOnce", **more: Any) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": [mode],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": size}},
            **more,
        },
    }


def a_volume(
    name: str, storage_class: str = "late", size: str = "1Gi", zone: str = "", labels: Obj | None = None
) -> Obj:
    expression = {"key": ZONE, "operator": "In", "values": [zone]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "hostPath": {"path": "/tmp"},
            **({"nodeAffinity": affinity} if zone else {}),
        },
    }


def pod_with_claims(name: str, *claims: str, **spec: Any) -> Any:
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": claim}} for i, claim in enumerate(claims)]
    return a_pod(name, volumes=volumes, **spec)


async def bind(cluster: VirtualCluster, claim: str, volume: str) -> None:
    """Bind a claim to a volume as the binder controller does."""
    change = {
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume},
    }
    await cluster.client.patch(CLAIMS, claim, change, "default")


async def two_zones(cluster: VirtualCluster) -> None:
    for name in "ab":
        await add_node(cluster, a_node(name, labels={ZONE: f"zone-{name}"}))
    await cluster.client.create(a_class("late"))
    await cluster.client.create(a_class("early", "Immediate"))


@alone
async def test_missing_and_unbound_claims(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    await cluster.client.create(a_claim("unbound", "early"))
    await cluster.client.create(pod_with_claims("one", "missing"))
    await cluster.client.create(pod_with_claims("two", "unbound"))
    await cluster.instant()
    assert (await condition(cluster, "one"))["message"] == (
        '0/2 nodes are available: persistentvolumeclaim "missing" not found. not found'
    )
    assert (await condition(cluster, "two"))["message"] == (
        "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
    )
    await cluster.client.create(a_volume("disk", "early", zone="zone-b"))
    await bind(cluster, "unbound", "disk")
    await cluster.sleep(1)
    assert await node_of(cluster, "two") == "b"


@alone
async def test_a_bound_volume_restricts_the_node(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    await cluster.client.create(a_volume("here", zone="zone-b"))
    await cluster.client.create(a_volume("nowhere", zone="zone-z"))
    for name in ("here", "nowhere", "gone"):
        await cluster.client.create(a_claim(name))
        await bind(cluster, name, name)
        await cluster.client.create(pod_with_claims(f"p-{name}", name))
    await cluster.instant()
    assert await node_of(cluster, "p-here") == "b"
    assert (await condition(cluster, "p-nowhere"))["message"].startswith(
        "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity. "
    )
    assert (await condition(cluster, "p-gone"))["message"].startswith(
        '0/2 nodes are available: persistentvolume "gone" not'
    )


@alone
async def test_zone_labels_of_volumes(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    await cluster.client.create(a_volume("here", labels={ZONE: "zone-a__zone-c"}))
    await cluster.client.create(a_claim("here"))
    await bind(cluster, "here", "here")
    await cluster.client.create(pod_with_claims("p", "here", nodeSelector={ZONE: "zone-b"}))
    await cluster.client.create(pod_with_claims("q", "here"))
    await cluster.instant()
    assert await node_of(cluster, "q") == "a"
    assert (await condition(cluster, "p"))["message"].startswith(
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) had no available volume zone."
    )


@alone
async def test_a_volume_is_provisioned_on_the_selected_node(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    topology = [{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-b"]}]}]
    await cluster.client.create(a_class("only-b", allowedTopologies=topology))
    await cluster.client.create(a_claim("data", "only-b"))
    await cluster.client.create(pod_with_claims("p", "data"))
    await cluster.instant()
    claim = await cluster.client.get(CLAIMS, "data", "default")
    assert claim["metadata"]["annotations"][SELECTED] == "b"
    pod = await cluster.client.get(PODS, "p", "default")
    assert "nodeName" not in pod["spec"]
    assert pod["status"]["nominatedNodeName"] == "b"
    await cluster.sleep(20)
    assert await node_of(cluster, "p") == ""
    await cluster.client.create(a_volume("made", "only-b"))
    await bind(cluster, "data", "made")
    await cluster.instant()
    assert await node_of(cluster, "p") == "b"


@alone
async def test_a_failed_provisioning_reschedules_the_pod(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    await cluster.client.create(a_claim("data"))
    await cluster.client.create(pod_with_claims("p", "data"))
    await cluster.instant()
    await cluster.client.patch(CLAIMS, "data", {"metadata": {"annotations": {SELECTED: None}}}, "default")
    await cluster.instant()
    found = await condition(cluster, "p")
    assert (found["reason"], found["message"]) == (
        "SchedulerError",
        'running PreBind plugin "VolumeBinding": binding volumes: selectedNode annotation reset for PVC "data"',
    )
    await cluster.sleep(5)
    assert SELECTED in (await cluster.client.get(CLAIMS, "data", "default"))["metadata"]["annotations"]


@alone
async def test_a_volume_provisioned_elsewhere_reschedules_the_pod(cluster: VirtualCluster) -> None:
    """A provisioner may ignore the scheduler's choice: a driver on one node provisions all volumes there."""
    await two_zones(cluster)
    await cluster.client.create(a_claim("data"))
    await cluster.client.create(pod_with_claims("p", "data"))
    await cluster.instant()
    chosen = (await cluster.client.get(CLAIMS, "data", "default"))["metadata"]["annotations"][SELECTED]
    other = "b" if chosen == "a" else "a"
    zone = (await cluster.client.get(builtin("nodes"), other))["metadata"]["labels"][ZONE]
    await cluster.client.create(a_volume("made", zone=zone))
    await bind(cluster, "data", "made")
    await cluster.instant()
    found = await condition(cluster, "p")
    assert (found["reason"], found["message"]) == (
        "SchedulerError",
        'running PreBind plugin "VolumeBinding": binding volumes: '
        f'pv "made" node affinity doesn\'t match node "{chosen}": no matching NodeSelectorTerms',
    )
    await cluster.sleep(5)
    assert await node_of(cluster, "p") == other


@virtual(nodes=0, controllers=["serviceaccount-controller"], scheduler=False)
async def test_bind_timeout(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    await cluster.client.create(a_claim("data"))
    pod = pod_with_claims("p", "data")
    await cluster.client.create(pod)
    patience = {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 30}}
    manager = Manager(cluster.client, cluster.clock, RandomIds(7))
    add_scheduler(manager, load({"profiles": [{"pluginConfig": [patience]}]}))
    working = asyncio.ensure_future(manager.run())
    try:
        await cluster.sleep(29)
        assert "conditions" not in (await cluster.client.get(PODS, "p", "default"))["status"]
        await cluster.sleep(3)
        found = await condition(cluster, "p")
    finally:
        working.cancel()
    assert (found["reason"], found["message"]) == (
        "SchedulerError",
        'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded',
    )


@alone
async def test_no_node_can_provision_the_volume(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    topology = [{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-c"]}]}]
    await cluster.client.create(a_class("only-c", allowedTopologies=topology))
    await cluster.client.create(a_class("by-hand", provisioner="kubernetes.io/no-provisioner"))
    for name in ("only-c", "by-hand"):
        await cluster.client.create(a_claim(name, name))
        await cluster.client.create(pod_with_claims(name, name))
    await cluster.instant()
    for name in ("only-c", "by-hand"):
        assert (await condition(cluster, name))["message"].startswith(
            "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind. "
        )


@alone
async def test_storage_capacity_of_csi_drivers(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": "disks.example.com"},
        "spec": {"storageCapacity": True},
    }
    await cluster.client.create(driver)
    await cluster.client.create(a_class("csi", provisioner="disks.example.com"))
    for zone, size in (("zone-a", "1Gi"), ("zone-b", "20Gi")):
        await cluster.client.create(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSIStorageCapacity",
                "metadata": {"name": zone, "namespace": "default"},
                "storageClassName": "csi",
                "capacity": size,
                "nodeTopology": {"matchLabels": {ZONE: zone}},
            }
        )
    await cluster.client.create(a_claim("big", "csi", "10Gi"))
    await cluster.client.create(a_claim("huge", "csi", "100Gi"))
    await cluster.client.create(pod_with_claims("p", "big"))
    await cluster.client.create(pod_with_claims("q", "huge"))
    await cluster.instant()
    assert (await cluster.client.get(CLAIMS, "big", "default"))["metadata"]["annotations"][SELECTED] == "b"
    assert (await condition(cluster, "q"))["message"].startswith(
        "0/2 nodes are available: 2 node(s) did not have enough free storage. "
    )


@with_binder
async def test_available_volumes_are_reserved_once(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    await cluster.client.create(a_volume("small", size="1Gi", zone="zone-b"))
    await cluster.client.create(a_volume("big", size="5Gi", zone="zone-b"))
    await cluster.instant()
    for name in ("one", "two"):
        await cluster.client.create(a_claim(name))
    await cluster.client.create(pod_with_claims("p", "one", "two", nodeSelector={ZONE: "zone-b"}))
    await cluster.sleep(5)
    assert await node_of(cluster, "p") == "b"
    bound = {claim["metadata"]["name"]: claim["spec"]["volumeName"] for claim in await cluster.all(CLAIMS)}
    assert sorted(bound.values()) == ["big", "small"]


@alone
async def test_read_write_once_pod(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    await cluster.client.create(a_volume("disk"))
    await cluster.client.create(a_claim("mine", mode="ReadWriteOncePod"))
    await bind(cluster, "mine", "disk")
    await cluster.client.create(pod_with_claims("one", "mine"))
    await cluster.instant()
    await cluster.client.create(pod_with_claims("two", "mine"))
    await cluster.instant()
    assert await node_of(cluster, "one")
    assert (await condition(cluster, "two"))["message"].startswith(
        "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod. "
    )
    await cluster.client.delete(PODS, "one", "default", grace_period=0)
    await cluster.instant()
    assert await node_of(cluster, "two")


@alone
async def test_a_pod_waits_for_its_ephemeral_claim(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    template = {"spec": a_claim("unused")["spec"]}
    await cluster.client.create(a_pod("p", volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]))
    await cluster.instant()
    assert (await condition(cluster, "p"))["message"].startswith(
        "0/2 nodes are available: waiting for ephemeral volume controller to create the persistentvolumeclaim "
        '"p-v". not found'
    )


@alone
async def test_node_volume_limits(cluster: VirtualCluster) -> None:
    await add_node(cluster, a_node("a"))
    await cluster.client.create(a_class("late"))
    driver = {"name": "disks.example.com", "nodeID": "a", "allocatable": {"count": 1}}
    csi_node = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "a"},
        "spec": {"drivers": [driver]},
    }
    await cluster.client.create(csi_node)
    for name in ("one", "two"):
        volume = a_volume(name)
        del volume["spec"]["hostPath"]
        volume["spec"]["csi"] = {"driver": "disks.example.com", "volumeHandle": name}
        await cluster.client.create(volume)
        await cluster.client.create(a_claim(name))
        await bind(cluster, name, name)
        await cluster.client.create(pod_with_claims(name, name))
        await cluster.instant()
    assert await node_of(cluster, "one") == "a"
    assert (await condition(cluster, "two"))["message"].startswith(
        "0/1 nodes are available: 1 node(s) exceed max volume count. "
    )
    await cluster.client.create(pod_with_claims("also-one", "one"))
    await cluster.instant()
    assert await node_of(cluster, "also-one") == "a"
