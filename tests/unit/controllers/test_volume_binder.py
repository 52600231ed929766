"""Claims and volumes are bound to each other."""

from __future__ import annotations

from functools import partial
from typing import Any

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
CLAIMS, VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
CLASSES = builtin("storageclasses", "storage.k8s.io")
ONLY: Obj = {"nodes": 0, "scheduler": False, "controllers": ["persistentvolume-binder-controller"]}


def a_claim(name: str = "data", size: str = "1Gi", storage_class: str | None = "", **spec: Any) -> Obj:
    wanted: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    if storage_class is not None:
        wanted["storageClassName"] = storage_class
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": wanted}


def a_volume(name: str = "disk", size: str = "1Gi", labels: dict[str, str] | None = None, **spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/tmp/x"},
            "persistentVolumeReclaimPolicy": "Retain",
            **spec,
        },
    }


def a_class(name: str, provisioner: str = "example.com/disks", default: bool = False, **more: Any) -> Obj:
    meta: Obj = {"name": name}
    if default:
        meta["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": meta,
        "provisioner": provisioner,
        **more,
    }


async def claim_phase(cluster: VirtualCluster, name: str = "data") -> str:
    return str((await cluster.client.get(CLAIMS, name, "default"))["status"]["phase"])


async def bound_to(cluster: VirtualCluster, name: str = "data") -> str:
    claim = await cluster.client.get(CLAIMS, name, "default")
    return str(claim["spec"].get("volumeName", "")) if claim["status"]["phase"] == "Bound" else ""


async def volume_phase(cluster: VirtualCluster, name: str = "disk") -> str:
    return str((await cluster.client.get(VOLUMES, name))["status"]["phase"])


@virtual(**ONLY)
async def test_a_claim_gets_the_smallest_suitable_volume(cluster: VirtualCluster) -> None:
    for name, size in (("big", "10Gi"), ("fits", "2Gi"), ("small", "512Mi")):
        await cluster.client.create(a_volume(name, size))
    await cluster.client.create(a_volume("elsewhere", "1Gi", storageClassName="fast"))
    await cluster.client.create(a_volume("shared", "1Gi", accessModes=["ReadOnlyMany"]))
    await cluster.until(lambda: volume_phase(cluster, "fits"))
    await cluster.instant()
    await cluster.client.create(a_claim())
    await cluster.until(lambda: bound_to(cluster), within=1)
    claim = await cluster.client.get(CLAIMS, "data", "default")
    assert claim["spec"]["volumeName"] == "fits"
    assert claim["metadata"]["annotations"] == {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
    }
    assert claim["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}}
    volume = await cluster.client.get(VOLUMES, "fits")
    assert volume["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert volume["status"]["phase"] == "Bound"
    reference = volume["spec"]["claimRef"]
    assert reference["name"] == "data" and reference["uid"] == claim["metadata"]["uid"]
    assert await volume_phase(cluster, "big") == "Available"


@virtual(**ONLY)
async def test_a_pending_claim_is_reported(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_claim())
    await cluster.sleep(1)
    assert await claim_phase(cluster) == "Pending"
    text = "no persistent volumes available for this claim and no storage class is set"
    assert ("Normal", "FailedBinding", text) in await cluster.events("data")
    await cluster.client.create(a_volume())
    await cluster.until(lambda: bound_to(cluster), within=1)


@virtual(**ONLY)
async def test_labels_and_volume_mode_must_match(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_volume("slow", labels={"speed": "slow"}))
    await cluster.client.create(a_volume("fast", "5Gi", labels={"speed": "fast"}))
    somewhere = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
    raw = a_volume("raw", labels={"speed": "fast"}, volumeMode="Block", nodeAffinity={"required": somewhere})
    raw["spec"] |= {"hostPath": None, "local": {"path": "/dev/x"}}
    await cluster.client.create(raw)
    await cluster.client.create(a_claim(selector={"matchLabels": {"speed": "fast"}}))
    await cluster.client.create(a_claim("device", volumeMode="Block"))
    await cluster.until(lambda: bound_to(cluster))
    await cluster.until(lambda: bound_to(cluster, "device"))
    assert (await bound_to(cluster), await bound_to(cluster, "device")) == ("fast", "raw")


@virtual(**ONLY)
async def test_fewer_access_modes_are_preferred_over_smaller_size(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_volume("more", "1Gi", accessModes=["ReadWriteOnce", "ReadWriteMany"]))
    await cluster.client.create(a_volume("just", "9Gi"))
    await cluster.sleep(1)
    await cluster.client.create(a_claim())
    await cluster.until(lambda: bound_to(cluster))
    assert await bound_to(cluster) == "just"


@virtual(**ONLY)
async def test_a_reserved_volume_is_bound_to_its_claim_only(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_volume(claimRef={"namespace": "default", "name": "late"}))
    await cluster.client.create(a_claim())
    await cluster.sleep(40)
    assert (await claim_phase(cluster), await volume_phase(cluster)) == ("Pending", "Available")
    await cluster.client.create(a_claim("late"))
    await cluster.until(lambda: bound_to(cluster, "late"), within=1)
    volume = await cluster.client.get(VOLUMES, "disk")
    late = await cluster.client.get(CLAIMS, "late", "default")
    assert volume["spec"]["claimRef"]["uid"] == late["metadata"]["uid"]
    # Its author chose the claim, not the binder; the claim was chosen for.
    assert "annotations" not in volume["metadata"]
    assert "pv.kubernetes.io/bound-by-controller" in late["metadata"]["annotations"]


@virtual(**ONLY)
async def test_a_claim_with_a_volume_name(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_claim(volumeName="disk"))
    await cluster.sleep(1)
    assert await claim_phase(cluster) == "Pending"
    await cluster.client.create(a_volume())
    await cluster.until(lambda: bound_to(cluster), within=20)
    claim = await cluster.client.get(CLAIMS, "data", "default")
    assert claim["metadata"]["annotations"] == {"pv.kubernetes.io/bind-completed": "yes"}
    await cluster.client.create(a_claim("second", volumeName="disk"))
    await cluster.sleep(1)
    text = 'volume "disk" already bound to a different claim.'
    assert ("Warning", "FailedBinding", text) in await cluster.events("second")
    assert await claim_phase(cluster, "second") == "Pending"


@virtual(**ONLY)
async def test_a_named_volume_must_match(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_volume("tiny", "1Mi"))
    await cluster.client.create(a_claim(volumeName="tiny"))
    await cluster.sleep(1)
    text = 'Cannot bind to requested volume "tiny": requested PV is too small'
    assert ("Warning", "VolumeMismatch", text) in await cluster.events("data")
    assert (await claim_phase(cluster), await volume_phase(cluster, "tiny")) == ("Pending", "Available")


@virtual(**ONLY)
async def test_a_claim_without_class_gets_the_later_default_class(cluster: VirtualCluster) -> None:
    await cluster.client.delete(CLASSES, "standard")
    await cluster.client.create(a_claim(storage_class=None))
    await cluster.sleep(1)
    await cluster.client.create(a_class("basic", default=True))
    await cluster.sleep(1)
    claim = await cluster.client.get(CLAIMS, "data", "default")
    assert claim["spec"]["storageClassName"] == "basic"
    assert claim["metadata"]["annotations"] == {
        "volume.beta.kubernetes.io/storage-provisioner": "example.com/disks",
        "volume.kubernetes.io/storage-provisioner": "example.com/disks",
    }
    assert ("Normal", "ExternalProvisioning") in [event[:2] for event in await cluster.events("data")]


@virtual(**ONLY)
async def test_a_failed_provisioning_is_reported(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_class("by-hand", "kubernetes.io/no-provisioner"))
    await cluster.client.create(a_claim("one", storage_class="by-hand"))
    await cluster.client.create(a_claim("two", storage_class="missing"))
    await cluster.sleep(1)
    text = "no volume plugin matched name: kubernetes.io/no-provisioner"
    assert await cluster.events("one") == [("Warning", "ProvisioningFailed", text)]
    await cluster.client.create(a_class("host", "kubernetes.io/host-path"))
    await cluster.client.create(a_claim("three", storage_class="host"))
    await cluster.sleep(1)
    text = 'Failed to create provisioner: provisioning in volume plugin "kubernetes.io/host-path" is disabled'
    assert await cluster.events("three") == [("Warning", "ProvisioningFailed", text)]
    noted = (await cluster.client.get(CLAIMS, "three", "default"))["metadata"]["annotations"]
    assert noted["volume.kubernetes.io/storage-provisioner"] == "kubernetes.io/host-path"
    text = 'storageclass.storage.k8s.io "missing" not found'
    assert await cluster.events("two") == [("Warning", "ProvisioningFailed", text)]


@virtual(**ONLY)
async def test_binding_waits_for_the_first_consumer(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_class("lazy", volumeBindingMode="WaitForFirstConsumer"))
    await cluster.client.create(a_volume(storageClassName="lazy"))
    await cluster.client.create(a_claim(storage_class="lazy"))
    await cluster.sleep(20)
    assert (await claim_phase(cluster), await volume_phase(cluster)) == ("Pending", "Available")
    text = "waiting for first consumer to be created before binding"
    assert ("Normal", "WaitForFirstConsumer", text) in await cluster.events("data")
    # The scheduler chooses by reserving the volume.
    await cluster.client.patch(VOLUMES, "disk", {"spec": {"claimRef": {"namespace": "default", "name": "data"}}})
    await cluster.until(lambda: bound_to(cluster), within=1)


@virtual(**ONLY)
async def test_reclaim_policies_after_a_claim_was_deleted(cluster: VirtualCluster) -> None:
    kinds: dict[str, Obj] = {
        "kept": {"persistentVolumeReclaimPolicy": "Retain"},
        "deleted": {"persistentVolumeReclaimPolicy": "Delete"},
        "refused": {"persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": "/srv"}},
        "recycled": {"persistentVolumeReclaimPolicy": "Recycle"},
        "nfs": {"persistentVolumeReclaimPolicy": "Delete", "hostPath": None, "nfs": {"server": "s", "path": "/"}},
        "csi": {
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": None,
            "csi": {"driver": "a.b", "volumeHandle": "h"},
        },
    }
    for name, spec in kinds.items():
        await cluster.client.create(a_volume(name, **spec))
        await cluster.client.create(a_claim(name, volumeName=name))
    for name in kinds:
        await cluster.until(partial(bound_to, cluster, name))
        await cluster.client.patch(CLAIMS, name, {"metadata": {"finalizers": None}}, "default")
        await cluster.client.delete(CLAIMS, name, "default")
    await cluster.sleep(1)
    phases = {name: await volume_phase(cluster, name) for name in kinds}
    assert phases == {
        "kept": "Released",
        "deleted": "Released",
        "refused": "Failed",
        "recycled": "Failed",
        "nfs": "Failed",
        "csi": "Released",
    }
    # Nobody takes the finalizer off here.
    assert "deletionTimestamp" in (await cluster.client.get(VOLUMES, "deleted"))["metadata"]
    assert "deletionTimestamp" not in (await cluster.client.get(VOLUMES, "csi"))["metadata"]
    text = "host_path deleter only supports /tmp/.+ but received provided /srv"
    assert (await cluster.client.get(VOLUMES, "refused"))["status"]["message"] == text
    assert ("Warning", "VolumeFailedDelete", text) in await cluster.events("refused")
    text = 'error getting deleter volume plugin for volume "nfs": no deletable volume plugin matched'
    assert ("Warning", "VolumeFailedDelete", text) in await cluster.events("nfs")


@virtual(**ONLY)
async def test_a_claim_whose_volume_is_gone_is_lost(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_volume())
    await cluster.client.create(a_claim())
    await cluster.until(lambda: bound_to(cluster), within=20)
    await cluster.client.patch(VOLUMES, "disk", {"metadata": {"finalizers": None}})
    await cluster.client.delete(VOLUMES, "disk")
    await cluster.sleep(1)
    claim = await cluster.client.get(CLAIMS, "data", "default")
    assert claim["status"] == {"phase": "Lost"}
    text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
    assert ("Warning", "ClaimLost", text) in await cluster.events("data")


@virtual(**ONLY)
async def test_a_retained_volume_is_not_bound_to_a_new_claim_of_the_same_name(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_volume())
    await cluster.client.create(a_claim())
    await cluster.until(lambda: bound_to(cluster), within=20)
    await cluster.client.patch(CLAIMS, "data", {"metadata": {"finalizers": None}}, "default")
    await cluster.client.delete(CLAIMS, "data", "default")
    await cluster.client.create(a_claim())
    await cluster.sleep(40)
    assert (await claim_phase(cluster), await volume_phase(cluster)) == ("Pending", "Released")
    # Whoever knows that the data may be reused frees it.
    await cluster.client.patch(VOLUMES, "disk", {"spec": {"claimRef": None}})
    await cluster.until(lambda: bound_to(cluster), within=1)


@virtual(**ONLY)
async def test_a_claim_bound_elsewhere_releases_the_other_volume(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_volume("first"))
    await cluster.client.create(a_claim())
    await cluster.until(lambda: bound_to(cluster), within=20)
    claim = await cluster.client.get(CLAIMS, "data", "default")
    reference = {"namespace": "default", "name": "data", "uid": claim["metadata"]["uid"]}
    other = a_volume("other", claimRef=reference)
    other["metadata"]["annotations"] = {"pv.kubernetes.io/bound-by-controller": "yes"}
    await cluster.client.create(other)
    await cluster.until(lambda: volume_phase(cluster, "other"))
    await cluster.sleep(1)
    assert await volume_phase(cluster, "other") == "Available"
    assert "claimRef" not in (await cluster.client.get(VOLUMES, "other"))["spec"]


@virtual(nodes=0, scheduler=False, controllers=["volumeattributesclass-protection-controller"])
async def test_a_volume_attributes_class_is_protected_while_it_is_referenced(cluster: VirtualCluster) -> None:
    classes = builtin("volumeattributesclasses", "storage.k8s.io")
    gold = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttributesClass",
        "metadata": {"name": "gold"},
        "driverName": "disks.example",
        "parameters": {"iops": "9"},
    }
    await cluster.client.create(gold)
    await cluster.client.create(a_claim(volumeAttributesClassName="gold"))
    await cluster.client.delete(classes, "gold")
    await cluster.sleep(60)
    assert await cluster.find(classes, "gold", "") is not None
    await cluster.client.patch(CLAIMS, "data", {"metadata": {"finalizers": None}}, "default")
    await cluster.client.delete(CLAIMS, "data", "default")
    await cluster.sleep(1)
    assert await cluster.find(classes, "gold", "") is None
