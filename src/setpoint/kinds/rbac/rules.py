"""The parts that Roles and bindings are made of."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.strategy import Column, Context, Obj, Strategy
from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.names import dns1123_subdomain, path_segment
from setpoint.meta.objectmeta import IMMUTABLE

GROUP = "rbac.authorization.k8s.io"


class RbacStrategy(Strategy):
    """A strategy whose names may contain colons and upper case: anything that is valid in a URL path."""

    allow_create_on_update = True

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return path_segment(name)


def validate_rules(rules: list[dict[str, Any]], errs: Errors, *, namespaced: bool) -> None:
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


def validate_verbs(rules: list[dict[str, Any]], errs: Errors) -> None:
    """Validate verbs, which upstream declares at the type itself and therefore reports last."""
    errs.extend(required(f"rules[{i}].verbs") for i, rule in enumerate(rules) if not rule.get("verbs"))


class BindingStrategy(RbacStrategy):
    """A role given to subjects. The role of a binding never changes: who may edit a binding may not edit its power."""

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
                "APIGroup": role.get("apiGroup", ""), "Kind": role.get("kind", ""), "Name": role.get("name", ""),
            }  # fmt: skip
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

    def _validate_subject(self, subject: dict[str, Any], path: str, errs: Errors) -> None:
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
        Column("Role", lambda obj, now: _role(obj), description="The role that is given."),
        AGE,
        Column("Users", lambda obj, now: _subjects(obj, "User"), priority=1, description="Users it is given to."),
        Column("Groups", lambda obj, now: _subjects(obj, "Group"), priority=1, description="Groups it is given to."),
        Column("ServiceAccounts", lambda obj, now: _subjects(obj, "ServiceAccount"), priority=1,
               description="Service accounts it is given to."),
    )  # fmt: skip


def _role(obj: Obj) -> str:
    role = obj.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _subjects(obj: Obj, kind: str) -> str:
    found = [subject for subject in obj.get("subjects", ()) if subject.get("kind") == kind]
    if kind == "ServiceAccount":
        return ", ".join(f"{subject.get('namespace', '')}/{subject.get('name', '')}" for subject in found)
    return ", ".join(subject.get("name", "") for subject in found)
