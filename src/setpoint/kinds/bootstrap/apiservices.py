"""An APIService for every group version that this server serves itself."""

from __future__ import annotations

from datetime import datetime

from setpoint.kinds.strategy import Obj
from setpoint.meta.times import format_time

AUTO_MANAGED = "kube-aggregator.kubernetes.io/automanaged"
"""Label with `onstart` for built-in groups, `true` for those of custom resources, which come and go."""

# group, version, priority of the group, priority of the version in it: discovery lists higher ones first
_SERVED = (
    ("", "v1", 18000, 1),
    ("apps", "v1", 17800, 15),
    ("events.k8s.io", "v1", 17750, 15),
    ("authentication.k8s.io", "v1", 17700, 15),
    ("authorization.k8s.io", "v1", 17600, 15),
    ("autoscaling", "v1", 17500, 15),
    ("autoscaling", "v2", 17500, 30),
    ("batch", "v1", 17400, 15),
    ("certificates.k8s.io", "v1", 17300, 15),
    ("networking.k8s.io", "v1", 17200, 15),
    ("policy", "v1", 17100, 15),
    ("rbac.authorization.k8s.io", "v1", 17000, 15),
    ("storage.k8s.io", "v1", 16800, 15),
    ("admissionregistration.k8s.io", "v1", 16700, 15),
    ("apiextensions.k8s.io", "v1", 16700, 15),
    ("scheduling.k8s.io", "v1", 16600, 15),
    ("coordination.k8s.io", "v1", 16500, 15),
    ("node.k8s.io", "v1", 16300, 15),
    ("discovery.k8s.io", "v1", 16200, 15),
    ("resource.k8s.io", "v1", 16200, 21),
    ("flowcontrol.apiserver.k8s.io", "v1", 16100, 21),
    ("storagemigration.k8s.io", "v1", 15800, 15),
)


def _service(group: str, version: str, group_priority: int, version_priority: int, managed: str) -> Obj:
    spec: Obj = {"group": group} if group else {}
    spec.update(version=version, groupPriorityMinimum=group_priority, versionPriority=version_priority)
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{version}.{group}", "labels": {AUTO_MANAGED: managed}},
        "spec": spec,
    }


def api_services() -> list[Obj]:
    return [_service(*served, "onstart") for served in _SERVED]


def custom_api_service(group: str, version: str) -> Obj:
    """Return the APIService of a group version of custom resources."""
    return _service(group, version, 1000, 100, "true")


def local_status(now: datetime) -> Obj:
    """Return the status of every APIService that no other server stands behind."""
    condition = {
        "type": "Available",
        "status": "True",
        "lastTransitionTime": format_time(now),
        "reason": "Local",
        "message": "Local APIServices are always available",
    }
    return {"conditions": [condition]}
