"""The output of `describe`: an object with everything that belongs to it, as kubectl prints it, byte for byte.

`describe` imports the module of the kind on use. It reads what else it needs (events, Pods, endpoints) through the
`DescribeContext`; what the user may not read is left out or reported, except where kubectl fails too: then ApiError is
raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module

from setpoint.cli.describe.context import DescribeContext
from setpoint.kinds.catalog import Resource
from setpoint.meta.objects import Obj

__all__ = ["DescribeContext", "describe"]

_MODULES = {
    "autoscaling": {("autoscaling", "HorizontalPodAutoscaler"): "horizontalpodautoscaler"},
    "certificates": {("certificates.k8s.io", "CertificateSigningRequest"): "certificatesigningrequest"},
    "claims": {("", "PersistentVolumeClaim"): "persistentvolumeclaim"},
    "configuration": {
        ("", "ConfigMap"): "configmap",
        ("", "Secret"): "secret",
        ("", "ServiceAccount"): "serviceaccount",
    },
    "networking": {
        ("", "Service"): "service",
        ("", "Endpoints"): "endpoints",
        ("discovery.k8s.io", "EndpointSlice"): "endpointslice",
        ("networking.k8s.io", "Ingress"): "ingress",
        ("networking.k8s.io", "IngressClass"): "ingressclass",
        ("networking.k8s.io", "NetworkPolicy"): "networkpolicy",
        ("networking.k8s.io", "ServiceCIDR"): "servicecidr",
        ("networking.k8s.io", "IPAddress"): "ipaddress",
    },
    "nodes": {("", "Node"): "node"},
    "pods": {("", "Pod"): "pod"},
    "policy": {
        ("", "Namespace"): "namespace",
        ("", "ResourceQuota"): "resourcequota",
        ("", "LimitRange"): "limitrange",
        ("policy", "PodDisruptionBudget"): "poddisruptionbudget",
        ("scheduling.k8s.io", "PriorityClass"): "priorityclass",
    },
    "rbac": {
        ("rbac.authorization.k8s.io", "Role"): "role",
        ("rbac.authorization.k8s.io", "ClusterRole"): "role",
        ("rbac.authorization.k8s.io", "RoleBinding"): "binding",
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"): "binding",
    },
    "storage": {
        ("", "PersistentVolume"): "persistentvolume",
        ("storage.k8s.io", "StorageClass"): "storageclass",
        ("storage.k8s.io", "VolumeAttributesClass"): "volumeattributesclass",
        ("storage.k8s.io", "CSINode"): "csinode",
    },
    "workloads": {
        ("apps", "Deployment"): "deployment",
        ("apps", "ReplicaSet"): "replicaset",
        ("apps", "DaemonSet"): "daemonset",
        ("apps", "StatefulSet"): "statefulset",
        ("", "ReplicationController"): "replicationcontroller",
        ("batch", "Job"): "job",
        ("batch", "CronJob"): "cronjob",
    },
}
_DESCRIBED = {kind: (module, name) for module, kinds in _MODULES.items() for kind, name in kinds.items()}


async def describe(obj: Obj, resource: Resource, ctx: DescribeContext) -> str:
    """Return the description with a newline at its end. Raise ApiError."""
    module, name = _DESCRIBED.get((resource.group, resource.kind), ("generic", "generic"))
    write: Callable[[Obj, DescribeContext], Awaitable[str]] = getattr(import_module(f"{__name__}.{module}"), name)
    # Items of a list may have no apiVersion and kind.
    return await write({"apiVersion": resource.api_version, "kind": resource.kind, **obj}, ctx)
