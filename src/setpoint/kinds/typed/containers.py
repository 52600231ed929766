"""The containers of a Pod.

Generated from the field tables by `tools/make_typed_kinds.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing_extensions import ReadOnly

    from setpoint.kinds.typed.volumes import ObjectFieldSelector, ResourceFieldSelector


class AppArmorProfile(TypedDict, total=False):
    type: ReadOnly[str]
    localhostProfile: ReadOnly[str]


class Capabilities(TypedDict, total=False):
    add: ReadOnly[Sequence[str]]
    drop: ReadOnly[Sequence[str]]


class ConfigMapEnvSource(TypedDict, total=False):
    name: ReadOnly[str]
    optional: ReadOnly[bool]


class ConfigMapKeySelector(TypedDict, total=False):
    name: ReadOnly[str]
    key: ReadOnly[str]
    optional: ReadOnly[bool]


class Container(TypedDict, total=False):
    name: ReadOnly[str]
    image: ReadOnly[str]
    command: ReadOnly[Sequence[str]]
    args: ReadOnly[Sequence[str]]
    workingDir: ReadOnly[str]
    ports: ReadOnly[Sequence[ContainerPort]]
    envFrom: ReadOnly[Sequence[EnvFromSource]]
    env: ReadOnly[Sequence[EnvVar]]
    resources: ReadOnly[ResourceRequirements]
    resizePolicy: ReadOnly[Sequence[ContainerResizePolicy]]
    restartPolicy: ReadOnly[str]
    restartPolicyRules: ReadOnly[Sequence[ContainerRestartRule]]
    volumeMounts: ReadOnly[Sequence[VolumeMount]]
    volumeDevices: ReadOnly[Sequence[VolumeDevice]]
    livenessProbe: ReadOnly[Probe]
    readinessProbe: ReadOnly[Probe]
    startupProbe: ReadOnly[Probe]
    lifecycle: ReadOnly[Lifecycle]
    terminationMessagePath: ReadOnly[str]
    terminationMessagePolicy: ReadOnly[str]
    imagePullPolicy: ReadOnly[str]
    securityContext: ReadOnly[SecurityContext]
    stdin: ReadOnly[bool]
    stdinOnce: ReadOnly[bool]
    tty: ReadOnly[bool]


class ContainerPort(TypedDict, total=False):
    name: ReadOnly[str]
    hostPort: ReadOnly[int]
    containerPort: ReadOnly[int]
    protocol: ReadOnly[str]
    hostIP: ReadOnly[str]


class ContainerResizePolicy(TypedDict, total=False):
    resourceName: ReadOnly[str]
    restartPolicy: ReadOnly[str]


class ContainerRestartRule(TypedDict, total=False):
    action: ReadOnly[str]
    exitCodes: ReadOnly[ContainerRestartRuleOnExitCodes]


class ContainerRestartRuleOnExitCodes(TypedDict, total=False):
    operator: ReadOnly[str]
    values: ReadOnly[Sequence[int]]


class EnvFromSource(TypedDict, total=False):
    prefix: ReadOnly[str]
    configMapRef: ReadOnly[ConfigMapEnvSource]
    secretRef: ReadOnly[SecretEnvSource]


class EnvVar(TypedDict, total=False):
    name: ReadOnly[str]
    value: ReadOnly[str]
    valueFrom: ReadOnly[EnvVarSource]


class EnvVarSource(TypedDict, total=False):
    fieldRef: ReadOnly[ObjectFieldSelector]
    resourceFieldRef: ReadOnly[ResourceFieldSelector]
    configMapKeyRef: ReadOnly[ConfigMapKeySelector]
    secretKeyRef: ReadOnly[SecretKeySelector]
    fileKeyRef: ReadOnly[FileKeySelector]


class EphemeralContainer(TypedDict, total=False):
    name: ReadOnly[str]
    image: ReadOnly[str]
    command: ReadOnly[Sequence[str]]
    args: ReadOnly[Sequence[str]]
    workingDir: ReadOnly[str]
    ports: ReadOnly[Sequence[ContainerPort]]
    envFrom: ReadOnly[Sequence[EnvFromSource]]
    env: ReadOnly[Sequence[EnvVar]]
    resources: ReadOnly[ResourceRequirements]
    resizePolicy: ReadOnly[Sequence[ContainerResizePolicy]]
    restartPolicy: ReadOnly[str]
    restartPolicyRules: ReadOnly[Sequence[ContainerRestartRule]]
    volumeMounts: ReadOnly[Sequence[VolumeMount]]
    volumeDevices: ReadOnly[Sequence[VolumeDevice]]
    livenessProbe: ReadOnly[Probe]
    readinessProbe: ReadOnly[Probe]
    startupProbe: ReadOnly[Probe]
    lifecycle: ReadOnly[Lifecycle]
    terminationMessagePath: ReadOnly[str]
    terminationMessagePolicy: ReadOnly[str]
    imagePullPolicy: ReadOnly[str]
    securityContext: ReadOnly[SecurityContext]
    stdin: ReadOnly[bool]
    stdinOnce: ReadOnly[bool]
    tty: ReadOnly[bool]
    targetContainerName: ReadOnly[str]


class ExecAction(TypedDict, total=False):
    command: ReadOnly[Sequence[str]]


class FileKeySelector(TypedDict, total=False):
    volumeName: ReadOnly[str]
    path: ReadOnly[str]
    key: ReadOnly[str]
    optional: ReadOnly[bool]


class GRPCAction(TypedDict, total=False):
    port: ReadOnly[int]
    service: ReadOnly[str]
    mode: ReadOnly[str]


class HTTPGetAction(TypedDict, total=False):
    path: ReadOnly[str]
    port: ReadOnly[int | str]
    host: ReadOnly[str]
    scheme: ReadOnly[str]
    httpHeaders: ReadOnly[Sequence[HTTPHeader]]
    protocol: ReadOnly[str]


class HTTPHeader(TypedDict, total=False):
    name: ReadOnly[str]
    value: ReadOnly[str]


class Lifecycle(TypedDict, total=False):
    postStart: ReadOnly[LifecycleHandler]
    preStop: ReadOnly[LifecycleHandler]
    stopSignal: ReadOnly[str]


class LifecycleHandler(TypedDict, total=False):
    exec: ReadOnly[ExecAction]
    httpGet: ReadOnly[HTTPGetAction]
    tcpSocket: ReadOnly[TCPSocketAction]
    sleep: ReadOnly[SleepAction]


class Probe(TypedDict, total=False):
    exec: ReadOnly[ExecAction]
    httpGet: ReadOnly[HTTPGetAction]
    tcpSocket: ReadOnly[TCPSocketAction]
    grpc: ReadOnly[GRPCAction]
    initialDelaySeconds: ReadOnly[int]
    timeoutSeconds: ReadOnly[int]
    periodSeconds: ReadOnly[int]
    successThreshold: ReadOnly[int]
    failureThreshold: ReadOnly[int]
    terminationGracePeriodSeconds: ReadOnly[int]


class ResourceClaim(TypedDict, total=False):
    name: ReadOnly[str]
    request: ReadOnly[str]


class ResourceRequirements(TypedDict, total=False):
    limits: ReadOnly[Mapping[str, str]]
    requests: ReadOnly[Mapping[str, str]]
    claims: ReadOnly[Sequence[ResourceClaim]]


class SELinuxOptions(TypedDict, total=False):
    user: ReadOnly[str]
    role: ReadOnly[str]
    type: ReadOnly[str]
    level: ReadOnly[str]


class SeccompProfile(TypedDict, total=False):
    type: ReadOnly[str]
    localhostProfile: ReadOnly[str]


class SecretEnvSource(TypedDict, total=False):
    name: ReadOnly[str]
    optional: ReadOnly[bool]


class SecretKeySelector(TypedDict, total=False):
    name: ReadOnly[str]
    key: ReadOnly[str]
    optional: ReadOnly[bool]


class SecurityContext(TypedDict, total=False):
    capabilities: ReadOnly[Capabilities]
    privileged: ReadOnly[bool]
    seLinuxOptions: ReadOnly[SELinuxOptions]
    windowsOptions: ReadOnly[WindowsSecurityContextOptions]
    runAsUser: ReadOnly[int]
    runAsGroup: ReadOnly[int]
    runAsNonRoot: ReadOnly[bool]
    readOnlyRootFilesystem: ReadOnly[bool]
    allowPrivilegeEscalation: ReadOnly[bool]
    procMount: ReadOnly[str]
    seccompProfile: ReadOnly[SeccompProfile]
    appArmorProfile: ReadOnly[AppArmorProfile]


class SleepAction(TypedDict, total=False):
    seconds: ReadOnly[int]


class TCPSocketAction(TypedDict, total=False):
    port: ReadOnly[int | str]
    host: ReadOnly[str]


class VolumeDevice(TypedDict, total=False):
    name: ReadOnly[str]
    devicePath: ReadOnly[str]


class VolumeMount(TypedDict, total=False):
    name: ReadOnly[str]
    readOnly: ReadOnly[bool]
    recursiveReadOnly: ReadOnly[str]
    mountPath: ReadOnly[str]
    subPath: ReadOnly[str]
    mountPropagation: ReadOnly[str]
    subPathExpr: ReadOnly[str]
    bindMountOptions: ReadOnly[Sequence[str]]


class WindowsSecurityContextOptions(TypedDict, total=False):
    gmsaCredentialSpecName: ReadOnly[str]
    gmsaCredentialSpec: ReadOnly[str]
    runAsUserName: ReadOnly[str]
    hostProcess: ReadOnly[bool]
