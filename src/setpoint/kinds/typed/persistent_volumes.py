"""PersistentVolume and PersistentVolumeClaim.

Generated from the field tables by `tools/make_typed_kinds.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing_extensions import ReadOnly

    from setpoint.kinds.typed.metadata import NodeSelector, ObjectMeta, ObjectReference
    from setpoint.kinds.typed.pod import VolumeHealthCondition
    from setpoint.kinds.typed.volumes import (
        AWSElasticBlockStoreVolumeSource,
        AzureDiskVolumeSource,
        FCVolumeSource,
        FlockerVolumeSource,
        GCEPersistentDiskVolumeSource,
        HostPathVolumeSource,
        NFSVolumeSource,
        PersistentVolumeClaimSpec,
        PhotonPersistentDiskVolumeSource,
        PortworxVolumeSource,
        QuobyteVolumeSource,
        VsphereVirtualDiskVolumeSource,
    )


class AzureFilePersistentVolumeSource(TypedDict, total=False):
    secretName: ReadOnly[str]
    shareName: ReadOnly[str]
    readOnly: ReadOnly[bool]
    secretNamespace: ReadOnly[str]


class CSIPersistentVolumeSource(TypedDict, total=False):
    driver: ReadOnly[str]
    volumeHandle: ReadOnly[str]
    readOnly: ReadOnly[bool]
    fsType: ReadOnly[str]
    volumeAttributes: ReadOnly[Mapping[str, str]]
    controllerPublishSecretRef: ReadOnly[SecretReference]
    nodeStageSecretRef: ReadOnly[SecretReference]
    nodePublishSecretRef: ReadOnly[SecretReference]
    controllerExpandSecretRef: ReadOnly[SecretReference]
    nodeExpandSecretRef: ReadOnly[SecretReference]


class CephFSPersistentVolumeSource(TypedDict, total=False):
    monitors: ReadOnly[Sequence[str]]
    path: ReadOnly[str]
    user: ReadOnly[str]
    secretFile: ReadOnly[str]
    secretRef: ReadOnly[SecretReference]
    readOnly: ReadOnly[bool]


class CinderPersistentVolumeSource(TypedDict, total=False):
    volumeID: ReadOnly[str]
    fsType: ReadOnly[str]
    readOnly: ReadOnly[bool]
    secretRef: ReadOnly[SecretReference]


class FlexPersistentVolumeSource(TypedDict, total=False):
    driver: ReadOnly[str]
    fsType: ReadOnly[str]
    secretRef: ReadOnly[SecretReference]
    readOnly: ReadOnly[bool]
    options: ReadOnly[Mapping[str, str]]


class GlusterfsPersistentVolumeSource(TypedDict, total=False):
    endpoints: ReadOnly[str]
    path: ReadOnly[str]
    readOnly: ReadOnly[bool]
    endpointsNamespace: ReadOnly[str]


class ISCSIPersistentVolumeSource(TypedDict, total=False):
    targetPortal: ReadOnly[str]
    iqn: ReadOnly[str]
    lun: ReadOnly[int]
    iscsiInterface: ReadOnly[str]
    fsType: ReadOnly[str]
    readOnly: ReadOnly[bool]
    portals: ReadOnly[Sequence[str]]
    chapAuthDiscovery: ReadOnly[bool]
    chapAuthSession: ReadOnly[bool]
    secretRef: ReadOnly[SecretReference]
    initiatorName: ReadOnly[str]


class LocalVolumeSource(TypedDict, total=False):
    path: ReadOnly[str]
    fsType: ReadOnly[str]


class ModifyVolumeStatus(TypedDict, total=False):
    targetVolumeAttributesClassName: ReadOnly[str]
    status: ReadOnly[str]


class PersistentVolume(TypedDict, total=False):
    kind: ReadOnly[str]
    apiVersion: ReadOnly[str]
    metadata: ReadOnly[ObjectMeta]
    spec: ReadOnly[PersistentVolumeSpec]
    status: ReadOnly[PersistentVolumeStatus]


class PersistentVolumeClaim(TypedDict, total=False):
    kind: ReadOnly[str]
    apiVersion: ReadOnly[str]
    metadata: ReadOnly[ObjectMeta]
    spec: ReadOnly[PersistentVolumeClaimSpec]
    status: ReadOnly[PersistentVolumeClaimStatus]


class PersistentVolumeClaimCondition(TypedDict, total=False):
    type: ReadOnly[str]
    status: ReadOnly[str]
    lastProbeTime: ReadOnly[str]
    lastTransitionTime: ReadOnly[str]
    reason: ReadOnly[str]
    message: ReadOnly[str]


class PersistentVolumeClaimStatus(TypedDict, total=False):
    phase: ReadOnly[str]
    accessModes: ReadOnly[Sequence[str]]
    capacity: ReadOnly[Mapping[str, str]]
    conditions: ReadOnly[Sequence[PersistentVolumeClaimCondition]]
    allocatedResources: ReadOnly[Mapping[str, str]]
    allocatedResourceStatuses: ReadOnly[Mapping[str, str]]
    currentVolumeAttributesClassName: ReadOnly[str]
    modifyVolumeStatus: ReadOnly[ModifyVolumeStatus]
    healthStatus: ReadOnly[VolumeHealthStatus]


class PersistentVolumeSpec(TypedDict, total=False):
    capacity: ReadOnly[Mapping[str, str]]
    gcePersistentDisk: ReadOnly[GCEPersistentDiskVolumeSource]
    awsElasticBlockStore: ReadOnly[AWSElasticBlockStoreVolumeSource]
    hostPath: ReadOnly[HostPathVolumeSource]
    glusterfs: ReadOnly[GlusterfsPersistentVolumeSource]
    nfs: ReadOnly[NFSVolumeSource]
    rbd: ReadOnly[RBDPersistentVolumeSource]
    iscsi: ReadOnly[ISCSIPersistentVolumeSource]
    cinder: ReadOnly[CinderPersistentVolumeSource]
    cephfs: ReadOnly[CephFSPersistentVolumeSource]
    fc: ReadOnly[FCVolumeSource]
    flocker: ReadOnly[FlockerVolumeSource]
    flexVolume: ReadOnly[FlexPersistentVolumeSource]
    azureFile: ReadOnly[AzureFilePersistentVolumeSource]
    vsphereVolume: ReadOnly[VsphereVirtualDiskVolumeSource]
    quobyte: ReadOnly[QuobyteVolumeSource]
    azureDisk: ReadOnly[AzureDiskVolumeSource]
    photonPersistentDisk: ReadOnly[PhotonPersistentDiskVolumeSource]
    portworxVolume: ReadOnly[PortworxVolumeSource]
    scaleIO: ReadOnly[ScaleIOPersistentVolumeSource]
    local: ReadOnly[LocalVolumeSource]
    storageos: ReadOnly[StorageOSPersistentVolumeSource]
    csi: ReadOnly[CSIPersistentVolumeSource]
    accessModes: ReadOnly[Sequence[str]]
    claimRef: ReadOnly[ObjectReference]
    persistentVolumeReclaimPolicy: ReadOnly[str]
    storageClassName: ReadOnly[str]
    mountOptions: ReadOnly[Sequence[str]]
    volumeMode: ReadOnly[str]
    nodeAffinity: ReadOnly[VolumeNodeAffinity]
    volumeAttributesClassName: ReadOnly[str]


class PersistentVolumeStatus(TypedDict, total=False):
    phase: ReadOnly[str]
    message: ReadOnly[str]
    reason: ReadOnly[str]
    lastPhaseTransitionTime: ReadOnly[str]


class RBDPersistentVolumeSource(TypedDict, total=False):
    monitors: ReadOnly[Sequence[str]]
    image: ReadOnly[str]
    fsType: ReadOnly[str]
    pool: ReadOnly[str]
    user: ReadOnly[str]
    keyring: ReadOnly[str]
    secretRef: ReadOnly[SecretReference]
    readOnly: ReadOnly[bool]


class ScaleIOPersistentVolumeSource(TypedDict, total=False):
    gateway: ReadOnly[str]
    system: ReadOnly[str]
    secretRef: ReadOnly[SecretReference]
    sslEnabled: ReadOnly[bool]
    protectionDomain: ReadOnly[str]
    storagePool: ReadOnly[str]
    storageMode: ReadOnly[str]
    volumeName: ReadOnly[str]
    fsType: ReadOnly[str]
    readOnly: ReadOnly[bool]


class SecretReference(TypedDict, total=False):
    name: ReadOnly[str]
    namespace: ReadOnly[str]


class StorageOSPersistentVolumeSource(TypedDict, total=False):
    volumeName: ReadOnly[str]
    volumeNamespace: ReadOnly[str]
    fsType: ReadOnly[str]
    readOnly: ReadOnly[bool]
    secretRef: ReadOnly[ObjectReference]


class VolumeHealthStatus(TypedDict, total=False):
    healthConditions: ReadOnly[Sequence[VolumeHealthCondition]]
    lastTransitionTime: ReadOnly[str]


class VolumeNodeAffinity(TypedDict, total=False):
    required: ReadOnly[NodeSelector]
