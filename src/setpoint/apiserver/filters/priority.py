"""Which flow schema and priority level a request falls under: told in two response headers, as upstream does.

The limits themselves are `inflight`'s: two numbers instead of fair queues (see docs/limits.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from setpoint.apiserver.admission.plugin import Reader
from setpoint.apiserver.filters.authorize import Access
from setpoint.kinds.strategy import UserInfo

_GROUP = "flowcontrol.apiserver.k8s.io"
_REMEMBERED = 4096
Headers = tuple[tuple[str, str], ...]


class FlowClassifier:
    def __init__(self, reader: Reader, revision: Callable[[], int]) -> None:
        """`revision` tells when flow schemas or priority levels may have changed."""
        self._reader = reader
        self._revision = revision
        self._seen = -1
        self._schemas: list[Mapping[str, Any]] = []
        self._levels: dict[str, str] = {}
        self._known: dict[tuple[Any, ...], Headers] = {}

    def headers(self, access: Access) -> Headers:
        revision = self._revision()
        if revision != self._seen:
            self._seen = revision
            self._refresh()
        user = access.user
        scope = access.namespace if access.resource else access.path
        key = (user.name, user.groups, access.verb, access.group, access.resource, access.subresource, scope)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[key] = self._classify(access)
        return found

    def _refresh(self) -> None:
        self._known.clear()
        schemas: list[Mapping[str, Any]] = list(self._reader.list(_GROUP, "flowschemas"))
        schemas.sort(key=lambda s: (s["spec"].get("matchingPrecedence", 0), s["metadata"]["name"]))
        self._schemas = schemas
        levels = self._reader.list(_GROUP, "prioritylevelconfigurations")
        self._levels = {level["metadata"]["name"]: level["metadata"]["uid"] for level in levels}

    def _classify(self, access: Access) -> Headers:
        for schema in self._schemas:
            if any(_matches(rule, access) for rule in schema["spec"].get("rules") or ()):
                level = self._levels.get(schema["spec"]["priorityLevelConfiguration"]["name"], "")
                return (
                    ("X-Kubernetes-Pf-Flowschema-Uid", schema["metadata"]["uid"]),
                    ("X-Kubernetes-Pf-Prioritylevel-Uid", level),
                )
        return ()


def _matches(rule: Mapping[str, Any], access: Access) -> bool:
    if not any(_is_subject(subject, access.user) for subject in rule.get("subjects") or ()):
        return False
    if access.resource:
        return any(_covers(item, access) for item in rule.get("resourceRules") or ())
    return any(
        _has(item.get("verbs"), access.verb) and _has_path(item.get("nonResourceURLs") or (), access.path or "")
        for item in rule.get("nonResourceRules") or ()
    )


def _is_subject(subject: Mapping[str, Any], user: UserInfo) -> bool:
    kind = subject.get("kind")
    if kind == "User":
        return subject["user"]["name"] in ("*", user.name)
    if kind == "Group":
        return subject["group"]["name"] == "*" or subject["group"]["name"] in user.groups
    account = subject["serviceAccount"]
    prefix = f"system:serviceaccount:{account['namespace']}:"
    return user.name.startswith(prefix) and account["name"] in ("*", user.name[len(prefix) :])


def _covers(rule: Mapping[str, Any], access: Access) -> bool:
    resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    if not (
        _has(rule.get("verbs"), access.verb)
        and _has(rule.get("apiGroups"), access.group)
        and _has(rule.get("resources"), resource)
    ):
        return False
    if not access.namespace:
        return bool(rule.get("clusterScope"))
    return _has(rule.get("namespaces"), access.namespace)


def _has(allowed: Iterable[str] | None, wanted: str) -> bool:
    return allowed is not None and ("*" in allowed or wanted in allowed)


def _has_path(patterns: Iterable[str], path: str) -> bool:
    return any(
        pattern in ("*", path) or (pattern.endswith("/*") and path.startswith(pattern[:-1])) for pattern in patterns
    )
