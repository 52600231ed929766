"""Default flow control: priority levels, and the flow schemas that assign requests to them."""

from __future__ import annotations

from datetime import datetime

from setpoint.kinds.strategy import Obj
from setpoint.meta.times import format_time

API_VERSION = "flowcontrol.apiserver.k8s.io/v1"
AUTO_UPDATE = "apf.kubernetes.io/autoupdate-spec"
"""Annotation of objects whose spec the server keeps up to date."""
MANDATORY = frozenset({"exempt", "catch-all"})
"""Names of the objects, of both kinds, that must exist and cannot be changed."""

# nominal shares, lendable percent, (queues, hand size) or None to reject at once
_LEVELS: dict[str, tuple[int, int, tuple[int, int] | None]] = {
    "catch-all": (5, 0, None),
    "system": (30, 33, (64, 6)),
    "node-high": (40, 25, (64, 6)),
    "leader-election": (10, 0, (16, 4)),
    "workload-high": (40, 50, (128, 6)),
    "workload-low": (100, 90, (128, 6)),
    "global-default": (20, 50, (128, 6)),
}
_QUEUE_LENGTH = 50


def _object(kind: str, name: str, spec: Obj) -> Obj:
    metadata = {"name": name, "annotations": {AUTO_UPDATE: "true"}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _limited(shares: int, lendable: int, queuing: tuple[int, int] | None) -> Obj:
    response: Obj = {"type": "Reject"}
    if queuing is not None:
        queues, hand = queuing
        response = {
            "type": "Queue",
            "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": _QUEUE_LENGTH},
        }
    limited = {"nominalConcurrencyShares": shares, "limitResponse": response, "lendablePercent": lendable}
    return {"type": "Limited", "limited": limited}


def priority_levels() -> list[Obj]:
    exempt = {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}
    return [
        _object("PriorityLevelConfiguration", "exempt", exempt),
        *(_object("PriorityLevelConfiguration", name, _limited(*limits)) for name, limits in _LEVELS.items()),
    ]


def _groups(*names: str) -> list[Obj]:
    return [{"kind": "Group", "group": {"name": name}} for name in names]


def _users(*names: str) -> list[Obj]:
    return [{"kind": "User", "user": {"name": name}} for name in names]


def _system_accounts() -> list[Obj]:
    return [{"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}}]


def _resources(verbs: str, group: str, resources: str, cluster_scope: bool) -> Obj:
    matched: Obj = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    if cluster_scope:
        matched["clusterScope"] = True
    matched["namespaces"] = ["*"]
    return matched


def _urls(verbs: str, paths: str) -> Obj:
    return {"verbs": verbs.split(), "nonResourceURLs": paths.split()}


def _everything(subjects: list[Obj]) -> Obj:
    return {
        "subjects": subjects,
        "resourceRules": [_resources("*", "*", "*", cluster_scope=True)],
        "nonResourceRules": [_urls("*", "*")],
    }


def _schema(name: str, level: str, precedence: int, distinguish_by: str, rule: Obj) -> Obj:
    spec: Obj = {"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence}
    if distinguish_by:
        spec["distinguisherMethod"] = {"type": distinguish_by}
    spec["rules"] = [rule]
    return _object("FlowSchema", name, spec)


def flow_schemas() -> list[Obj]:
    leases = _resources("get create update", "coordination.k8s.io", "leases", cluster_scope=False)
    node_leases = _resources("*", "coordination.k8s.io", "leases", cluster_scope=False)
    nodes = _resources("*", "", "nodes nodes/status", cluster_scope=True)
    manager, scheduler = "system:kube-controller-manager", "system:kube-scheduler"
    everyone = ("system:unauthenticated", "system:authenticated")
    probes = {"subjects": _groups(*everyone), "nonResourceRules": [_urls("get", "/healthz /readyz /livez")]}
    leaders = {"subjects": _users(manager, scheduler) + _system_accounts(), "resourceRules": [leases]}
    node_reports = {"subjects": _groups("system:nodes"), "resourceRules": [nodes, node_leases]}
    return [
        _schema("exempt", "exempt", 1, "", _everything(_groups("system:masters"))),
        _schema("probes", "exempt", 2, "", probes),
        _schema("system-leader-election", "leader-election", 100, "ByUser", leaders),
        _schema("system-node-high", "node-high", 400, "ByUser", node_reports),
        _schema("system-nodes", "system", 500, "ByUser", _everything(_groups("system:nodes"))),
        _schema("kube-controller-manager", "workload-high", 800, "ByNamespace", _everything(_users(manager))),
        _schema("kube-scheduler", "workload-high", 800, "ByNamespace", _everything(_users(scheduler))),
        _schema("kube-system-service-accounts", "workload-high", 900, "ByNamespace", _everything(_system_accounts())),
        _schema("service-accounts", "workload-low", 9000, "ByUser", _everything(_groups("system:serviceaccounts"))),
        _schema("global-default", "global-default", 9900, "ByUser", _everything(_groups(*everyone))),
        _schema("catch-all", "catch-all", 10000, "ByUser", _everything(_groups(*everyone))),
    ]


def dangling_status(level: str, exists: bool, now: datetime) -> Obj:
    """Return the status of a FlowSchema: whether the level it points to is there."""
    what = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}"'
    condition = {
        "type": "Dangling",
        "status": "False" if exists else "True",
        "lastTransitionTime": format_time(now),
        "reason": "Found" if exists else "NotFound",
        "message": f"{what} and it exists" if exists else f"{what} but there is no such object",
    }
    return {"conditions": [condition]}
