"""Pod and PodTemplateSpec.

Generated from the field tables by `tools/make_typed_kinds.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing_extensions import ReadOnly

    from setpoint.kinds.typed.containers import (
        AppArmorProfile,
        Container,
        EphemeralContainer,
        ResourceRequirements,
        SeccompProfile,
        SELinuxOptions,
        WindowsSecurityContextOptions,
    )
    from setpoint.kinds.typed.metadata import LabelSelector, NodeSelector, NodeSelectorTerm, ObjectMeta
    from setpoint.kinds.typed.volumes import LocalObjectReference, Volume


class Affinity(TypedDict, total=False):
    nodeAffinity: ReadOnly[NodeAffinity]
    podAffinity: ReadOnly[PodAffinity]
    podAntiAffinity: ReadOnly[PodAntiAffinity]


class ContainerExtendedResourceRequest(TypedDict, total=False):
    containerName: ReadOnly[str]
    resourceName: ReadOnly[str]
    requestName: ReadOnly[str]


class ContainerState(TypedDict, total=False):
    waiting: ReadOnly[ContainerStateWaiting]
    running: ReadOnly[ContainerStateRunning]
    terminated: ReadOnly[ContainerStateTerminated]


class ContainerStateRunning(TypedDict, total=False):
    startedAt: ReadOnly[str]


class ContainerStateTerminated(TypedDict, total=False):
    exitCode: ReadOnly[int]
    signal: ReadOnly[int]
    reason: ReadOnly[str]
    message: ReadOnly[str]
    startedAt: ReadOnly[str]
    finishedAt: ReadOnly[str]
    containerID: ReadOnly[str]


class ContainerStateWaiting(TypedDict, total=False):
    reason: ReadOnly[str]
    message: ReadOnly[str]


class ContainerStatus(TypedDict, total=False):
    name: ReadOnly[str]
    state: ReadOnly[ContainerState]
    lastState: ReadOnly[ContainerState]
    ready: ReadOnly[bool]
    restartCount: ReadOnly[int]
    image: ReadOnly[str]
    imageID: ReadOnly[str]
    containerID: ReadOnly[str]
    started: ReadOnly[bool]
    allocatedResources: ReadOnly[Mapping[str, str]]
    resources: ReadOnly[ResourceRequirements]
    volumeMounts: ReadOnly[Sequence[VolumeMountStatus]]
    user: ReadOnly[ContainerUser]
    allocatedResourcesStatus: ReadOnly[Sequence[ResourceStatus]]
    stopSignal: ReadOnly[str]


class ContainerUser(TypedDict, total=False):
    linux: ReadOnly[LinuxContainerUser]


class EvictionResponder(TypedDict, total=False):
    name: ReadOnly[str]
    priority: ReadOnly[int]


class HostAlias(TypedDict, total=False):
    ip: ReadOnly[str]
    hostnames: ReadOnly[Sequence[str]]


class HostIP(TypedDict, total=False):
    ip: ReadOnly[str]


class ImageVolumeStatus(TypedDict, total=False):
    imageRef: ReadOnly[str]


class LinuxContainerUser(TypedDict, total=False):
    uid: ReadOnly[int]
    gid: ReadOnly[int]
    supplementalGroups: ReadOnly[Sequence[int]]


class NodeAffinity(TypedDict, total=False):
    requiredDuringSchedulingIgnoredDuringExecution: ReadOnly[NodeSelector]
    preferredDuringSchedulingIgnoredDuringExecution: ReadOnly[Sequence[PreferredSchedulingTerm]]


class NodeAllocatableMappedResources(TypedDict, total=False):
    name: ReadOnly[str]
    quantity: ReadOnly[str]


class NodeAllocatableOverheadResources(TypedDict, total=False):
    name: ReadOnly[str]
    perPod: ReadOnly[str]
    perContainer: ReadOnly[str]


class NodeAllocatableResourceClaimStatus(TypedDict, total=False):
    resourceClaimName: ReadOnly[str]
    containers: ReadOnly[Sequence[str]]
    mapping: ReadOnly[Sequence[NodeAllocatableMappedResources]]
    overhead: ReadOnly[Sequence[NodeAllocatableOverheadResources]]


class Pod(TypedDict, total=False):
    kind: ReadOnly[str]
    apiVersion: ReadOnly[str]
    metadata: ReadOnly[ObjectMeta]
    spec: ReadOnly[PodSpec]
    status: ReadOnly[PodStatus]


class PodAffinity(TypedDict, total=False):
    requiredDuringSchedulingIgnoredDuringExecution: ReadOnly[Sequence[PodAffinityTerm]]
    preferredDuringSchedulingIgnoredDuringExecution: ReadOnly[Sequence[WeightedPodAffinityTerm]]


class PodAffinityTerm(TypedDict, total=False):
    labelSelector: ReadOnly[LabelSelector]
    namespaces: ReadOnly[Sequence[str]]
    topologyKey: ReadOnly[str]
    namespaceSelector: ReadOnly[LabelSelector]
    matchLabelKeys: ReadOnly[Sequence[str]]
    mismatchLabelKeys: ReadOnly[Sequence[str]]


class PodAntiAffinity(TypedDict, total=False):
    requiredDuringSchedulingIgnoredDuringExecution: ReadOnly[Sequence[PodAffinityTerm]]
    preferredDuringSchedulingIgnoredDuringExecution: ReadOnly[Sequence[WeightedPodAffinityTerm]]


class PodCondition(TypedDict, total=False):
    type: ReadOnly[str]
    observedGeneration: ReadOnly[int]
    status: ReadOnly[str]
    lastProbeTime: ReadOnly[str]
    lastTransitionTime: ReadOnly[str]
    reason: ReadOnly[str]
    message: ReadOnly[str]


class PodDNSConfig(TypedDict, total=False):
    nameservers: ReadOnly[Sequence[str]]
    searches: ReadOnly[Sequence[str]]
    options: ReadOnly[Sequence[PodDNSConfigOption]]


class PodDNSConfigOption(TypedDict, total=False):
    name: ReadOnly[str]
    value: ReadOnly[str]


class PodExtendedResourceClaimStatus(TypedDict, total=False):
    requestMappings: ReadOnly[Sequence[ContainerExtendedResourceRequest]]
    resourceClaimName: ReadOnly[str]


class PodIP(TypedDict, total=False):
    ip: ReadOnly[str]


class PodOS(TypedDict, total=False):
    name: ReadOnly[str]


class PodReadinessGate(TypedDict, total=False):
    conditionType: ReadOnly[str]


class PodResourceClaim(TypedDict, total=False):
    name: ReadOnly[str]
    resourceClaimName: ReadOnly[str]
    resourceClaimTemplateName: ReadOnly[str]


class PodResourceClaimStatus(TypedDict, total=False):
    name: ReadOnly[str]
    resourceClaimName: ReadOnly[str]


class PodSchedulingGate(TypedDict, total=False):
    name: ReadOnly[str]


class PodSchedulingGroup(TypedDict, total=False):
    podGroupName: ReadOnly[str]


class PodSecurityContext(TypedDict, total=False):
    seLinuxOptions: ReadOnly[SELinuxOptions]
    windowsOptions: ReadOnly[WindowsSecurityContextOptions]
    runAsUser: ReadOnly[int]
    runAsGroup: ReadOnly[int]
    runAsNonRoot: ReadOnly[bool]
    supplementalGroups: ReadOnly[Sequence[int]]
    supplementalGroupsPolicy: ReadOnly[str]
    fsGroup: ReadOnly[int]
    sysctls: ReadOnly[Sequence[Sysctl]]
    fsGroupChangePolicy: ReadOnly[str]
    seccompProfile: ReadOnly[SeccompProfile]
    appArmorProfile: ReadOnly[AppArmorProfile]
    seLinuxChangePolicy: ReadOnly[str]


class PodSpec(TypedDict, total=False):
    volumes: ReadOnly[Sequence[Volume]]
    initContainers: ReadOnly[Sequence[Container]]
    containers: ReadOnly[Sequence[Container]]
    ephemeralContainers: ReadOnly[Sequence[EphemeralContainer]]
    restartPolicy: ReadOnly[str]
    terminationGracePeriodSeconds: ReadOnly[int]
    activeDeadlineSeconds: ReadOnly[int]
    dnsPolicy: ReadOnly[str]
    nodeSelector: ReadOnly[Mapping[str, str]]
    serviceAccountName: ReadOnly[str]
    serviceAccount: ReadOnly[str]
    automountServiceAccountToken: ReadOnly[bool]
    nodeName: ReadOnly[str]
    hostNetwork: ReadOnly[bool]
    hostPID: ReadOnly[bool]
    hostIPC: ReadOnly[bool]
    shareProcessNamespace: ReadOnly[bool]
    securityContext: ReadOnly[PodSecurityContext]
    imagePullSecrets: ReadOnly[Sequence[LocalObjectReference]]
    hostname: ReadOnly[str]
    subdomain: ReadOnly[str]
    affinity: ReadOnly[Affinity]
    schedulerName: ReadOnly[str]
    tolerations: ReadOnly[Sequence[Toleration]]
    hostAliases: ReadOnly[Sequence[HostAlias]]
    priorityClassName: ReadOnly[str]
    priority: ReadOnly[int]
    dnsConfig: ReadOnly[PodDNSConfig]
    readinessGates: ReadOnly[Sequence[PodReadinessGate]]
    runtimeClassName: ReadOnly[str]
    enableServiceLinks: ReadOnly[bool]
    preemptionPolicy: ReadOnly[str]
    overhead: ReadOnly[Mapping[str, str]]
    topologySpreadConstraints: ReadOnly[Sequence[TopologySpreadConstraint]]
    setHostnameAsFQDN: ReadOnly[bool]
    os: ReadOnly[PodOS]
    hostUsers: ReadOnly[bool]
    schedulingGates: ReadOnly[Sequence[PodSchedulingGate]]
    resourceClaims: ReadOnly[Sequence[PodResourceClaim]]
    resources: ReadOnly[ResourceRequirements]
    hostnameOverride: ReadOnly[str]
    schedulingGroup: ReadOnly[PodSchedulingGroup]
    evictionResponders: ReadOnly[Sequence[EvictionResponder]]


class PodStatus(TypedDict, total=False):
    observedGeneration: ReadOnly[int]
    phase: ReadOnly[str]
    conditions: ReadOnly[Sequence[PodCondition]]
    message: ReadOnly[str]
    reason: ReadOnly[str]
    nominatedNodeName: ReadOnly[str]
    hostIP: ReadOnly[str]
    hostIPs: ReadOnly[Sequence[HostIP]]
    podIP: ReadOnly[str]
    podIPs: ReadOnly[Sequence[PodIP]]
    startTime: ReadOnly[str]
    initContainerStatuses: ReadOnly[Sequence[ContainerStatus]]
    containerStatuses: ReadOnly[Sequence[ContainerStatus]]
    qosClass: ReadOnly[str]
    ephemeralContainerStatuses: ReadOnly[Sequence[ContainerStatus]]
    resize: ReadOnly[str]
    resourceClaimStatuses: ReadOnly[Sequence[PodResourceClaimStatus]]
    extendedResourceClaimStatus: ReadOnly[PodExtendedResourceClaimStatus]
    allocatedResources: ReadOnly[Mapping[str, str]]
    resources: ReadOnly[ResourceRequirements]
    nodeAllocatableResourceClaimStatuses: ReadOnly[Sequence[NodeAllocatableResourceClaimStatus]]
    volumeHealth: ReadOnly[Sequence[PodVolumeHealth]]


class PodTemplateSpec(TypedDict, total=False):
    metadata: ReadOnly[ObjectMeta]
    spec: ReadOnly[PodSpec]


class PodVolumeHealth(TypedDict, total=False):
    name: ReadOnly[str]
    healthConditions: ReadOnly[Sequence[VolumeHealthCondition]]
    lastTransitionTime: ReadOnly[str]


class PreferredSchedulingTerm(TypedDict, total=False):
    weight: ReadOnly[int]
    preference: ReadOnly[NodeSelectorTerm]


class ResourceHealth(TypedDict, total=False):
    resourceID: ReadOnly[str]
    health: ReadOnly[str]
    message: ReadOnly[str]


class ResourceStatus(TypedDict, total=False):
    name: ReadOnly[str]
    resources: ReadOnly[Sequence[ResourceHealth]]


class Sysctl(TypedDict, total=False):
    name: ReadOnly[str]
    value: ReadOnly[str]


class Toleration(TypedDict, total=False):
    key: ReadOnly[str]
    operator: ReadOnly[str]
    value: ReadOnly[str]
    effect: ReadOnly[str]
    tolerationSeconds: ReadOnly[int]


class TopologySpreadConstraint(TypedDict, total=False):
    maxSkew: ReadOnly[int]
    topologyKey: ReadOnly[str]
    whenUnsatisfiable: ReadOnly[str]
    labelSelector: ReadOnly[LabelSelector]
    minDomains: ReadOnly[int]
    nodeAffinityPolicy: ReadOnly[str]
    nodeTaintsPolicy: ReadOnly[str]
    matchLabelKeys: ReadOnly[Sequence[str]]


class VolumeHealthCondition(TypedDict, total=False):
    status: ReadOnly[str]
    reason: ReadOnly[str]
    message: ReadOnly[str]


class VolumeMountStatus(TypedDict, total=False):
    name: ReadOnly[str]
    mountPath: ReadOnly[str]
    readOnly: ReadOnly[bool]
    recursiveReadOnly: ReadOnly[str]
    volumeStatus: ReadOnly[VolumeStatus]


class VolumeStatus(TypedDict, total=False):
    image: ReadOnly[ImageVolumeStatus]


class WeightedPodAffinityTerm(TypedDict, total=False):
    weight: ReadOnly[int]
    podAffinityTerm: ReadOnly[PodAffinityTerm]
