"""Objects that every cluster has from its start: namespaces, priority classes, APIServices, and the default priority
levels and flow schemas.
"""

from __future__ import annotations

from datetime import datetime

from setpoint.meta.conditions import new_condition
from setpoint.meta.objects import Obj

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_CLASSES = (
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
)
AUTO_MANAGED = "kube-aggregator.kubernetes.io/automanaged"
"""Label with `onstart` for built-in groups, `true` for those of custom resources, which come and go."""
API_VERSION = "flowcontrol.apiserver.k8s.io/v1"
AUTO_UPDATE = "apf.kubernetes.io/autoupdate-spec"
"""Annotation of objects whose spec the server updates to its defaults."""
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


def namespaces() -> list[Obj]:
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in SYSTEM_NAMESPACES]


def priority_classes() -> list[Obj]:
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        for name, value, description in _CLASSES
    ]


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
    message = "Local APIServices are always available"
    return {"conditions": [new_condition("Available", "True", "Local", message, now)]}


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
    if exists:
        condition = new_condition("Dangling", "False", "Found", f"{what} and it exists", now)
    else:
        condition = new_condition("Dangling", "True", "NotFound", f"{what} but there is no such object", now)
    return {"conditions": [condition]}
