"""Maps provisioner names: in-tree names that Kubernetes defines, and external provisioners."""

from __future__ import annotations

import re
from typing import Any

from setpoint.kinds.storage.binding import PROVISIONED_BY, STORAGE_PROVISIONER, annotations_of

Obj = dict[str, Any]

MIGRATED_TO = "pv.kubernetes.io/migrated-to"
_OWN = "kubernetes.io/"
_HOST_PATH = "kubernetes.io/host-path"
_NOT_PROVISIONING = frozenset({"kubernetes.io/nfs", "kubernetes.io/fc", "kubernetes.io/iscsi", "kubernetes.io/csi"})
"""In-tree volume types that cannot be provisioned."""
_DELETABLE_PATH = re.compile("/tmp/.+")
_MIGRATED = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}
"""In-tree names and the CSI drivers that replaced them."""


class Refused(Exception):
    """The volume cannot be provisioned or deleted; the message is upstream's."""

    def __init__(self, message: str, asked: str = "") -> None:
        """Create the error. `asked` is the provisioner to record on the claim all the same."""
        super().__init__(message)
        self.asked = asked


def external_provisioner(provisioner: str) -> str:
    """Return the name of the external provisioner. Raise Refused if there is none."""
    if provisioner in _MIGRATED:
        return _MIGRATED[provisioner]
    if not provisioner.startswith(_OWN):
        return provisioner
    if provisioner == _HOST_PATH:
        why = f'Failed to create provisioner: provisioning in volume plugin "{_HOST_PATH}" is disabled'
        raise Refused(why, _HOST_PATH)
    if provisioner in _NOT_PROVISIONING:
        raise Refused("no provisionable volume plugin matched")
    raise Refused(f"no volume plugin matched name: {provisioner}")


def is_deleted_externally(volume: Obj) -> bool:
    """Return whether an external provisioner deletes the volume; otherwise the binder deletes the object only. Raise
    Refused."""
    noted, spec = annotations_of(volume), volume["spec"]
    if MIGRATED_TO in noted or ("csi" in spec and not noted.get(PROVISIONED_BY)):
        return True
    provisioner = noted.get(PROVISIONED_BY, "")
    if provisioner and provisioner != _HOST_PATH:
        if not provisioner.startswith(_OWN):
            return True
        matched = "no deletable volume plugin matched"
        raise Refused(matched if provisioner in _NOT_PROVISIONING else f"no volume plugin matched name: {provisioner}")
    if "hostPath" not in spec:
        why = (
            "no deletable volume plugin matched" if spec.keys() & {"nfs", "fc", "iscsi"} else "no volume plugin matched"
        )
        raise Refused(f'error getting deleter volume plugin for volume "{volume["metadata"]["name"]}": {why}')
    path = spec["hostPath"].get("path", "")
    if not _DELETABLE_PATH.search(path):
        raise Refused(f"host_path deleter only supports /tmp/.+ but received provided {path}")
    return False


def with_migration(obj: Obj) -> Obj:
    """Return the object with the annotation of the CSI driver that replaced its plugin, or the object itself if it is
    set."""
    noted = annotations_of(obj)
    provisioner = noted.get(PROVISIONED_BY) or noted.get(STORAGE_PROVISIONER)
    if provisioner is None:
        return obj
    wanted = _MIGRATED.get(provisioner)
    if noted.get(MIGRATED_TO) == wanted:
        return obj
    changed = {key: value for key, value in noted.items() if key != MIGRATED_TO}
    if wanted is not None:
        changed[MIGRATED_TO] = wanted
    return {**obj, "metadata": {**obj["metadata"], "annotations": changed}}
