"""Builds the PersistentVolume for a claim."""

from __future__ import annotations

from typing import Any

from setpoint.controllers.local_provisioner import PROVISIONER
from setpoint.kinds.storage.binding import PROVISIONED_BY, SELECTED_NODE, annotations_of, requested

Obj = dict[str, Any]

FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
_DIRECTORY = "/var/lib/setpoint/volumes"
_HOSTNAME = "kubernetes.io/hostname"


class CannotProvision(Exception):
    """The claim requires something that a directory does not support."""


def volume_name(claim: Obj) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def check(claim: Obj) -> None:
    """Raise CannotProvision if the claim cannot be served by a directory."""
    spec = claim["spec"]
    if spec.get("volumeMode", "Filesystem") != "Filesystem":
        raise CannotProvision(f"{PROVISIONER} does not support block volume provisioning")
    if spec.get("selector"):
        raise CannotProvision("claim Selector is not supported")
    if spec.get("dataSource") or spec.get("dataSourceRef"):
        raise CannotProvision("volumes with a data source are not supported")


def volume_for(claim: Obj, storage_class: Obj, node: Obj | None) -> Obj:
    """Return a volume reserved for the claim; if a node was selected, it is restricted to that node."""
    meta, name = claim["metadata"], volume_name(claim)
    spec: Obj = {
        "capacity": {"storage": requested(claim)},
        "accessModes": claim["spec"]["accessModes"],
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
        "storageClassName": storage_class["metadata"]["name"],
        "volumeMode": "Filesystem",
        "hostPath": {
            "path": f"{_DIRECTORY}/{name}_{meta['namespace']}_{meta['name']}",
            "type": "DirectoryOrCreate",
        },
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "name": meta["name"],
            "namespace": meta["namespace"],
            "resourceVersion": meta["resourceVersion"],
            "uid": meta["uid"],
        },
    }
    if claim["spec"].get("volumeAttributesClassName"):
        spec["volumeAttributesClassName"] = claim["spec"]["volumeAttributesClassName"]
    if node is not None:
        hostname = (node["metadata"].get("labels") or {}).get(_HOSTNAME, node["metadata"]["name"])
        here = {"key": _HOSTNAME, "operator": "In", "values": [hostname]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}, "finalizers": [FINALIZER]},
        "spec": spec,
    }


def selected_node(claim: Obj) -> str:
    return annotations_of(claim).get(SELECTED_NODE, "")
