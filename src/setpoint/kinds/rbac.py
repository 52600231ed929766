"""The kinds of rbac.authorization.k8s.io: Role, ClusterRole, RoleBinding, ClusterRoleBinding."""

from __future__ import annotations

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.names import dns1123_subdomain, path_segment
from setpoint.meta.objectmeta import IMMUTABLE, validate_label_selector
from setpoint.meta.objects import Obj

GROUP = "rbac.authorization.k8s.io"
_SELECTORS = "aggregationRule.clusterRoleSelectors"


class RbacStrategy(Strategy):
    """A strategy whose names may contain colons and upper case: anything that is valid in a URL path."""

    allow_create_on_update = True

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return path_segment(name)


def _validate_rules(rules: list[Obj], errs: Errors, *, namespaced: bool) -> None:
    for i, rule in enumerate(rules):
        path = f"rules[{i}]"
        urls = rule.get("nonResourceURLs")
        if urls:
            if namespaced:
                text = "namespaced rules cannot apply to non-resource URLs"
                errs.append(invalid(f"{path}.nonResourceURLs", urls, text))
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                text = "rules cannot apply to both regular resources and non-resource URLs"
                errs.append(invalid(f"{path}.nonResourceURLs", urls, text))
            continue
        if not rule.get("apiGroups"):
            errs.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            errs.append(required(f"{path}.resources", "resource rules must supply at least one resource"))


def _validate_verbs(rules: list[Obj], errs: Errors) -> None:
    """Validate verbs, which upstream declares at the type itself and therefore reports last."""
    errs.extend(required(f"rules[{i}].verbs") for i, rule in enumerate(rules) if not rule.get("verbs"))


class BindingStrategy(RbacStrategy):
    """A role granted to subjects. The role is immutable: who may edit a binding must not thereby grant another role."""

    role_kinds: tuple[str, ...]
    namespaced: bool

    def default(self, obj: Obj) -> None:
        role = obj.setdefault("roleRef", {})
        if not role.get("apiGroup"):
            role["apiGroup"] = GROUP
        for subject in obj.get("subjects", ()):
            if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
                subject["apiGroup"] = GROUP

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        self._validate(obj, errs)
        self._validate_declared(obj, errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        role, before = obj.get("roleRef") or {}, old.get("roleRef") or {}
        # A changed role is not validated further by declarative rules: the handwritten ones report instead.
        self._validate(obj, errs, needs_name=role != before)
        if role != before:
            shown = {
                "APIGroup": role.get("apiGroup", ""),
                "Kind": role.get("kind", ""),
                "Name": role.get("name", ""),
            }
            errs.append(invalid("roleRef", shown, IMMUTABLE))
        self._validate_declared(obj, errs, with_role=role == before)

    def _validate(self, obj: Obj, errs: Errors, *, needs_name: bool = False) -> None:
        role = obj.get("roleRef") or {}
        if role.get("apiGroup", "") != GROUP:
            errs.append(not_supported("roleRef.apiGroup", role.get("apiGroup", ""), (GROUP,)))
        if role.get("kind", "") not in self.role_kinds:
            errs.append(not_supported("roleRef.kind", role.get("kind", ""), self.role_kinds))
        name = role.get("name", "")
        if name:
            errs.extend(invalid("roleRef.name", name, text) for text in path_segment(name))
        elif needs_name:
            errs.append(required("roleRef.name"))
        for i, subject in enumerate(obj.get("subjects", ())):
            self._validate_subject(subject, f"subjects[{i}]", errs)

    def _validate_subject(self, subject: Obj, path: str, errs: Errors) -> None:
        kind, name, group = subject.get("kind", ""), subject.get("name", ""), subject.get("apiGroup", "")
        if kind == "ServiceAccount":
            if name:
                errs.extend(invalid(f"{path}.name", name, text) for text in dns1123_subdomain(name))
            if group:
                errs.append(not_supported(f"{path}.apiGroup", group, ("",)))
            if not self.namespaced and not subject.get("namespace"):
                errs.append(required(f"{path}.namespace"))
        elif kind in ("User", "Group"):
            if group != GROUP:
                errs.append(not_supported(f"{path}.apiGroup", group, (GROUP,)))
        else:
            errs.append(not_supported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group")))

    def _validate_declared(self, obj: Obj, errs: Errors, *, with_role: bool = True) -> None:
        for i, subject in enumerate(obj.get("subjects", ())):
            if not subject.get("name"):
                errs.append(required(f"subjects[{i}].name"))
        if with_role and not (obj.get("roleRef") or {}).get("name"):
            errs.append(required("roleRef.name"))

    columns = (
        NAME,
        Column("Role", lambda obj, now: _role_text(obj), description="The role that is given."),
        AGE,
        Column("Users", lambda obj, now: _subjects_text(obj, "User"), priority=1, description="Users it is given to."),
        Column(
            "Groups", lambda obj, now: _subjects_text(obj, "Group"), priority=1, description="Groups it is given to."
        ),
        Column(
            "ServiceAccounts",
            lambda obj, now: _subjects_text(obj, "ServiceAccount"),
            priority=1,
            description="Service accounts it is given to.",
        ),
    )


def _role_text(obj: Obj) -> str:
    role = obj.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _subjects_text(obj: Obj, kind: str) -> str:
    found = [subject for subject in obj.get("subjects", ()) if subject.get("kind") == kind]
    if kind == "ServiceAccount":
        return ", ".join(f"{subject.get('namespace', '')}/{subject.get('name', '')}" for subject in found)
    return ", ".join(subject.get("name", "") for subject in found)


class RoleStrategy(RbacStrategy):
    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        rules = obj.get("rules") or []
        _validate_rules(rules, errs, namespaced=True)
        _validate_verbs(rules, errs)


class ClusterRoleStrategy(RbacStrategy):
    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_cluster_role(obj, errs, False)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        already: Errors = []
        for selector in (old.get("aggregationRule") or {}).get("clusterRoleSelectors", ()):
            validate_label_selector(selector, "", already)
        _validate_cluster_role(obj, errs, bool(already))


def _validate_cluster_role(obj: Obj, errs: Errors, allow_invalid_values: bool) -> None:
    rules, aggregation = obj.get("rules") or [], obj.get("aggregationRule")
    _validate_rules(rules, errs, namespaced=False)
    if aggregation is not None:
        selectors = aggregation.get("clusterRoleSelectors", [])
        if not selectors:
            text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            errs.append(required(_SELECTORS, text))
        for i, selector in enumerate(selectors):
            path = f"{_SELECTORS}[{i}]"
            validate_label_selector(selector, path, errs, allow_invalid_values=allow_invalid_values)
            found: Errors = []
            validate_label_selector(selector, path, found)
            if found:
                errs.append(invalid(path, None, "invalid label selector."))
    _validate_verbs(rules, errs)


class RoleBindingStrategy(BindingStrategy):
    role_kinds = ("Role", "ClusterRole")
    namespaced = True


class ClusterRoleBindingStrategy(BindingStrategy):
    role_kinds = ("ClusterRole",)
    namespaced = False


STRATEGIES = {
    "Role": RoleStrategy(),
    "ClusterRole": ClusterRoleStrategy(),
    "RoleBinding": RoleBindingStrategy(),
    "ClusterRoleBinding": ClusterRoleBindingStrategy(),
}
