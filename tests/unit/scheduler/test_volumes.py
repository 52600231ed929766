"""Pods with volumes: where they can run, and what must be bound first."""

from __future__ import annotations

import asyncio
from typing import Any

from scheduler_objects import PODS, ZONE, a_node, a_pod, add_node, alone, condition, node_of

from setpoint.client.resources import builtin
from setpoint.reconcile import Manager
from setpoint.scheduler.config import load
from setpoint.scheduler.scheduler import add_scheduler
from setpoint.system import RandomIds
from setpoint.testing import VirtualCluster, virtual

Obj = dict[str, Any]
CLAIMS, VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
SELECTED = "volume.kubernetes.io/selected-node"

with_binder = virtual(nodes=0, controllers=["serviceaccount-controller", "persistentvolume-binder-controller"])


def a_class(name: str, mode: str = "WaitForFirstConsumer", **more: Any) -> Obj:
    return {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": "example.com/disks", "volumeBindingMode": mode, **more,
    }  # fmt: skip


def a_claim(name: str, storage_class: str = "late", size: str = "1Gi", mode: str = "ReadWriteOnce", **more: Any) -> Obj:
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": [mode], "storageClassName": storage_class,
                 "resources": {"requests": {"storage": size}}, **more},
    }  # fmt: skip


def a_volume(
    name: str, storage_class: str = "late", size: str = "1Gi", zone: str = "", labels: Obj | None = None
) -> Obj:
    expression = {"key": ZONE, "operator": "In", "values": [zone]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    return {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": labels or {}},
        "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": storage_class,
                 "hostPath": {"path": "/tmp"}, **({"nodeAffinity": affinity} if zone else {})},
    }  # fmt: skip


def using(name: str, *claims: str, **spec: Any) -> Obj:
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": claim}} for i, claim in enumerate(claims)]
    return a_pod(name, volumes=volumes, **spec)


async def bind_by_hand(cluster: VirtualCluster, claim: str, volume: str) -> None:
    """As the binder does it."""
    change = {
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": volume},
    }  # fmt: skip
    await cluster.client.patch(CLAIMS, claim, change, "default")


async def two_zones(cluster: VirtualCluster) -> None:
    for name in "ab":
        await add_node(cluster, a_node(name, labels={ZONE: f"zone-{name}"}))
    await cluster.client.create(a_class("late"))
    await cluster.client.create(a_class("early", "Immediate"))


@alone
async def test_a_claim_that_is_missing_or_unbound(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    await cluster.client.create(a_claim("unbound", "early"))
    await cluster.client.create(using("one", "missing"))
    await cluster.client.create(using("two", "unbound"))
    await cluster.instant()
    assert (await condition(cluster, "one"))["message"] == (
        '0/2 nodes are available: persistentvolumeclaim "missing" not found. not found'
    )
    assert (await condition(cluster, "two"))["message"] == (
        "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
    )
    await cluster.client.create(a_volume("disk", "early", zone="zone-b"))
    await bind_by_hand(cluster, "unbound", "disk")
    await cluster.sleep(1)
    assert await node_of(cluster, "two") == "b"


@alone
async def test_a_bound_volume_decides_where_the_pod_goes(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    await cluster.client.create(a_volume("here", zone="zone-b"))
    await cluster.client.create(a_volume("nowhere", zone="zone-z"))
    for name in ("here", "nowhere", "gone"):
        await cluster.client.create(a_claim(name))
        await bind_by_hand(cluster, name, name)
        await cluster.client.create(using(f"p-{name}", name))
    await cluster.instant()
    assert await node_of(cluster, "p-here") == "b"
    assert (await condition(cluster, "p-nowhere"))["message"].startswith(
        "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity. "
    )
    assert (await condition(cluster, "p-gone"))["message"].startswith(
        '0/2 nodes are available: persistentvolume "gone" not'
    )


@alone
async def test_zone_labels_of_volumes_count(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    await cluster.client.create(a_volume("here", labels={ZONE: "zone-a__zone-c"}))
    await cluster.client.create(a_claim("here"))
    await bind_by_hand(cluster, "here", "here")
    await cluster.client.create(using("p", "here", nodeSelector={ZONE: "zone-b"}))
    await cluster.client.create(using("q", "here"))
    await cluster.instant()
    assert await node_of(cluster, "q") == "a"
    assert (await condition(cluster, "p"))["message"].startswith(
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) had no available volume zone."
    )


@alone
async def test_a_volume_is_made_where_the_pod_goes(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    topology = [{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-b"]}]}]
    await cluster.client.create(a_class("only-b", allowedTopologies=topology))
    await cluster.client.create(a_claim("data", "only-b"))
    await cluster.client.create(using("p", "data"))
    await cluster.instant()
    claim = await cluster.client.get(CLAIMS, "data", "default")
    assert claim["metadata"]["annotations"][SELECTED] == "b"
    pod = await cluster.client.get(PODS, "p", "default")
    assert "nodeName" not in pod["spec"]
    assert pod["status"]["nominatedNodeName"] == "b"
    await cluster.sleep(20)
    assert await node_of(cluster, "p") == ""
    await cluster.client.create(a_volume("made", "only-b"))
    await bind_by_hand(cluster, "data", "made")
    await cluster.instant()
    assert await node_of(cluster, "p") == "b"


@alone
async def test_a_provisioner_that_gives_up_is_not_waited_for(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    await cluster.client.create(a_claim("data"))
    await cluster.client.create(using("p", "data"))
    await cluster.instant()
    await cluster.client.patch(CLAIMS, "data", {"metadata": {"annotations": {SELECTED: None}}}, "default")
    await cluster.instant()
    found = await condition(cluster, "p")
    assert (found["reason"], found["message"]) == (
        "SchedulerError",
        'running PreBind plugin "VolumeBinding": binding volumes: selectedNode annotation reset for PVC "data"',
    )  # fmt: skip
    await cluster.sleep(5)
    assert SELECTED in (await cluster.client.get(CLAIMS, "data", "default"))["metadata"]["annotations"]


@alone
async def test_a_volume_that_was_made_elsewhere_moves_the_pod(cluster: VirtualCluster) -> None:
    """A provisioner need not follow the scheduler's choice: a driver of one node makes all volumes there."""
    await two_zones(cluster)
    await cluster.client.create(a_claim("data"))
    await cluster.client.create(using("p", "data"))
    await cluster.instant()
    chosen = (await cluster.client.get(CLAIMS, "data", "default"))["metadata"]["annotations"][SELECTED]
    other = "b" if chosen == "a" else "a"
    zone = (await cluster.client.get(builtin("nodes"), other))["metadata"]["labels"][ZONE]
    await cluster.client.create(a_volume("made", zone=zone))
    await bind_by_hand(cluster, "data", "made")
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
async def test_a_volume_is_waited_for_no_longer_than_the_configuration_says(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    await cluster.client.create(a_claim("data"))
    pod = using("p", "data")
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
async def test_nowhere_to_make_a_volume(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    topology = [{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-c"]}]}]
    await cluster.client.create(a_class("only-c", allowedTopologies=topology))
    await cluster.client.create(a_class("by-hand", provisioner="kubernetes.io/no-provisioner"))
    for name in ("only-c", "by-hand"):
        await cluster.client.create(a_claim(name, name))
        await cluster.client.create(using(name, name))
    await cluster.instant()
    for name in ("only-c", "by-hand"):
        assert (await condition(cluster, name))["message"].startswith(
            "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind. "
        )


@alone
async def test_capacity_is_looked_at_for_drivers_that_say_so(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    driver = {
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "disks.example.com"},
        "spec": {"storageCapacity": True},
    }  # fmt: skip
    await cluster.client.create(driver)
    await cluster.client.create(a_class("csi", provisioner="disks.example.com"))
    for zone, size in (("zone-a", "1Gi"), ("zone-b", "20Gi")):
        await cluster.client.create(
            {
                "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
                "metadata": {"name": zone, "namespace": "default"}, "storageClassName": "csi", "capacity": size,
                "nodeTopology": {"matchLabels": {ZONE: zone}},
            }
        )  # fmt: skip
    await cluster.client.create(a_claim("big", "csi", "10Gi"))
    await cluster.client.create(a_claim("huge", "csi", "100Gi"))
    await cluster.client.create(using("p", "big"))
    await cluster.client.create(using("q", "huge"))
    await cluster.instant()
    assert (await cluster.client.get(CLAIMS, "big", "default"))["metadata"]["annotations"][SELECTED] == "b"
    assert (await condition(cluster, "q"))["message"].startswith(
        "0/2 nodes are available: 2 node(s) did not have enough free storage. "
    )


@with_binder
async def test_free_volumes_are_taken_and_none_twice(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    await cluster.client.create(a_volume("small", size="1Gi", zone="zone-b"))
    await cluster.client.create(a_volume("big", size="5Gi", zone="zone-b"))
    await cluster.instant()
    for name in ("one", "two"):
        await cluster.client.create(a_claim(name))
    await cluster.client.create(using("p", "one", "two", nodeSelector={ZONE: "zone-b"}))
    await cluster.sleep(5)
    assert await node_of(cluster, "p") == "b"
    bound = {claim["metadata"]["name"]: claim["spec"]["volumeName"] for claim in await cluster.all(CLAIMS)}
    assert sorted(bound.values()) == ["big", "small"]


@alone
async def test_one_pod_at_a_time(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    await cluster.client.create(a_volume("disk"))
    await cluster.client.create(a_claim("mine", mode="ReadWriteOncePod"))
    await bind_by_hand(cluster, "mine", "disk")
    await cluster.client.create(using("one", "mine"))
    await cluster.instant()
    await cluster.client.create(using("two", "mine"))
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
async def test_an_ephemeral_claim_is_waited_for(cluster: VirtualCluster) -> None:
    await two_zones(cluster)
    template = {"spec": a_claim("unused")["spec"]}
    await cluster.client.create(a_pod("p", volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]))
    await cluster.instant()
    assert (await condition(cluster, "p"))["message"].startswith(
        "0/2 nodes are available: waiting for ephemeral volume controller to create the persistentvolumeclaim "
        '"p-v". not found'
    )


@alone
async def test_no_more_volumes_than_a_node_can_attach(cluster: VirtualCluster) -> None:
    await add_node(cluster, a_node("a"))
    await cluster.client.create(a_class("late"))
    driver = {"name": "disks.example.com", "nodeID": "a", "allocatable": {"count": 1}}
    csi_node = {
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "a"}, "spec": {"drivers": [driver]},
    }  # fmt: skip
    await cluster.client.create(csi_node)
    for name in ("one", "two"):
        volume = a_volume(name)
        del volume["spec"]["hostPath"]
        volume["spec"]["csi"] = {"driver": "disks.example.com", "volumeHandle": name}
        await cluster.client.create(volume)
        await cluster.client.create(a_claim(name))
        await bind_by_hand(cluster, name, name)
        await cluster.client.create(using(name, name))
        await cluster.instant()
    assert await node_of(cluster, "one") == "a"
    assert (await condition(cluster, "two"))["message"].startswith(
        "0/1 nodes are available: 1 node(s) exceed max volume count. "
    )
    await cluster.client.create(using("also-one", "one"))
    await cluster.instant()
    assert await node_of(cluster, "also-one") == "a"
