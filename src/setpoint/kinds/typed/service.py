"""Service.

Generated from the field tables by `tools/make_typed_kinds.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing_extensions import ReadOnly

    from setpoint.kinds.typed.metadata import ObjectMeta


class ClientIPConfig(TypedDict, total=False):
    timeoutSeconds: ReadOnly[int]


class Condition(TypedDict, total=False):
    type: ReadOnly[str]
    status: ReadOnly[str]
    observedGeneration: ReadOnly[int]
    lastTransitionTime: ReadOnly[str]
    reason: ReadOnly[str]
    message: ReadOnly[str]


class LoadBalancerIngress(TypedDict, total=False):
    ip: ReadOnly[str]
    hostname: ReadOnly[str]
    ipMode: ReadOnly[str]
    ports: ReadOnly[Sequence[PortStatus]]


class LoadBalancerStatus(TypedDict, total=False):
    ingress: ReadOnly[Sequence[LoadBalancerIngress]]


class PortStatus(TypedDict, total=False):
    port: ReadOnly[int]
    protocol: ReadOnly[str]
    error: ReadOnly[str]


class Service(TypedDict, total=False):
    kind: ReadOnly[str]
    apiVersion: ReadOnly[str]
    metadata: ReadOnly[ObjectMeta]
    spec: ReadOnly[ServiceSpec]
    status: ReadOnly[ServiceStatus]


class ServicePort(TypedDict, total=False):
    name: ReadOnly[str]
    protocol: ReadOnly[str]
    appProtocol: ReadOnly[str]
    port: ReadOnly[int]
    targetPort: ReadOnly[int | str]
    nodePort: ReadOnly[int]


class ServiceSpec(TypedDict, total=False):
    ports: ReadOnly[Sequence[ServicePort]]
    selector: ReadOnly[Mapping[str, str]]
    clusterIP: ReadOnly[str]
    clusterIPs: ReadOnly[Sequence[str]]
    type: ReadOnly[str]
    externalIPs: ReadOnly[Sequence[str]]
    sessionAffinity: ReadOnly[str]
    loadBalancerIP: ReadOnly[str]
    loadBalancerSourceRanges: ReadOnly[Sequence[str]]
    externalName: ReadOnly[str]
    externalTrafficPolicy: ReadOnly[str]
    healthCheckNodePort: ReadOnly[int]
    publishNotReadyAddresses: ReadOnly[bool]
    sessionAffinityConfig: ReadOnly[SessionAffinityConfig]
    ipFamilies: ReadOnly[Sequence[str]]
    ipFamilyPolicy: ReadOnly[str]
    allocateLoadBalancerNodePorts: ReadOnly[bool]
    loadBalancerClass: ReadOnly[str]
    internalTrafficPolicy: ReadOnly[str]
    trafficDistribution: ReadOnly[str]


class ServiceStatus(TypedDict, total=False):
    loadBalancer: ReadOnly[LoadBalancerStatus]
    conditions: ReadOnly[Sequence[Condition]]


class SessionAffinityConfig(TypedDict, total=False):
    clientIP: ReadOnly[ClientIPConfig]
