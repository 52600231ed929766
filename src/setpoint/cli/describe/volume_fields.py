"""The displayed fields of each volume source, with their titles, in order.

Sources that need more than a list of fields are in `volumes`. The source of a PersistentVolume mostly shows the same
fields as that of a Pod; the exceptions have their own entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from setpoint.meta.goformat import plain

Source = Mapping[str, Any]
Show = Callable[[Any], str]


class Shown(NamedTuple):
    title: str
    """The title, with its colon if it has one."""
    key: str
    show: Show


def text(value: Any) -> str:
    return value or ""


def number(value: Any) -> str:
    return str(value or 0)


def flag(value: Any) -> str:
    return plain(bool(value))


def words(value: Any) -> str:
    return plain(value or [])


def pairs(value: Any) -> str:
    return plain(value or {})


def or_none(value: Any) -> str:
    return "<none>" if value is None else str(value)


def or_unset(value: Any) -> str:
    return "<unset>" if value is None else str(value)


def joined(value: Any) -> str:
    return ", ".join(value or ())


def reference(value: Any) -> str:
    """Format a reference to a Secret, with a namespace for cluster-scoped volumes."""
    if value is None:
        return "nil"
    if "namespace" in value:
        return f"&SecretReference{{Name:{value.get('name', '')},Namespace:{value['namespace']},}}"
    return f"&LocalObjectReference{{Name:{value.get('name', '')},}}"


def far_reference(value: Any) -> str:
    return reference(value and {"namespace": "", **value})


def _disk(title: str, key: str) -> tuple[Shown, ...]:
    return (
        Shown(title, key, text), Shown("FSType:", "fsType", text), Shown("Partition:", "partition", number),
        Shown("ReadOnly:", "readOnly", flag),
    )  # fmt: skip


def _iscsi(secret: Show) -> tuple[Shown, ...]:
    return (
        Shown("TargetPortal:", "targetPortal", text), Shown("IQN:", "iqn", text), Shown("Lun:", "lun", number),
        Shown("ISCSIInterface", "iscsiInterface", text), Shown("FSType:", "fsType", text),
        Shown("ReadOnly:", "readOnly", flag), Shown("Portals:", "portals", words),
        Shown("DiscoveryCHAPAuth:", "chapAuthDiscovery", flag), Shown("SessionCHAPAuth:", "chapAuthSession", flag),
        Shown("SecretRef:", "secretRef", secret), Shown("InitiatorName:", "initiatorName", or_none),
    )  # fmt: skip


def _rbd(secret: Show) -> tuple[Shown, ...]:
    return (
        Shown("CephMonitors:", "monitors", words), Shown("RBDImage:", "image", text), Shown("FSType:", "fsType", text),
        Shown("RBDPool:", "pool", text), Shown("RadosUser:", "user", text), Shown("Keyring:", "keyring", text),
        Shown("SecretRef:", "secretRef", secret), Shown("ReadOnly:", "readOnly", flag),
    )  # fmt: skip


def _cephfs(secret: Show) -> tuple[Shown, ...]:
    return (
        Shown("Monitors:", "monitors", words), Shown("Path:", "path", text), Shown("User:", "user", text),
        Shown("SecretFile:", "secretFile", text), Shown("SecretRef:", "secretRef", secret),
        Shown("ReadOnly:", "readOnly", flag),
    )  # fmt: skip


def _cinder(secret: Show) -> tuple[Shown, ...]:
    return (
        Shown("VolumeID:", "volumeID", text), Shown("FSType:", "fsType", text), Shown("ReadOnly:", "readOnly", flag),
        Shown("SecretRef:", "secretRef", secret),
    )  # fmt: skip


def _flex(secret: Show) -> tuple[Shown, ...]:
    return (
        Shown("Driver:", "driver", text), Shown("FSType:", "fsType", text), Shown("SecretRef:", "secretRef", secret),
        Shown("ReadOnly:", "readOnly", flag), Shown("Options:", "options", pairs),
    )  # fmt: skip


_SCALE_IO = (
    Shown("Gateway:", "gateway", text), Shown("System:", "system", text),
    Shown("Protection Domain:", "protectionDomain", text), Shown("Storage Pool:", "storagePool", text),
    Shown("Storage Mode:", "storageMode", text), Shown("VolumeName:", "volumeName", text),
)  # fmt: skip
_AT_THE_END = (Shown("FSType:", "fsType", text), Shown("ReadOnly:", "readOnly", flag))

TYPES = {
    "hostPath": "HostPath (bare host directory volume)",
    "emptyDir": "EmptyDir (a temporary directory that shares a pod's lifetime)",
    "gcePersistentDisk": "GCEPersistentDisk (a Persistent Disk resource in Google Compute Engine)",
    "awsElasticBlockStore": "AWSElasticBlockStore (a Persistent Disk resource in AWS)",
    "gitRepo": "GitRepo (a volume that is pulled from git when the pod is created)",
    "secret": "Secret (a volume populated by a Secret)",
    "configMap": "ConfigMap (a volume populated by a ConfigMap)",
    "nfs": "NFS (an NFS mount that lasts the lifetime of a pod)",
    "iscsi": "ISCSI (an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the pod)",
    "glusterfs": "Glusterfs (a Glusterfs mount on the host that shares a pod's lifetime)",
    "persistentVolumeClaim": ("PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)"),
    "ephemeral": "EphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)",
    "rbd": "RBD (a Rados Block Device mount on the host that shares a pod's lifetime)",
    "quobyte": "Quobyte (a Quobyte mount on the host that shares a pod's lifetime)",
    "downwardAPI": "DownwardAPI (a volume populated by information about the pod)",
    "azureDisk": "AzureDisk (an Azure Data Disk mount on the host and bind mount to the pod)",
    "vsphereVolume": "vSphereVolume (a Persistent Disk resource in vSphere)",
    "cinder": "Cinder (a Persistent Disk resource in OpenStack)",
    "photonPersistentDisk": "PhotonPersistentDisk (a Persistent Disk resource in photon platform)",
    "portworxVolume": "PortworxVolume (a Portworx Volume resource)",
    "scaleIO": "ScaleIO (a persistent volume backed by a block device in ScaleIO)",
    "local": "LocalVolume (a persistent volume backed by local storage on a node)",
    "cephfs": "CephFS (a CephFS mount on the host that shares a pod's lifetime)",
    "storageos": "StorageOS (a StorageOS Persistent Disk resource)",
    "fc": "FC (a Fibre Channel disk)",
    "azureFile": "AzureFile (an Azure File Service mount on the host and bind mount to the pod)",
    "flexVolume": "FlexVolume (a generic volume resource that is provisioned/attached using an exec based plugin)",
    "flocker": "Flocker (a Flocker volume mounted by the Flocker agent)",
    "projected": "Projected (a volume that contains injected data from multiple sources)",
    "csi": "CSI (a Container Storage Interface (CSI) volume source)",
    "image": "Image (a container image or OCI artifact)",
}
"""The description of each source by its key; a volume with several sources is described by the first."""

FIELDS: dict[str, tuple[Shown, ...]] = {
    "hostPath": (Shown("Path:", "path", text), Shown("HostPathType:", "type", or_none)),
    "gcePersistentDisk": _disk("PDName:", "pdName"),
    "awsElasticBlockStore": _disk("VolumeID:", "volumeID"),
    "gitRepo": (Shown("Repository:", "repository", text), Shown("Revision:", "revision", text)),
    "secret": (Shown("SecretName:", "secretName", text), Shown("Optional:", "optional", flag)),
    "configMap": (Shown("Name:", "name", text), Shown("Optional:", "optional", flag)),
    "nfs": (Shown("Server:", "server", text), Shown("Path:", "path", text), Shown("ReadOnly:", "readOnly", flag)),
    "iscsi": _iscsi(reference),
    "glusterfs": (
        Shown("EndpointsName:", "endpoints", text), Shown("Path:", "path", text), Shown("ReadOnly:", "readOnly", flag),
    ),
    "persistentVolumeClaim": (Shown("ClaimName:", "claimName", text), Shown("ReadOnly:", "readOnly", flag)),
    "rbd": _rbd(reference),
    "quobyte": (
        Shown("Registry:", "registry", text), Shown("Volume:", "volume", text), Shown("ReadOnly:", "readOnly", flag),
    ),
    "azureDisk": (
        Shown("DiskName:", "diskName", text), Shown("DiskURI:", "diskURI", text), Shown("Kind: ", "kind", text),
        Shown("FSType:", "fsType", text), Shown("CachingMode:", "cachingMode", text),
        Shown("ReadOnly:", "readOnly", flag),
    ),
    "vsphereVolume": (
        Shown("VolumePath:", "volumePath", text), Shown("FSType:", "fsType", text),
        Shown("StoragePolicyName:", "storagePolicyName", text),
    ),
    "cinder": _cinder(reference),
    "photonPersistentDisk": (Shown("PdID:", "pdID", text), Shown("FSType:", "fsType", text)),
    "portworxVolume": (Shown("VolumeID:", "volumeID", text),),
    "scaleIO": (*_SCALE_IO, *_AT_THE_END),
    "local": (Shown("Path:", "path", text),),
    "cephfs": _cephfs(reference),
    "storageos": (
        Shown("VolumeName:", "volumeName", text), Shown("VolumeNamespace:", "volumeNamespace", text), *_AT_THE_END,
    ),
    "fc": (Shown("TargetWWNs:", "targetWWNs", joined), Shown("LUN:", "lun", or_none), *_AT_THE_END),
    "azureFile": (
        Shown("SecretName:", "secretName", text), Shown("ShareName:", "shareName", text),
        Shown("ReadOnly:", "readOnly", flag),
    ),
    "flexVolume": _flex(reference),
    "flocker": (Shown("DatasetName:", "datasetName", text), Shown("DatasetUUID:", "datasetUUID", text)),
    "csi": (Shown("Driver:", "driver", text), *_AT_THE_END),
    "image": (Shown("Reference:", "reference", text), Shown("PullPolicy:", "pullPolicy", text)),
}  # fmt: skip

PERSISTENT_FIELDS: dict[str, tuple[Shown, ...]] = {
    **FIELDS,
    "iscsi": _iscsi(far_reference),
    "glusterfs": (
        Shown("EndpointsName:", "endpoints", text), Shown("EndpointsNamespace:", "endpointsNamespace", or_unset),
        Shown("Path:", "path", text), Shown("ReadOnly:", "readOnly", flag),
    ),
    "rbd": _rbd(far_reference),
    "cinder": _cinder(far_reference),
    "cephfs": _cephfs(far_reference),
    "flexVolume": _flex(far_reference),
    "scaleIO": (
        *_SCALE_IO, Shown("SecretName:", "secretName", text), Shown("SecretNamespace:", "secretNamespace", text),
        *_AT_THE_END,
    ),
    "azureFile": (
        Shown("SecretName:", "secretName", text), Shown("SecretNamespace:", "secretNamespace", text),
        Shown("ShareName:", "shareName", text), Shown("ReadOnly:", "readOnly", flag),
    ),
    "csi": (
        Shown("Driver:", "driver", text), Shown("FSType:", "fsType", text),
        Shown("VolumeHandle:", "volumeHandle", text), Shown("ReadOnly:", "readOnly", flag),
    ),
}  # fmt: skip
