"""Role-based access control: what the roles bound to a user, its groups or its service account allow.

A change of a role or binding takes effect as soon as it is in the watch cache. Bindings are indexed by subject. The
rules for a user and a kind of request are cached until any role or binding changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.filters.authorize import Access, Decision, Rule, Rules
from setpoint.apiserver.watch_cache import Change, ResourceCache, Watch
from setpoint.kinds.bootstrap.cluster_roles import OWN_IDENTITIES
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.goformat import aggregate, quote, quote_all
from setpoint.meta.objects import Obj

_PARTS = (
    ("apiGroups", "APIGroups"),
    ("resources", "Resources"),
    ("nonResourceURLs", "NonResourceURLs"),
    ("resourceNames", "ResourceNames"),
    ("verbs", "Verbs"),
)
GROUP = "rbac.authorization.k8s.io"
_SERVICE_ACCOUNT = "system:serviceaccount:"
_MAX_CACHED_ANSWERS = 8192
_MAX_CACHED_GRANTS = 2048
_CLUSTER_BINDINGS, _BINDINGS, _CLUSTER_ROLES, _ROLES = (
    f"{GROUP}/{plural}/" for plural in ("clusterrolebindings", "rolebindings", "clusterroles", "roles")
)


def covers_request(rule: Rule, access: Access) -> bool:
    """Return whether the rule allows this verb on this kind of resource or URL; `permits` checks names and paths."""
    if not _has(rule.get("verbs"), access.verb):
        return False
    if access.path is not None:
        return bool(rule.get("nonResourceURLs"))
    return _has(rule.get("apiGroups"), access.group) and _covers_resource(rule.get("resources") or (), access)


def permits(rule: Rule, access: Access) -> bool:
    """Return whether a rule that covers the request also allows its name or path."""
    if access.path is not None:
        return _covers_path(rule.get("nonResourceURLs") or (), access.path)
    names = rule.get("resourceNames")
    return not names or access.name in names


def _has(allowed: Sequence[str] | None, wanted: str) -> bool:
    return bool(allowed) and ("*" in allowed or wanted in allowed)  # type: ignore[operator]


def _covers_resource(resources: Sequence[str], access: Access) -> bool:
    if "*" in resources:
        return True
    if access.subresource:
        return f"{access.resource}/{access.subresource}" in resources or f"*/{access.subresource}" in resources
    return access.resource in resources


def _covers_path(patterns: Iterable[str], path: str) -> bool:
    for pattern in patterns:
        if pattern == path or (pattern.endswith("*") and path.startswith(pattern.rstrip("*"))):
            return True
    return False


# -- comparing ----------------------------------------------------------------------------------------------------


def uncovered(owner: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Return what `wanted` allows and `owner` does not, as rules of one verb on one resource each."""
    return [part for rule in wanted for part in _parts(rule) if not any(_covers(own, part) for own in owner)]


def _parts(rule: Rule) -> Iterable[Rule]:
    names = rule.get("resourceNames")
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in rule.get("verbs") or ():
                part = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
                if names:
                    yield from (part | {"resourceNames": [name]} for name in names)
                else:
                    yield part
    for url in rule.get("nonResourceURLs") or ():
        for verb in rule.get("verbs") or ():
            yield {"verbs": [verb], "nonResourceURLs": [url]}


def _covers(owner: Rule, part: Rule) -> bool:
    """Return whether `owner` allows `part`, which has one verb and one group, resource, name or path."""
    verbs = owner.get("verbs") or ()
    if part["verbs"][0] not in verbs and "*" not in verbs:
        return False
    urls = part.get("nonResourceURLs")
    if urls:
        return not owner.get("resourceNames") and _covers_path(owner.get("nonResourceURLs") or (), urls[0])
    groups, resources = owner.get("apiGroups") or (), owner.get("resources") or ()
    if part["apiGroups"][0] not in groups and "*" not in groups:
        return False
    resource = part["resources"][0]
    if resource not in resources and "*" not in resources:
        _, slash, subresource = resource.partition("/")
        if not slash or f"*/{subresource}" not in resources:
            return False
    names = owner.get("resourceNames")
    return not names or ("resourceNames" in part and part["resourceNames"][0] in names)


def compacted(rules: Iterable[Rule]) -> list[Rule]:
    """Merge rules for the same single resource into one with all their verbs."""
    whole: list[Rule] = []
    simple: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for rule in rules:
        names, groups, resources = (list(rule.get(key) or ()) for key in ("resourceNames", "apiGroups", "resources"))
        if rule.get("nonResourceURLs") or len(names) > 1 or len(groups) != 1 or len(resources) != 1:
            whole.append(rule)
        else:
            simple.setdefault((groups[0], resources[0], tuple(names)), []).extend(rule.get("verbs") or ())
    for (group, resource, named), verbs in simple.items():
        one = {"verbs": verbs, "apiGroups": [group], "resources": [resource]}
        whole.append(one | {"resourceNames": list(named)} if named else one)
    return whole


def described(rule: Rule) -> str:
    shown = (f"{title}:{quote_all(rule[key])}" for key, title in _PARTS if rule.get(key))
    return "{" + ", ".join(shown) + "}"


class Grant:
    """A role that a user holds by a binding."""

    def __init__(self, binding: Obj, scope: str, subjects: Collection[str], rules: list[Rule] | None) -> None:
        """`subjects` are those that stand for the user."""
        self.binding = binding
        self.scope = scope
        self.subjects = subjects
        self.rules = rules
        """The rules of the role; None if it does not exist."""

    @property
    def missing(self) -> str:
        """The error message for a role that does not exist."""
        role = self.binding["roleRef"]
        return f"{role.get('kind', '').lower()}.{GROUP} {quote(role.get('name', ''))} not found"

    @cached_property
    def source(self) -> str:
        """A description of the binding for the reason of a decision."""
        binding, scope, role = self.binding, self.scope, self.binding["roleRef"]
        by = next(subject for subject in binding["subjects"] if _subject(subject, scope) in self.subjects)
        shown, name = by["name"], binding["metadata"]["name"]
        if by["kind"] == "ServiceAccount":
            shown += "/" + (by.get("namespace") or scope)
        what = f"RoleBinding {quote(f'{name}/{scope}')}" if scope else f"ClusterRoleBinding {quote(name)}"
        return f"{what} of {role.get('kind', '')} {quote(role.get('name', ''))} to {by['kind']} {quote(shown)}"


_Key = tuple[str | tuple[str, ...], ...]


class _Answer(NamedTuple):
    """The rules that cover a kind of request for a user, and the reason if none of them permits it."""

    rules: tuple[tuple[Rule, str], ...]
    denial: str


class Policy:
    """All roles and bindings, updated from the watch caches. A subject is `U` or `G` and a name."""

    def __init__(self, caches: Mapping[str, ResourceCache]) -> None:
        self._caches = caches
        self._is_following = False
        self._bound: dict[str, dict[str, dict[str, Obj]]] = {}
        """Bindings by namespace (empty for cluster-wide ones), subject and key."""
        self.answers: dict[_Key, _Answer] = {}
        """Answers since the last change."""
        self._grants: dict[tuple[str, tuple[str, ...], str], list[Grant]] = {}
        """Grants by user, groups and namespace since the last change."""

    def grants(self, user: UserInfo, namespace: str) -> list[Grant]:
        """Return the user's roles: cluster-wide ones first, each sorted by the names of the bindings."""
        if not self._is_following and not self._follow():
            return []
        key = (user.name, user.groups, namespace)
        found = self._grants.get(key)
        if found is None:
            if len(self._grants) >= _MAX_CACHED_GRANTS:
                self._grants.clear()
            found = self._grants[key] = self._find_grants(user, namespace)
        return found

    def _find_grants(self, user: UserInfo, namespace: str) -> list[Grant]:
        found: list[Grant] = []
        subjects = [f"U{user.name}", *(f"G{group}" for group in user.groups)]
        for scope in ("", namespace) if namespace else ("",):
            bound = self._bound.get(scope)
            if not bound:
                continue
            bindings: dict[str, Obj] = {}
            for subject in subjects:
                bindings.update(bound.get(subject, ()))
            for name in sorted(bindings):
                binding = bindings[name]
                found.append(Grant(binding, scope, subjects, self.role(binding["roleRef"], scope)))
        return found

    def role(self, reference: Obj, namespace: str) -> list[Rule] | None:
        """Return the rules of the role that a binding in the namespace refers to, or None if it does not exist."""
        name = reference.get("name", "")
        if reference.get("kind") == "ClusterRole":
            entry = self._caches[_CLUSTER_ROLES].get(_CLUSTER_ROLES + name)
        else:
            entry = self._caches[_ROLES].get(f"{_ROLES}{namespace}/{name}")
        return (entry.obj.get("rules") or []) if entry is not None else None

    # -- following the caches -------------------------------------------------------------------------------------

    def _follow(self) -> bool:
        """Index and watch the bindings. Return False while the server is still starting."""
        prefixes = (_CLUSTER_ROLES, _ROLES, _CLUSTER_BINDINGS, _BINDINGS)
        if any(prefix not in self._caches for prefix in prefixes):
            return False
        for prefix in prefixes:
            cache = self._caches[prefix]
            if prefix in (_CLUSTER_BINDINGS, _BINDINGS):
                for entry in cache.scan():
                    self._index(None, entry.obj)
            cache.add(
                Watch.everything(
                    self._binding_changed if prefix in (_CLUSTER_BINDINGS, _BINDINGS) else self._role_changed
                )
            )
        self._is_following = True
        return True

    def _role_changed(self, kind: str, entry: Entry, change: Change) -> None:
        self.answers.clear()
        self._grants.clear()

    def _binding_changed(self, kind: str, entry: Entry, change: Change) -> None:
        self.answers.clear()
        self._grants.clear()
        before, now = change.before, change.now
        self._index(before.obj if before is not None else None, now.obj if now is not None else None)

    def _index(self, before: Obj | None, now: Obj | None) -> None:
        for binding, present in ((before, False), (now, True)):
            if binding is None:
                continue
            meta = binding["metadata"]
            scope, name = meta.get("namespace", ""), meta["name"]
            bound = self._bound.setdefault(scope, {})
            for subject in filter(None, (_subject(one, scope) for one in binding.get("subjects") or ())):
                if present:
                    bound.setdefault(subject, {})[name] = binding
                elif subject in bound:
                    bound[subject].pop(name, None)
                    if not bound[subject]:
                        del bound[subject]
            if not bound:
                del self._bound[scope]


def _subject(subject: Obj, scope: str) -> str:
    """Return the subject of the index, or "" if it is invalid."""
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "User":
        return f"U{name}"
    if kind == "Group":
        return f"G{name}"
    namespace = subject.get("namespace") or scope
    return f"U{_SERVICE_ACCOUNT}{namespace}:{name}" if kind == "ServiceAccount" and namespace else ""


class RbacAuthorizer:
    name = "rbac"

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def authorize(self, access: Access) -> tuple[Decision, str]:
        user = access.user
        key: _Key
        if access.path is None:
            _, verb, group, _, resource, subresource, namespace, *_ = access
            key = (user.name, user.groups, namespace, verb, group, resource, subresource)
        else:
            key = (user.name, user.groups, access.verb)
        answer = self._policy.answers.get(key) or self._compute(key, access)
        for rule, reason in answer.rules:
            if permits(rule, access):
                return Decision.ALLOW, reason
        return Decision.NO_OPINION, answer.denial

    def _compute(self, key: _Key, access: Access) -> _Answer:
        rules: list[tuple[Rule, str]] = []
        missing: list[str] = []
        for grant in self._policy.grants(access.user, access.namespace if access.path is None else ""):
            if grant.rules is None:
                missing.append(grant.missing)
                continue
            covering = [rule for rule in grant.rules if covers_request(rule, access)]
            if covering:
                reason = f"RBAC: allowed by {grant.source}"
                rules += ((rule, reason) for rule in covering)
        answer = _Answer(tuple(rules), f"RBAC: {aggregate(missing)}" if missing else "")
        answers = self._policy.answers
        if len(answers) >= _MAX_CACHED_ANSWERS:
            answers.clear()
        answers[key] = answer
        return answer

    def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        grants = self._policy.grants(user, namespace)
        missing = [grant.missing for grant in grants if grant.rules is None]
        return Rules([rule for grant in grants for rule in grant.rules or ()], missing)


class ComponentAuthorizer:
    """Authorizes Setpoint's own components, whose rights are in no role. It is always asked last."""

    name = "setpoint"

    def __init__(self) -> None:
        self._rules: dict[str, tuple[Rule, ...]] = dict(OWN_IDENTITIES)

    def grant(self, user: str, rules: Iterable[Rule]) -> None:
        """Set the rights of a component of this process."""
        self._rules[user] = tuple(rules)

    def authorize(self, access: Access) -> tuple[Decision, str]:
        for rule in self._rules.get(access.user.name, ()):
            if covers_request(rule, access) and permits(rule, access):
                return Decision.ALLOW, f"allowed to {access.user.name} itself"
        return Decision.NO_OPINION, ""

    def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        return Rules(list(self._rules.get(user.name, ())), [])
