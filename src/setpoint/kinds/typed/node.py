"""Node.

Generated from the field tables by `tools/make_typed_kinds.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing_extensions import ReadOnly

    from setpoint.kinds.typed.metadata import ObjectMeta


class AttachedVolume(TypedDict, total=False):
    name: ReadOnly[str]
    devicePath: ReadOnly[str]


class ConfigMapNodeConfigSource(TypedDict, total=False):
    namespace: ReadOnly[str]
    name: ReadOnly[str]
    uid: ReadOnly[str]
    resourceVersion: ReadOnly[str]
    kubeletConfigKey: ReadOnly[str]


class ContainerImage(TypedDict, total=False):
    names: ReadOnly[Sequence[str]]
    sizeBytes: ReadOnly[int]


class DaemonEndpoint(TypedDict, total=False):
    Port: ReadOnly[int]


class Node(TypedDict, total=False):
    kind: ReadOnly[str]
    apiVersion: ReadOnly[str]
    metadata: ReadOnly[ObjectMeta]
    spec: ReadOnly[NodeSpec]
    status: ReadOnly[NodeStatus]


class NodeAddress(TypedDict, total=False):
    type: ReadOnly[str]
    address: ReadOnly[str]


class NodeCondition(TypedDict, total=False):
    type: ReadOnly[str]
    status: ReadOnly[str]
    lastHeartbeatTime: ReadOnly[str]
    lastTransitionTime: ReadOnly[str]
    reason: ReadOnly[str]
    message: ReadOnly[str]


class NodeConfigSource(TypedDict, total=False):
    configMap: ReadOnly[ConfigMapNodeConfigSource]


class NodeConfigStatus(TypedDict, total=False):
    assigned: ReadOnly[NodeConfigSource]
    active: ReadOnly[NodeConfigSource]
    lastKnownGood: ReadOnly[NodeConfigSource]
    error: ReadOnly[str]


class NodeDaemonEndpoints(TypedDict, total=False):
    kubeletEndpoint: ReadOnly[DaemonEndpoint]


class NodeFeatures(TypedDict, total=False):
    supplementalGroupsPolicy: ReadOnly[bool]


class NodePodPreemptionPolicy(TypedDict, total=False):
    disableResizePreemption: ReadOnly[Sequence[str]]


class NodeRuntimeHandler(TypedDict, total=False):
    name: ReadOnly[str]
    features: ReadOnly[NodeRuntimeHandlerFeatures]


class NodeRuntimeHandlerFeatures(TypedDict, total=False):
    recursiveReadOnlyMounts: ReadOnly[bool]
    userNamespaces: ReadOnly[bool]


class NodeSpec(TypedDict, total=False):
    podCIDR: ReadOnly[str]
    podCIDRs: ReadOnly[Sequence[str]]
    providerID: ReadOnly[str]
    unschedulable: ReadOnly[bool]
    taints: ReadOnly[Sequence[Taint]]
    configSource: ReadOnly[NodeConfigSource]
    externalID: ReadOnly[str]
    podPreemptionPolicy: ReadOnly[NodePodPreemptionPolicy]


class NodeStatus(TypedDict, total=False):
    capacity: ReadOnly[Mapping[str, str]]
    allocatable: ReadOnly[Mapping[str, str]]
    phase: ReadOnly[str]
    conditions: ReadOnly[Sequence[NodeCondition]]
    addresses: ReadOnly[Sequence[NodeAddress]]
    daemonEndpoints: ReadOnly[NodeDaemonEndpoints]
    nodeInfo: ReadOnly[NodeSystemInfo]
    images: ReadOnly[Sequence[ContainerImage]]
    volumesInUse: ReadOnly[Sequence[str]]
    volumesAttached: ReadOnly[Sequence[AttachedVolume]]
    config: ReadOnly[NodeConfigStatus]
    runtimeHandlers: ReadOnly[Sequence[NodeRuntimeHandler]]
    features: ReadOnly[NodeFeatures]
    declaredFeatures: ReadOnly[Sequence[str]]


class NodeSwapStatus(TypedDict, total=False):
    capacity: ReadOnly[int]


class NodeSystemInfo(TypedDict, total=False):
    machineID: ReadOnly[str]
    systemUUID: ReadOnly[str]
    bootID: ReadOnly[str]
    kernelVersion: ReadOnly[str]
    osImage: ReadOnly[str]
    containerRuntimeVersion: ReadOnly[str]
    kubeletVersion: ReadOnly[str]
    kubeProxyVersion: ReadOnly[str]
    operatingSystem: ReadOnly[str]
    architecture: ReadOnly[str]
    swap: ReadOnly[NodeSwapStatus]
    runningInUserNamespace: ReadOnly[bool]


class Taint(TypedDict, total=False):
    key: ReadOnly[str]
    value: ReadOnly[str]
    effect: ReadOnly[str]
    timeAdded: ReadOnly[str]
