"""VolumeAttachment objects, and which volumes need one."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from setpoint.controllers.conditions import is_true

Obj = dict[str, Any]

MANAGED = "volumes.kubernetes.io/controller-managed-attach-detach"
"""Node annotation: this controller, not the kubelet, attaches the node's volumes."""
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def attachment_name(volume: Mapping[str, Any], node: str) -> str:
    source = volume["spec"]["csi"]
    return f"csi-{sha256((source['volumeHandle'] + source['driver'] + node).encode()).hexdigest()}"


def attachment(volume: Mapping[str, Any], node: str) -> Obj:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": attachment_name(volume, node)},
        "spec": {
            "attacher": volume["spec"]["csi"]["driver"],
            "nodeName": node,
            "source": {"persistentVolumeName": volume["metadata"]["name"]},
        },
    }


def is_attached(found: Mapping[str, Any]) -> bool:
    return bool((found.get("status") or {}).get("attached"))


def unique_name(volume: Mapping[str, Any]) -> str:
    """Return the name of the volume in a node's status."""
    source = volume["spec"]["csi"]
    return f"kubernetes.io/csi/{source['driver']}^{source['volumeHandle']}"


def allows_multi_attach(volume: Mapping[str, Any]) -> bool:
    modes = volume["spec"].get("accessModes") or ()
    return not modes or "ReadWriteMany" in modes or "ReadOnlyMany" in modes


def needs_attaching(volume: Mapping[str, Any], driver: Mapping[str, Any] | None) -> bool:
    """Return whether the volume must be attached; an unknown driver is assumed to require it."""
    return "csi" in volume["spec"] and (driver is None or driver["spec"].get("attachRequired") is not False)


def is_managed(node: Mapping[str, Any]) -> bool:
    return MANAGED in (node["metadata"].get("annotations") or {})


def in_use(node: Mapping[str, Any]) -> list[str]:
    return list((node.get("status") or {}).get("volumesInUse") or ())


def is_healthy(node: Mapping[str, Any]) -> bool:
    return is_true(node, "Ready")


def is_out_of_service(node: Mapping[str, Any]) -> bool:
    return any(
        taint["key"] == _OUT_OF_SERVICE and taint["effect"] == "NoExecute"
        for taint in (node.get("spec") or {}).get("taints") or ()
    )
