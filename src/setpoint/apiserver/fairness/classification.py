"""Which flow a request belongs to: the flow schema that it falls under, and whom that tells apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from setpoint.apiserver.fairness.dealing import flow_hash
from setpoint.apiserver.fairness.levels import Level
from setpoint.apiserver.filters.authorize import Access
from setpoint.kinds.strategy import UserInfo

_REMEMBERED = 4096
_LONGEST_REMEMBERED = 1024
"""Characters of the texts by which a flow is remembered: clients choose them, and may choose others each time."""
Obj = Mapping[str, Any]
Headers = tuple[tuple[str, str], ...]


class Flow:
    """Requests that are fair to one another by taking turns, on one level."""

    __slots__ = ("dispatched", "hash", "headers", "level", "schema")

    def __init__(self, schema: str, level: Level, hash: int, headers: Headers) -> None:
        self.schema = schema
        self.level = level
        self.hash = hash
        self.headers = headers
        """Tell the client where it belongs."""
        self.dispatched = level.dispatched.setdefault(schema, [0])


class Classifier:
    def __init__(self, schemas: Iterable[Obj], levels: Mapping[str, Level], uids: Mapping[str, str]) -> None:
        """Schemas whose level does not exist are left out."""
        known = [each for each in schemas if _level(each) in levels]
        self._schemas = sorted(known, key=lambda s: (s["spec"].get("matchingPrecedence", 0), s["metadata"]["name"]))
        self._levels = levels
        self._uids = uids
        self._known: dict[tuple[Any, ...], Flow] = {}

    def flow(self, access: Access) -> Flow:
        user = access.user
        scope = access.namespace if access.resource else access.path
        key = (user.name, user.groups, access.verb, access.group, access.resource, access.subresource, scope)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._classify(access)
            if len(user.name) + len(access.group) + len(access.resource) + len(scope or "") <= _LONGEST_REMEMBERED:
                self._known[key] = found
        return found

    def _classify(self, access: Access) -> Flow:
        for schema in self._schemas:
            if any(_matches(rule, access) for rule in schema["spec"].get("rules") or ()):
                return self._under(schema, access)
        return self._under(self._schemas[-1], access)  # which is there for those whom nobody thought of

    def _under(self, schema: Obj, access: Access) -> Flow:
        name, level = schema["metadata"]["name"], _level(schema)
        by = (schema["spec"].get("distinguisherMethod") or {}).get("type", "")
        told_apart = access.user.name if by == "ByUser" else access.namespace if by == "ByNamespace" else ""
        headers = (
            ("X-Kubernetes-Pf-Flowschema-Uid", schema["metadata"].get("uid", "")),
            ("X-Kubernetes-Pf-Prioritylevel-Uid", self._uids.get(level, "")),
        )
        return Flow(name, self._levels[level], flow_hash(name, told_apart), headers)


def _level(schema: Obj) -> str:
    found: str = schema["spec"]["priorityLevelConfiguration"]["name"]
    return found


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
