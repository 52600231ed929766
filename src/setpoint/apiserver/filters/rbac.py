"""Role-based access: what the roles bound to a user, its groups or its service account allow.

Reads roles and bindings from the watch cache, so a change counts from the moment it is stored. Decisions are not
remembered; the work per request is bounded by the bindings that name one of the user's subjects, found by index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from setpoint.apiserver.admission.plugin import Reader
from setpoint.apiserver.filters.authorize import Access, Decision
from setpoint.kinds.strategy import UserInfo

GROUP = "rbac.authorization.k8s.io"
Rule = Mapping[str, Any]
Obj = Mapping[str, Any]
_SERVICE_ACCOUNT = "system:serviceaccount:"


class RbacAuthorizer:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def authorize(self, access: Access) -> tuple[Decision, str]:
        for rule in self.rules(access.user, access.namespace):
            if allows(rule, access):
                return Decision.ALLOW, ""
        return Decision.NO_OPINION, ""

    def rules(self, user: UserInfo, namespace: str) -> Iterator[Rule]:
        """Every rule that holds for the user in the namespace, cluster-wide ones first."""
        for binding in self._reader.list(GROUP, "clusterrolebindings"):
            if _binds(binding, user, ""):
                yield from self._role(binding, "")
        if namespace:
            for binding in self._reader.list(GROUP, "rolebindings", namespace):
                if _binds(binding, user, namespace):
                    yield from self._role(binding, namespace)

    def _role(self, binding: Obj, namespace: str) -> Sequence[Rule]:
        ref = binding["roleRef"]
        plural, where = ("clusterroles", "") if ref.get("kind") == "ClusterRole" else ("roles", namespace)
        role = self._reader.get(GROUP, plural, where, ref.get("name", ""))
        return (role.get("rules") or ()) if role is not None else ()


def _binds(binding: Obj, user: UserInfo, namespace: str) -> bool:
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name", "")
        if kind == "User":
            if name == user.name:
                return True
        elif kind == "Group":
            if name in user.groups:
                return True
        elif kind == "ServiceAccount" and user.name.startswith(_SERVICE_ACCOUNT):
            where = subject.get("namespace") or namespace
            if user.name == f"{_SERVICE_ACCOUNT}{where}:{name}":
                return True
    return False


def allows(rule: Rule, access: Access) -> bool:
    if access.resource:
        return (
            _has(rule.get("verbs"), access.verb)
            and _has(rule.get("apiGroups"), access.group)
            and _covers_resource(rule.get("resources") or (), access)
            and (not rule.get("resourceNames") or access.name in rule["resourceNames"])
        )
    return _has(rule.get("verbs"), access.verb) and _covers_path(rule.get("nonResourceURLs") or (), access.path)


def _has(allowed: Iterable[str] | None, wanted: str) -> bool:
    return allowed is not None and ("*" in allowed or wanted in allowed)


def _covers_resource(resources: Iterable[str], access: Access) -> bool:
    wanted = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    for resource in resources:
        if resource in ("*", wanted):
            return True
        if access.subresource and resource == f"*/{access.subresource}":
            return True
    return False


def _covers_path(patterns: Iterable[str], path: str) -> bool:
    for pattern in patterns:
        if pattern in ("*", path):
            return True
        if pattern.endswith("*") and path.startswith(pattern.rstrip("*")):
            return True
    return False
