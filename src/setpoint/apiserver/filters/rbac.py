"""Role-based access: what the roles bound to a user, its groups or its service account allow.

A change of a role or binding counts from the moment it is in the watch cache. Bindings are indexed by subject; what
was worked out for a user and a kind of request is remembered until any role or binding changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from setpoint.apiserver.filters.authorize import Access, Decision, Rule, Rules
from setpoint.apiserver.filters.rbac_rules import concerns, permits
from setpoint.apiserver.watch_cache import Change, Entry, Obj, ResourceCache, Watch
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.goformat import aggregate, quote
from setpoint.meta.selectors import EVERYTHING

GROUP = "rbac.authorization.k8s.io"
_SERVICE_ACCOUNT = "system:serviceaccount:"
_REMEMBERED = 8192
_CLUSTER_BINDINGS, _BINDINGS, _CLUSTER_ROLES, _ROLES = (
    f"{GROUP}/{plural}/" for plural in ("clusterrolebindings", "rolebindings", "clusterroles", "roles")
)


class Grant(NamedTuple):
    """A role that a user holds by a binding."""

    binding: Obj
    scope: str
    subjects: Collection[str]
    """Those that the user goes by."""
    rules: list[Rule] | None
    """None: there is no such role."""

    @property
    def missing(self) -> str:
        """What to say of a role that is not there; its name is quoted."""
        role = self.binding["roleRef"]
        return f"{role.get('kind', '').lower()}.{GROUP} {quote(role.get('name', ''))} not found"

    @property
    def source(self) -> str:
        binding, scope, role = self.binding, self.scope, self.binding["roleRef"]
        by = next(subject for subject in binding["subjects"] if _subject(subject, scope) in self.subjects)
        shown, name = by["name"], binding["metadata"]["name"]
        if by["kind"] == "ServiceAccount":
            shown += "/" + (by.get("namespace") or scope)
        what = f"RoleBinding {quote(f'{name}/{scope}')}" if scope else f"ClusterRoleBinding {quote(name)}"
        return f"{what} of {role.get('kind', '')} {quote(role.get('name', ''))} to {by['kind']} {quote(shown)}"


_Key = tuple[str | tuple[str, ...], ...]


class _Answer(NamedTuple):
    """What is known of one user and one kind of request: the rules to look at, and what to say if none permits."""

    rules: tuple[tuple[Rule, str], ...]
    denial: str


class Policy:
    """All roles and bindings, kept in step with the caches. `subject`: `U` or `G` and the name."""

    def __init__(self, caches: Mapping[str, ResourceCache]) -> None:
        self._caches = caches
        self._following = False
        self._bound: dict[str, dict[str, dict[str, Obj]]] = {}
        """Bindings by namespace (empty: the whole cluster), subject and key."""
        self.answers: dict[_Key, _Answer] = {}

    def grants(self, user: UserInfo, namespace: str) -> list[Grant]:
        """Cluster-wide ones first, each lot in the order of the bindings' names."""
        if not self._following and not self._follow():
            return []
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
        """The rules of the role that a binding in the namespace refers to; None: there is no such role."""
        name = reference.get("name", "")
        if reference.get("kind") == "ClusterRole":
            entry = self._caches[_CLUSTER_ROLES].get(_CLUSTER_ROLES + name)
        else:
            entry = self._caches[_ROLES].get(f"{_ROLES}{namespace}/{name}")
        return (entry.obj.get("rules") or []) if entry is not None else None

    # -- following the caches -------------------------------------------------------------------------------------

    def _follow(self) -> bool:
        """False while the server is still starting."""
        prefixes = (_CLUSTER_ROLES, _ROLES, _CLUSTER_BINDINGS, _BINDINGS)
        if any(prefix not in self._caches for prefix in prefixes):
            return False
        for prefix in prefixes:
            cache = self._caches[prefix]
            if prefix in (_CLUSTER_BINDINGS, _BINDINGS):
                for entry in cache.scan():
                    self._index(None, entry.obj)
            cache.add(
                Watch(
                    namespace="", name="", labels=EVERYTHING, fields=EVERYTHING, fields_of=_no_fields,
                    deliver=self._binding_changed if prefix in (_CLUSTER_BINDINGS, _BINDINGS) else self._role_changed,
                )
            )  # fmt: skip
        self._following = True
        return True

    def _role_changed(self, kind: str, entry: Entry, change: Change) -> None:
        self.answers.clear()

    def _binding_changed(self, kind: str, entry: Entry, change: Change) -> None:
        self.answers.clear()
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
    """Empty: nobody."""
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "User":
        return f"U{name}"
    if kind == "Group":
        return f"G{name}"
    namespace = subject.get("namespace") or scope
    return f"U{_SERVICE_ACCOUNT}{namespace}:{name}" if kind == "ServiceAccount" and namespace else ""


def _no_fields(_: Entry) -> dict[str, str]:
    return {}


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
        answer = self._policy.answers.get(key) or self._work_out(key, access)
        for rule, reason in answer.rules:
            if permits(rule, access):
                return Decision.ALLOW, reason
        return Decision.NO_OPINION, answer.denial

    def _work_out(self, key: _Key, access: Access) -> _Answer:
        rules: list[tuple[Rule, str]] = []
        missing: list[str] = []
        for grant in self._policy.grants(access.user, access.namespace if access.path is None else ""):
            if grant.rules is None:
                missing.append(grant.missing)
                continue
            fitting = [rule for rule in grant.rules if concerns(rule, access)]
            if fitting:
                reason = f"RBAC: allowed by {grant.source}"
                rules += ((rule, reason) for rule in fitting)
        answer = _Answer(tuple(rules), f"RBAC: {aggregate(missing)}" if missing else "")
        answers = self._policy.answers
        if len(answers) >= _REMEMBERED:
            answers.clear()
        answers[key] = answer
        return answer

    def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        grants = self._policy.grants(user, namespace)
        missing = [grant.missing for grant in grants if grant.rules is None]
        return Rules([rule for grant in grants for rule in grant.rules or ()], missing)
