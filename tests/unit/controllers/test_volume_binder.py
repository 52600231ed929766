"""Claims and volumes find each other."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.testing import VirtualCluster, virtual

Obj = dict[str, Any]
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
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": meta, "provisioner": provisioner, **more,
    }  # fmt: skip


async def claim_phase(cluster: VirtualCluster, name: str = "data") -> str:
    return str((await cluster.client.get(CLAIMS, name, "default"))["status"]["phase"])


async def bound_to(cluster: VirtualCluster, name: str = "data") -> str:
    claim = await cluster.client.get(CLAIMS, name, "default")
    return str(claim["spec"].get("volumeName", "")) if claim["status"]["phase"] == "Bound" else ""


async def volume_phase(cluster: VirtualCluster, name: str = "disk") -> str:
    return str((await cluster.client.get(VOLUMES, name))["status"]["phase"])


@virtual(**ONLY)
async def test_a_claim_gets_the_smallest_volume_that_suits(cluster: VirtualCluster) -> None:
    for name, size in (("big", "10Gi"), ("fits", "2Gi"), ("small", "512Mi")):
        await cluster.client.create(a_volume(name, size))
    await cluster.client.create(a_volume("elsewhere", "1Gi", storageClassName="fast"))
    await cluster.client.create(a_volume("shared", "1Gi", accessModes=["ReadOnlyMany"]))
    await cluster.until(lambda: volume_phase(cluster, "fits"))
    await cluster.settle()
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
