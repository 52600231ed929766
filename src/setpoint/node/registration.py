"""The Node object and the Lease of a simulated node."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from setpoint.meta.times import format_micro, format_time

Obj = dict[str, Any]

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS, RENEW_EVERY, STATUS_EVERY = 40, 10.0, 300.0
_CAPACITY = {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}
_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def node_object(name: str, address: str, version: str, runtime: str, now: datetime) -> Obj:
    labels: dict[str, str] = {}
    for prefix in ("beta.kubernetes.io", "kubernetes.io"):
        labels |= {f"{prefix}/arch": "amd64", f"{prefix}/os": "linux"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}},
        "status": {
            "capacity": dict(_CAPACITY),
            "allocatable": dict(_CAPACITY),
            "conditions": conditions(now, {}),
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": "",
                "osImage": "Setpoint simulated node",
                "containerRuntimeVersion": f"simulated://{runtime}",
                "kubeletVersion": version,
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def conditions(now: datetime, current: dict[str, Obj]) -> list[Obj]:
    """All well; `current` by type says since when."""
    stamp = format_time(now)
    made = []
    for kind, status, reason, message in _CONDITIONS:
        before = current.get(kind) or {}
        since = before.get("lastTransitionTime") if before.get("status") == status else None
        made.append(
            {
                "type": kind,
                "status": status,
                "lastHeartbeatTime": stamp,
                "lastTransitionTime": since or stamp,
                "reason": reason,
                "message": message,
            }
        )
    return made


def lease_object(node: Obj, now: datetime) -> Obj:
    name = node["metadata"]["name"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": format_micro(now)},
    }
