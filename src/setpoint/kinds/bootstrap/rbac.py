"""The default RBAC policy, as objects. Each call returns new ones, which callers may modify."""

from __future__ import annotations

from collections.abc import Iterable

from setpoint.kinds.bootstrap.cluster_roles import CLUSTER_ROLES
from setpoint.kinds.bootstrap.controller_roles import CONTROLLER_ROLES
from setpoint.kinds.bootstrap.policy_rules import READ, events, rule
from setpoint.meta.objects import Obj

GROUP = "rbac.authorization.k8s.io"
AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"
"""Annotation of objects from which the server restores missing rules; `false` disables this."""
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
AGGREGATE_TO_VIEW = _AGGREGATE + "view"
"""Label of ClusterRoles whose rules the roles view, edit and admin have too."""
_CONTROLLER = "system:controller:"
_LEADER_LOCKING = "system::leader-locking-"
_SYSTEM, _PUBLIC = "kube-system", "kube-public"

# The rules of an aggregated role are those of all roles with its label; a controller fills them in.
_AGGREGATED = ("admin", "edit", "view")
_AGGREGATED_INTO = {
    "edit": "admin",
    "view": "edit",
    "system:aggregate-to-admin": "admin",
    "system:aggregate-to-edit": "edit",
    "system:aggregate-to-view": "view",
}


def _group(name: str) -> Obj:
    return {"kind": "Group", "apiGroup": GROUP, "name": name}


def _user(name: str) -> Obj:
    return {"kind": "User", "apiGroup": GROUP, "name": name}


def _account(name: str) -> Obj:
    return {"kind": "ServiceAccount", "name": name, "namespace": _SYSTEM}


_AUTHENTICATED = _group("system:authenticated")
_ALL_ACCOUNTS = _group("system:serviceaccounts")
_MANAGER, _SCHEDULER = _user("system:kube-controller-manager"), _user("system:kube-scheduler")

_CLUSTER_BINDINGS: dict[str, tuple[Obj, ...]] = {
    "cluster-admin": (_group("system:masters"),),
    "system:monitoring": (_group("system:monitoring"),),
    "system:discovery": (_AUTHENTICATED,),
    "system:basic-user": (_AUTHENTICATED,),
    "system:public-info-viewer": (_AUTHENTICATED, _group("system:unauthenticated")),
    "system:node-proxier": (_user("system:kube-proxy"),),
    "system:kube-controller-manager": (_MANAGER,),
    "system:kube-dns": (_account("kube-dns"),),
    "system:kube-scheduler": (_SCHEDULER,),
    "system:volume-scheduler": (_SCHEDULER,),
    "system:node": (),  # Nodes are authorized by the Node authorizer, not by a role.
    "system:service-account-issuer-discovery": (_ALL_ACCOUNTS,),
    "system:cluster-trust-bundle-discovery": (_ALL_ACCOUNTS,),
}

_LEASES = (
    rule("create get list update watch", "coordination.k8s.io", "leases"),
    rule("create get list update watch", "coordination.k8s.io", "leasecandidates"),
)
_ROLES: tuple[tuple[str, str, tuple[Obj, ...]], ...] = (
    (
        _SYSTEM,
        "extension-apiserver-authentication-reader",
        (rule(READ, "core", "configmaps", "extension-apiserver-authentication"),),
    ),
    (_SYSTEM, _CONTROLLER + "bootstrap-signer", (rule(READ, "core", "secrets"),)),
    (_SYSTEM, _CONTROLLER + "cloud-provider", (rule("create get list watch", "core", "configmaps"),)),
    (_SYSTEM, _CONTROLLER + "token-cleaner", (rule("delete get list watch", "core", "secrets"), events())),
    (_SYSTEM, _LEADER_LOCKING + "kube-controller-manager", _LEASES),
    (_SYSTEM, _LEADER_LOCKING + "kube-scheduler", _LEASES),
    (
        _PUBLIC,
        _CONTROLLER + "bootstrap-signer",
        (rule(READ, "core", "configmaps"), rule("update", "core", "configmaps", "cluster-info"), events()),
    ),
)

_BINDINGS: tuple[tuple[str, str, str, tuple[Obj, ...]], ...] = (
    (
        _SYSTEM,
        "system::extension-apiserver-authentication-reader",
        "extension-apiserver-authentication-reader",
        (_MANAGER, _SCHEDULER),
    ),
    (
        _SYSTEM,
        _LEADER_LOCKING + "kube-controller-manager",
        "",
        (_MANAGER, _account("kube-controller-manager"), _account("leader-election-controller")),
    ),
    (_SYSTEM, _LEADER_LOCKING + "kube-scheduler", "", (_SCHEDULER, _account("kube-scheduler"))),
    (_SYSTEM, _CONTROLLER + "bootstrap-signer", "", (_account("bootstrap-signer"),)),
    (_SYSTEM, _CONTROLLER + "cloud-provider", "", (_account("cloud-provider"),)),
    (_SYSTEM, _CONTROLLER + "token-cleaner", "", (_account("token-cleaner"),)),
    (_PUBLIC, _CONTROLLER + "bootstrap-signer", "", (_account("bootstrap-signer"),)),
)


def _object(kind: str, name: str, namespace: str = "") -> Obj:
    metadata: Obj = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    metadata["labels"] = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    metadata["annotations"] = {AUTO_UPDATE: "true"}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}


def _copies(rules: Iterable[Obj]) -> list[Obj]:
    """Copy rules, whose values are lists of strings."""
    return [{name: [*values] for name, values in rule.items()} for rule in rules]


def _cluster_role(name: str, rules: Iterable[Obj]) -> Obj:
    role = _object("ClusterRole", name)
    if name in _AGGREGATED_INTO:
        role["metadata"]["labels"][_AGGREGATE + _AGGREGATED_INTO[name]] = "true"
    if name in _AGGREGATED:
        role["rules"] = None
        role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {_AGGREGATE + name: "true"}}]}
    else:
        role["rules"] = _copies(rules)
    return role


def _binding(kind: str, name: str, role: Obj, subjects: Iterable[Obj], namespace: str = "") -> Obj:
    binding = _object(kind, name, namespace)
    if subjects:
        binding["subjects"] = [{**each} for each in subjects]
    binding["roleRef"] = {"apiGroup": GROUP, **role}
    return binding


def cluster_roles() -> list[Obj]:
    return [
        *(_cluster_role(name, ()) for name in _AGGREGATED),
        *(_cluster_role(name, rules) for name, rules in CLUSTER_ROLES.items()),
        *(_cluster_role(_CONTROLLER + name, rules) for name, rules in CONTROLLER_ROLES.items()),
    ]


def cluster_role_bindings() -> list[Obj]:
    bound = dict(_CLUSTER_BINDINGS)
    bound.update((_CONTROLLER + name, (_account(name),)) for name in CONTROLLER_ROLES)
    return [
        _binding("ClusterRoleBinding", name, {"kind": "ClusterRole", "name": name}, subjects)
        for name, subjects in bound.items()
    ]


def roles() -> list[Obj]:
    return [{**_object("Role", name, namespace), "rules": _copies(rules)} for namespace, name, rules in _ROLES]


def role_bindings() -> list[Obj]:
    return [
        _binding("RoleBinding", name, {"kind": "Role", "name": role or name}, subjects, namespace)
        for namespace, name, role, subjects in _BINDINGS
    ]
