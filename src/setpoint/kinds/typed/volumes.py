"""The volumes of a Pod.

Generated from the field tables by `tools/make_typed_kinds.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing_extensions import ReadOnly

    from setpoint.kinds.typed.metadata import LabelSelector, ObjectMeta


class AWSElasticBlockStoreVolumeSource(TypedDict, total=False):
    volumeID: ReadOnly[str]
    fsType: ReadOnly[str]
    partition: ReadOnly[int]
    readOnly: ReadOnly[bool]


class AzureDiskVolumeSource(TypedDict, total=False):
    diskName: ReadOnly[str]
    diskURI: ReadOnly[str]
    cachingMode: ReadOnly[str]
    fsType: ReadOnly[str]
    readOnly: ReadOnly[bool]
    kind: ReadOnly[str]


class AzureFileVolumeSource(TypedDict, total=False):
    secretName: ReadOnly[str]
    shareName: ReadOnly[str]
    readOnly: ReadOnly[bool]


class CSIVolumeSource(TypedDict, total=False):
    driver: ReadOnly[str]
    readOnly: ReadOnly[bool]
    fsType: ReadOnly[str]
    volumeAttributes: ReadOnly[Mapping[str, str]]
    nodePublishSecretRef: ReadOnly[LocalObjectReference]


class CephFSVolumeSource(TypedDict, total=False):
    monitors: ReadOnly[Sequence[str]]
    path: ReadOnly[str]
    user: ReadOnly[str]
    secretFile: ReadOnly[str]
    secretRef: ReadOnly[LocalObjectReference]
    readOnly: ReadOnly[bool]


class CinderVolumeSource(TypedDict, total=False):
    volumeID: ReadOnly[str]
    fsType: ReadOnly[str]
    readOnly: ReadOnly[bool]
    secretRef: ReadOnly[LocalObjectReference]


class ClusterTrustBundleProjection(TypedDict, total=False):
    name: ReadOnly[str]
    signerName: ReadOnly[str]
    labelSelector: ReadOnly[LabelSelector]
    optional: ReadOnly[bool]
    path: ReadOnly[str]
    user: ReadOnly[int]


class ConfigMapProjection(TypedDict, total=False):
    name: ReadOnly[str]
    items: ReadOnly[Sequence[KeyToPath]]
    optional: ReadOnly[bool]


class ConfigMapVolumeSource(TypedDict, total=False):
    name: ReadOnly[str]
    items: ReadOnly[Sequence[KeyToPath]]
    defaultMode: ReadOnly[int]
    optional: ReadOnly[bool]
    defaultUser: ReadOnly[int]


class DownwardAPIProjection(TypedDict, total=False):
    items: ReadOnly[Sequence[DownwardAPIVolumeFile]]


class DownwardAPIVolumeFile(TypedDict, total=False):
    path: ReadOnly[str]
    fieldRef: ReadOnly[ObjectFieldSelector]
    resourceFieldRef: ReadOnly[ResourceFieldSelector]
    mode: ReadOnly[int]
    user: ReadOnly[int]


class DownwardAPIVolumeSource(TypedDict, total=False):
    items: ReadOnly[Sequence[DownwardAPIVolumeFile]]
    defaultMode: ReadOnly[int]
    defaultUser: ReadOnly[int]


class EmptyDirVolumeSource(TypedDict, total=False):
    medium: ReadOnly[str]
    sizeLimit: ReadOnly[str]
    mode: ReadOnly[int]


class EphemeralVolumeSource(TypedDict, total=False):
    volumeClaimTemplate: ReadOnly[PersistentVolumeClaimTemplate]


class FCVolumeSource(TypedDict, total=False):
    targetWWNs: ReadOnly[Sequence[str]]
    lun: ReadOnly[int]
    fsType: ReadOnly[str]
    readOnly: ReadOnly[bool]
    wwids: ReadOnly[Sequence[str]]


class FlexVolumeSource(TypedDict, total=False):
    driver: ReadOnly[str]
    fsType: ReadOnly[str]
    secretRef: ReadOnly[LocalObjectReference]
    readOnly: ReadOnly[bool]
    options: ReadOnly[Mapping[str, str]]


class FlockerVolumeSource(TypedDict, total=False):
    datasetName: ReadOnly[str]
    datasetUUID: ReadOnly[str]


class GCEPersistentDiskVolumeSource(TypedDict, total=False):
    pdName: ReadOnly[str]
    fsType: ReadOnly[str]
    partition: ReadOnly[int]
    readOnly: ReadOnly[bool]


class GitRepoVolumeSource(TypedDict, total=False):
    repository: ReadOnly[str]
    revision: ReadOnly[str]
    directory: ReadOnly[str]


class GlusterfsVolumeSource(TypedDict, total=False):
    endpoints: ReadOnly[str]
    path: ReadOnly[str]
    readOnly: ReadOnly[bool]


class HostPathVolumeSource(TypedDict, total=False):
    path: ReadOnly[str]
    type: ReadOnly[str]


class ISCSIVolumeSource(TypedDict, total=False):
    targetPortal: ReadOnly[str]
    iqn: ReadOnly[str]
    lun: ReadOnly[int]
    iscsiInterface: ReadOnly[str]
    fsType: ReadOnly[str]
    readOnly: ReadOnly[bool]
    portals: ReadOnly[Sequence[str]]
    chapAuthDiscovery: ReadOnly[bool]
    chapAuthSession: ReadOnly[bool]
    secretRef: ReadOnly[LocalObjectReference]
    initiatorName: ReadOnly[str]


class ImageVolumeSource(TypedDict, total=False):
    reference: ReadOnly[str]
    pullPolicy: ReadOnly[str]


class KeyToPath(TypedDict, total=False):
    key: ReadOnly[str]
    path: ReadOnly[str]
    mode: ReadOnly[int]
    user: ReadOnly[int]


class LocalObjectReference(TypedDict, total=False):
    name: ReadOnly[str]


class NFSVolumeSource(TypedDict, total=False):
    server: ReadOnly[str]
    path: ReadOnly[str]
    readOnly: ReadOnly[bool]


class ObjectFieldSelector(TypedDict, total=False):
    apiVersion: ReadOnly[str]
    fieldPath: ReadOnly[str]


class PersistentVolumeClaimSpec(TypedDict, total=False):
    accessModes: ReadOnly[Sequence[str]]
    selector: ReadOnly[LabelSelector]
    resources: ReadOnly[VolumeResourceRequirements]
    volumeName: ReadOnly[str]
    storageClassName: ReadOnly[str]
    volumeMode: ReadOnly[str]
    dataSource: ReadOnly[TypedLocalObjectReference]
    dataSourceRef: ReadOnly[TypedObjectReference]
    volumeAttributesClassName: ReadOnly[str]


class PersistentVolumeClaimTemplate(TypedDict, total=False):
    metadata: ReadOnly[ObjectMeta]
    spec: ReadOnly[PersistentVolumeClaimSpec]


class PersistentVolumeClaimVolumeSource(TypedDict, total=False):
    claimName: ReadOnly[str]
    readOnly: ReadOnly[bool]


class PhotonPersistentDiskVolumeSource(TypedDict, total=False):
    pdID: ReadOnly[str]
    fsType: ReadOnly[str]


class PodCertificateProjection(TypedDict, total=False):
    signerName: ReadOnly[str]
    keyType: ReadOnly[str]
    maxExpirationSeconds: ReadOnly[int]
    credentialBundlePath: ReadOnly[str]
    keyPath: ReadOnly[str]
    certificateChainPath: ReadOnly[str]
    userAnnotations: ReadOnly[Mapping[str, str]]
    user: ReadOnly[int]


class PortworxVolumeSource(TypedDict, total=False):
    volumeID: ReadOnly[str]
    fsType: ReadOnly[str]
    readOnly: ReadOnly[bool]


class ProjectedVolumeSource(TypedDict, total=False):
    sources: ReadOnly[Sequence[VolumeProjection]]
    defaultMode: ReadOnly[int]
    defaultUser: ReadOnly[int]


class QuobyteVolumeSource(TypedDict, total=False):
    registry: ReadOnly[str]
    volume: ReadOnly[str]
    readOnly: ReadOnly[bool]
    user: ReadOnly[str]
    group: ReadOnly[str]
    tenant: ReadOnly[str]


class RBDVolumeSource(TypedDict, total=False):
    monitors: ReadOnly[Sequence[str]]
    image: ReadOnly[str]
    fsType: ReadOnly[str]
    pool: ReadOnly[str]
    user: ReadOnly[str]
    keyring: ReadOnly[str]
    secretRef: ReadOnly[LocalObjectReference]
    readOnly: ReadOnly[bool]


class ResourceFieldSelector(TypedDict, total=False):
    containerName: ReadOnly[str]
    resource: ReadOnly[str]
    divisor: ReadOnly[str]


class ScaleIOVolumeSource(TypedDict, total=False):
    gateway: ReadOnly[str]
    system: ReadOnly[str]
    secretRef: ReadOnly[LocalObjectReference]
    sslEnabled: ReadOnly[bool]
    protectionDomain: ReadOnly[str]
    storagePool: ReadOnly[str]
    storageMode: ReadOnly[str]
    volumeName: ReadOnly[str]
    fsType: ReadOnly[str]
    readOnly: ReadOnly[bool]


class SecretProjection(TypedDict, total=False):
    name: ReadOnly[str]
    items: ReadOnly[Sequence[KeyToPath]]
    optional: ReadOnly[bool]


class SecretVolumeSource(TypedDict, total=False):
    secretName: ReadOnly[str]
    items: ReadOnly[Sequence[KeyToPath]]
    defaultMode: ReadOnly[int]
    optional: ReadOnly[bool]
    defaultUser: ReadOnly[int]


class ServiceAccountTokenProjection(TypedDict, total=False):
    audience: ReadOnly[str]
    expirationSeconds: ReadOnly[int]
    path: ReadOnly[str]
    user: ReadOnly[int]


class StorageOSVolumeSource(TypedDict, total=False):
    volumeName: ReadOnly[str]
    volumeNamespace: ReadOnly[str]
    fsType: ReadOnly[str]
    readOnly: ReadOnly[bool]
    secretRef: ReadOnly[LocalObjectReference]


class TypedLocalObjectReference(TypedDict, total=False):
    apiGroup: ReadOnly[str]
    kind: ReadOnly[str]
    name: ReadOnly[str]


class TypedObjectReference(TypedDict, total=False):
    apiGroup: ReadOnly[str]
    kind: ReadOnly[str]
    name: ReadOnly[str]
    namespace: ReadOnly[str]


class Volume(TypedDict, total=False):
    name: ReadOnly[str]
    hostPath: ReadOnly[HostPathVolumeSource]
    emptyDir: ReadOnly[EmptyDirVolumeSource]
    gcePersistentDisk: ReadOnly[GCEPersistentDiskVolumeSource]
    awsElasticBlockStore: ReadOnly[AWSElasticBlockStoreVolumeSource]
    gitRepo: ReadOnly[GitRepoVolumeSource]
    secret: ReadOnly[SecretVolumeSource]
    nfs: ReadOnly[NFSVolumeSource]
    iscsi: ReadOnly[ISCSIVolumeSource]
    glusterfs: ReadOnly[GlusterfsVolumeSource]
    persistentVolumeClaim: ReadOnly[PersistentVolumeClaimVolumeSource]
    rbd: ReadOnly[RBDVolumeSource]
    flexVolume: ReadOnly[FlexVolumeSource]
    cinder: ReadOnly[CinderVolumeSource]
    cephfs: ReadOnly[CephFSVolumeSource]
    flocker: ReadOnly[FlockerVolumeSource]
    downwardAPI: ReadOnly[DownwardAPIVolumeSource]
    fc: ReadOnly[FCVolumeSource]
    azureFile: ReadOnly[AzureFileVolumeSource]
    configMap: ReadOnly[ConfigMapVolumeSource]
    vsphereVolume: ReadOnly[VsphereVirtualDiskVolumeSource]
    quobyte: ReadOnly[QuobyteVolumeSource]
    azureDisk: ReadOnly[AzureDiskVolumeSource]
    photonPersistentDisk: ReadOnly[PhotonPersistentDiskVolumeSource]
    projected: ReadOnly[ProjectedVolumeSource]
    portworxVolume: ReadOnly[PortworxVolumeSource]
    scaleIO: ReadOnly[ScaleIOVolumeSource]
    storageos: ReadOnly[StorageOSVolumeSource]
    csi: ReadOnly[CSIVolumeSource]
    ephemeral: ReadOnly[EphemeralVolumeSource]
    image: ReadOnly[ImageVolumeSource]


class VolumeProjection(TypedDict, total=False):
    secret: ReadOnly[SecretProjection]
    downwardAPI: ReadOnly[DownwardAPIProjection]
    configMap: ReadOnly[ConfigMapProjection]
    serviceAccountToken: ReadOnly[ServiceAccountTokenProjection]
    clusterTrustBundle: ReadOnly[ClusterTrustBundleProjection]
    podCertificate: ReadOnly[PodCertificateProjection]


class VolumeResourceRequirements(TypedDict, total=False):
    limits: ReadOnly[Mapping[str, str]]
    requests: ReadOnly[Mapping[str, str]]


class VsphereVirtualDiskVolumeSource(TypedDict, total=False):
    volumePath: ReadOnly[str]
    fsType: ReadOnly[str]
    storagePolicyName: ReadOnly[str]
    storagePolicyID: ReadOnly[str]
