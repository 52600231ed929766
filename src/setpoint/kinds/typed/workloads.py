"""Deployment, ReplicaSet and Job.

Generated from the field tables by `tools/make_typed_kinds.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing_extensions import ReadOnly

    from setpoint.kinds.typed.metadata import LabelSelector, ObjectMeta
    from setpoint.kinds.typed.pod import PodTemplateSpec


class Deployment(TypedDict, total=False):
    kind: ReadOnly[str]
    apiVersion: ReadOnly[str]
    metadata: ReadOnly[ObjectMeta]
    spec: ReadOnly[DeploymentSpec]
    status: ReadOnly[DeploymentStatus]


class DeploymentCondition(TypedDict, total=False):
    type: ReadOnly[str]
    status: ReadOnly[str]
    lastUpdateTime: ReadOnly[str]
    lastTransitionTime: ReadOnly[str]
    reason: ReadOnly[str]
    message: ReadOnly[str]


class DeploymentSpec(TypedDict, total=False):
    replicas: ReadOnly[int]
    selector: ReadOnly[LabelSelector]
    template: ReadOnly[PodTemplateSpec]
    strategy: ReadOnly[DeploymentStrategy]
    minReadySeconds: ReadOnly[int]
    revisionHistoryLimit: ReadOnly[int]
    paused: ReadOnly[bool]
    progressDeadlineSeconds: ReadOnly[int]


class DeploymentStatus(TypedDict, total=False):
    observedGeneration: ReadOnly[int]
    replicas: ReadOnly[int]
    updatedReplicas: ReadOnly[int]
    readyReplicas: ReadOnly[int]
    availableReplicas: ReadOnly[int]
    unavailableReplicas: ReadOnly[int]
    terminatingReplicas: ReadOnly[int]
    conditions: ReadOnly[Sequence[DeploymentCondition]]
    collisionCount: ReadOnly[int]


class DeploymentStrategy(TypedDict, total=False):
    type: ReadOnly[str]
    rollingUpdate: ReadOnly[RollingUpdateDeployment]


class Job(TypedDict, total=False):
    kind: ReadOnly[str]
    apiVersion: ReadOnly[str]
    metadata: ReadOnly[ObjectMeta]
    spec: ReadOnly[JobSpec]
    status: ReadOnly[JobStatus]


class JobCondition(TypedDict, total=False):
    type: ReadOnly[str]
    status: ReadOnly[str]
    lastProbeTime: ReadOnly[str]
    lastTransitionTime: ReadOnly[str]
    reason: ReadOnly[str]
    message: ReadOnly[str]


class JobSchedulingConfiguration(TypedDict, total=False):
    schedulingPolicy: ReadOnly[WorkloadPodGroupSchedulingPolicy]
    schedulingConstraints: ReadOnly[WorkloadPodGroupSchedulingConstraints]
    disruptionMode: ReadOnly[WorkloadPodGroupDisruptionMode]
    resourceClaims: ReadOnly[Sequence[WorkloadPodGroupResourceClaim]]


class JobSpec(TypedDict, total=False):
    parallelism: ReadOnly[int]
    completions: ReadOnly[int]
    activeDeadlineSeconds: ReadOnly[int]
    podFailurePolicy: ReadOnly[PodFailurePolicy]
    successPolicy: ReadOnly[SuccessPolicy]
    backoffLimit: ReadOnly[int]
    backoffLimitPerIndex: ReadOnly[int]
    maxFailedIndexes: ReadOnly[int]
    selector: ReadOnly[LabelSelector]
    manualSelector: ReadOnly[bool]
    template: ReadOnly[PodTemplateSpec]
    ttlSecondsAfterFinished: ReadOnly[int]
    completionMode: ReadOnly[str]
    suspend: ReadOnly[bool]
    podReplacementPolicy: ReadOnly[str]
    managedBy: ReadOnly[str]
    scheduling: ReadOnly[JobSchedulingConfiguration]


class JobStatus(TypedDict, total=False):
    conditions: ReadOnly[Sequence[JobCondition]]
    startTime: ReadOnly[str]
    completionTime: ReadOnly[str]
    active: ReadOnly[int]
    succeeded: ReadOnly[int]
    failed: ReadOnly[int]
    terminating: ReadOnly[int]
    completedIndexes: ReadOnly[str]
    failedIndexes: ReadOnly[str]
    uncountedTerminatedPods: ReadOnly[UncountedTerminatedPods]
    ready: ReadOnly[int]


class PodFailurePolicy(TypedDict, total=False):
    rules: ReadOnly[Sequence[PodFailurePolicyRule]]


class PodFailurePolicyOnExitCodesRequirement(TypedDict, total=False):
    containerName: ReadOnly[str]
    operator: ReadOnly[str]
    values: ReadOnly[Sequence[int]]


class PodFailurePolicyOnPodConditionsPattern(TypedDict, total=False):
    type: ReadOnly[str]
    status: ReadOnly[str]


class PodFailurePolicyRule(TypedDict, total=False):
    action: ReadOnly[str]
    onExitCodes: ReadOnly[PodFailurePolicyOnExitCodesRequirement]
    onPodConditions: ReadOnly[Sequence[PodFailurePolicyOnPodConditionsPattern]]


class ReplicaSet(TypedDict, total=False):
    kind: ReadOnly[str]
    apiVersion: ReadOnly[str]
    metadata: ReadOnly[ObjectMeta]
    spec: ReadOnly[ReplicaSetSpec]
    status: ReadOnly[ReplicaSetStatus]


class ReplicaSetCondition(TypedDict, total=False):
    type: ReadOnly[str]
    status: ReadOnly[str]
    lastTransitionTime: ReadOnly[str]
    reason: ReadOnly[str]
    message: ReadOnly[str]


class ReplicaSetSpec(TypedDict, total=False):
    replicas: ReadOnly[int]
    minReadySeconds: ReadOnly[int]
    selector: ReadOnly[LabelSelector]
    template: ReadOnly[PodTemplateSpec]


class ReplicaSetStatus(TypedDict, total=False):
    replicas: ReadOnly[int]
    fullyLabeledReplicas: ReadOnly[int]
    readyReplicas: ReadOnly[int]
    availableReplicas: ReadOnly[int]
    terminatingReplicas: ReadOnly[int]
    observedGeneration: ReadOnly[int]
    conditions: ReadOnly[Sequence[ReplicaSetCondition]]


class RollingUpdateDeployment(TypedDict, total=False):
    maxUnavailable: ReadOnly[int | str]
    maxSurge: ReadOnly[int | str]


class SuccessPolicy(TypedDict, total=False):
    rules: ReadOnly[Sequence[SuccessPolicyRule]]


class SuccessPolicyRule(TypedDict, total=False):
    succeededIndexes: ReadOnly[str]
    succeededCount: ReadOnly[int]


class TopologyConstraint(TypedDict, total=False):
    key: ReadOnly[str]


class UncountedTerminatedPods(TypedDict, total=False):
    succeeded: ReadOnly[Sequence[str]]
    failed: ReadOnly[Sequence[str]]


class WorkloadPodGroupAllDisruptionMode(TypedDict, total=False):
    pass


class WorkloadPodGroupBasicSchedulingPolicy(TypedDict, total=False):
    pass


class WorkloadPodGroupDisruptionMode(TypedDict, total=False):
    single: ReadOnly[WorkloadPodGroupSingleDisruptionMode]
    all: ReadOnly[WorkloadPodGroupAllDisruptionMode]


class WorkloadPodGroupGangSchedulingPolicy(TypedDict, total=False):
    minCount: ReadOnly[int]


class WorkloadPodGroupResourceClaim(TypedDict, total=False):
    name: ReadOnly[str]
    resourceClaimName: ReadOnly[str]
    resourceClaimTemplateName: ReadOnly[str]


class WorkloadPodGroupSchedulingConstraints(TypedDict, total=False):
    topology: ReadOnly[Sequence[TopologyConstraint]]


class WorkloadPodGroupSchedulingPolicy(TypedDict, total=False):
    basic: ReadOnly[WorkloadPodGroupBasicSchedulingPolicy]
    gang: ReadOnly[WorkloadPodGroupGangSchedulingPolicy]


class WorkloadPodGroupSingleDisruptionMode(TypedDict, total=False):
    pass
