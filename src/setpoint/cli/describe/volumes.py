"""The volumes of Pods and templates, and the sources of PersistentVolumes, field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from setpoint.cli.describe.claims import write_claim
from setpoint.cli.describe.containers import optional
from setpoint.cli.describe.context import Writer
from setpoint.cli.describe.metadata import LONGEST_LINE, shortened
from setpoint.kinds.cell_texts import NONE
from setpoint.meta.goformat import plain
from setpoint.meta.quantity import canonical, compare

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


def cross_namespace_reference(value: Any) -> str:
    return reference(value and {"namespace": "", **value})


def _disk(title: str, key: str) -> tuple[Shown, ...]:
    return (
        Shown(title, key, text),
        Shown("FSType:", "fsType", text),
        Shown("Partition:", "partition", number),
        Shown("ReadOnly:", "readOnly", flag),
    )


def _iscsi(secret: Show) -> tuple[Shown, ...]:
    return (
        Shown("TargetPortal:", "targetPortal", text),
        Shown("IQN:", "iqn", text),
        Shown("Lun:", "lun", number),
        Shown("ISCSIInterface", "iscsiInterface", text),
        Shown("FSType:", "fsType", text),
        Shown("ReadOnly:", "readOnly", flag),
        Shown("Portals:", "portals", words),
        Shown("DiscoveryCHAPAuth:", "chapAuthDiscovery", flag),
        Shown("SessionCHAPAuth:", "chapAuthSession", flag),
        Shown("SecretRef:", "secretRef", secret),
        Shown("InitiatorName:", "initiatorName", or_none),
    )


def _rbd(secret: Show) -> tuple[Shown, ...]:
    return (
        Shown("CephMonitors:", "monitors", words),
        Shown("RBDImage:", "image", text),
        Shown("FSType:", "fsType", text),
        Shown("RBDPool:", "pool", text),
        Shown("RadosUser:", "user", text),
        Shown("Keyring:", "keyring", text),
        Shown("SecretRef:", "secretRef", secret),
        Shown("ReadOnly:", "readOnly", flag),
    )


def _cephfs(secret: Show) -> tuple[Shown, ...]:
    return (
        Shown("Monitors:", "monitors", words),
        Shown("Path:", "path", text),
        Shown("User:", "user", text),
        Shown("SecretFile:", "secretFile", text),
        Shown("SecretRef:", "secretRef", secret),
        Shown("ReadOnly:", "readOnly", flag),
    )


def _cinder(secret: Show) -> tuple[Shown, ...]:
    return (
        Shown("VolumeID:", "volumeID", text),
        Shown("FSType:", "fsType", text),
        Shown("ReadOnly:", "readOnly", flag),
        Shown("SecretRef:", "secretRef", secret),
    )


def _flex(secret: Show) -> tuple[Shown, ...]:
    return (
        Shown("Driver:", "driver", text),
        Shown("FSType:", "fsType", text),
        Shown("SecretRef:", "secretRef", secret),
        Shown("ReadOnly:", "readOnly", flag),
        Shown("Options:", "options", pairs),
    )


_SCALE_IO = (
    Shown("Gateway:", "gateway", text),
    Shown("System:", "system", text),
    Shown("Protection Domain:", "protectionDomain", text),
    Shown("Storage Pool:", "storagePool", text),
    Shown("Storage Mode:", "storageMode", text),
    Shown("VolumeName:", "volumeName", text),
)
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
        Shown("EndpointsName:", "endpoints", text),
        Shown("Path:", "path", text),
        Shown("ReadOnly:", "readOnly", flag),
    ),
    "persistentVolumeClaim": (Shown("ClaimName:", "claimName", text), Shown("ReadOnly:", "readOnly", flag)),
    "rbd": _rbd(reference),
    "quobyte": (
        Shown("Registry:", "registry", text),
        Shown("Volume:", "volume", text),
        Shown("ReadOnly:", "readOnly", flag),
    ),
    "azureDisk": (
        Shown("DiskName:", "diskName", text),
        Shown("DiskURI:", "diskURI", text),
        Shown("Kind: ", "kind", text),
        Shown("FSType:", "fsType", text),
        Shown("CachingMode:", "cachingMode", text),
        Shown("ReadOnly:", "readOnly", flag),
    ),
    "vsphereVolume": (
        Shown("VolumePath:", "volumePath", text),
        Shown("FSType:", "fsType", text),
        Shown("StoragePolicyName:", "storagePolicyName", text),
    ),
    "cinder": _cinder(reference),
    "photonPersistentDisk": (Shown("PdID:", "pdID", text), Shown("FSType:", "fsType", text)),
    "portworxVolume": (Shown("VolumeID:", "volumeID", text),),
    "scaleIO": (*_SCALE_IO, *_AT_THE_END),
    "local": (Shown("Path:", "path", text),),
    "cephfs": _cephfs(reference),
    "storageos": (
        Shown("VolumeName:", "volumeName", text),
        Shown("VolumeNamespace:", "volumeNamespace", text),
        *_AT_THE_END,
    ),
    "fc": (Shown("TargetWWNs:", "targetWWNs", joined), Shown("LUN:", "lun", or_none), *_AT_THE_END),
    "azureFile": (
        Shown("SecretName:", "secretName", text),
        Shown("ShareName:", "shareName", text),
        Shown("ReadOnly:", "readOnly", flag),
    ),
    "flexVolume": _flex(reference),
    "flocker": (Shown("DatasetName:", "datasetName", text), Shown("DatasetUUID:", "datasetUUID", text)),
    "csi": (Shown("Driver:", "driver", text), *_AT_THE_END),
    "image": (Shown("Reference:", "reference", text), Shown("PullPolicy:", "pullPolicy", text)),
}

PERSISTENT_FIELDS: dict[str, tuple[Shown, ...]] = {
    **FIELDS,
    "iscsi": _iscsi(cross_namespace_reference),
    "glusterfs": (
        Shown("EndpointsName:", "endpoints", text),
        Shown("EndpointsNamespace:", "endpointsNamespace", or_unset),
        Shown("Path:", "path", text),
        Shown("ReadOnly:", "readOnly", flag),
    ),
    "rbd": _rbd(cross_namespace_reference),
    "cinder": _cinder(cross_namespace_reference),
    "cephfs": _cephfs(cross_namespace_reference),
    "flexVolume": _flex(cross_namespace_reference),
    "scaleIO": (
        *_SCALE_IO,
        Shown("SecretName:", "secretName", text),
        Shown("SecretNamespace:", "secretNamespace", text),
        *_AT_THE_END,
    ),
    "azureFile": (
        Shown("SecretName:", "secretName", text),
        Shown("SecretNamespace:", "secretNamespace", text),
        Shown("ShareName:", "shareName", text),
        Shown("ReadOnly:", "readOnly", flag),
    ),
    "csi": (
        Shown("Driver:", "driver", text),
        Shown("FSType:", "fsType", text),
        Shown("VolumeHandle:", "volumeHandle", text),
        Shown("ReadOnly:", "readOnly", flag),
    ),
}


def write_volumes(w: Writer, volumes: Sequence[Source], indent: str = "") -> None:
    if not volumes:
        w.write(0, f"{indent}Volumes:\t<none>\n")
        return
    w.write(0, f"{indent}Volumes:\n")
    for volume in volumes:
        w.write(1, f"{' ' if indent else ''}{volume.get('name', '')}:\n")
        key = _source_of(volume)
        # `local` is a source of PersistentVolumes only.
        if key in ("", "local"):
            w.write(1, "<unknown>\n")
            continue
        source = volume[key]
        w.field("Type", TYPES[key], 2)
        for shown in FIELDS.get(key, ()):
            w.row(2, shown.title, shown.show(source.get(shown.key)))
        _write_more(w, key, source)


def write_persistent_source(w: Writer, spec: Source) -> None:
    key = _source_of(spec)
    if key not in PERSISTENT_FIELDS:
        w.write(1, "<unknown>\n")
        return
    source = spec[key]
    if key == "scaleIO":
        secret = source.get("secretRef") or {}
        source = {**source, "secretName": secret.get("name"), "secretNamespace": secret.get("namespace")}
    w.field("Type", TYPES[key], 2)
    for shown in PERSISTENT_FIELDS[key]:
        w.row(2, shown.title, shown.show(source.get(shown.key)))
    if key == "csi":
        _write_attributes(w, source.get("volumeAttributes"))


def _source_of(holder: Source) -> str:
    return next((key for key in TYPES if holder.get(key) is not None), "")


def _write_more(w: Writer, key: str, source: Source) -> None:
    if key == "emptyDir":
        limit = source.get("sizeLimit")
        w.field("Medium", source.get("medium", ""), 2)
        w.field("SizeLimit", canonical(limit) if limit and compare(limit, "0") > 0 else "<unset>", 2)
    elif key == "downwardAPI":
        w.write(2, "Items:\n")
        for item in source.get("items") or ():
            for reference, name in (("fieldRef", "fieldPath"), ("resourceFieldRef", "resource")):
                if item.get(reference) is not None:
                    w.write(3, f"{item[reference].get(name, '')} -> {item.get('path', '')}\n")
    elif key == "projected":
        for part in source.get("sources") or ():
            _write_projection(w, part)
    elif key == "csi":
        _write_attributes(w, source.get("volumeAttributes"))
    elif key == "ephemeral" and source.get("volumeClaimTemplate") is not None:
        write_claim(w.nested(2), source["volumeClaimTemplate"])


def _write_projection(w: Writer, part: Source) -> None:
    if part.get("secret") is not None:
        w.field("SecretName", part["secret"].get("name", ""), 2)
        w.field("Optional", optional(part["secret"]), 2)
    elif part.get("downwardAPI") is not None:
        w.field("DownwardAPI", "true", 2)
    elif part.get("configMap") is not None:
        w.field("ConfigMapName", part["configMap"].get("name", ""), 2)
        w.field("Optional", optional(part["configMap"]), 2)
    elif part.get("serviceAccountToken") is not None:
        w.field("TokenExpirationSeconds", part["serviceAccountToken"].get("expirationSeconds", 0), 2)


def _write_attributes(w: Writer, attributes: Mapping[str, str] | None) -> None:
    w.write(2, "VolumeAttributes:\t")
    if not attributes:
        w.line(NONE)
        return
    # Every line is indented separately, as in kubectl.
    for at, key in enumerate(sorted(attributes)):
        if at:
            w.write(2, "")
            w.write(2, "\t")
        w.write(2, f"{shortened(f'{key}={attributes[key]}', LONGEST_LINE)}\n")
