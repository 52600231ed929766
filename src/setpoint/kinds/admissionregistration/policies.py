"""Rules that validating and mutating policies share: parameters, matching, variables."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import Any

from setpoint.kinds.admissionregistration.conditions import validate_expression, validate_match_conditions
from setpoint.kinds.admissionregistration.rules import (
    FAILURE_POLICIES,
    default_match_resources,
    one_of,
    validate_match_resources,
    validate_mutating_operations,
)  # fmt: skip
from setpoint.kinds.admissionregistration.static_names import static_name_warnings, validate_static_name
from setpoint.kinds.columns import UNSET
from setpoint.kinds.expressions import Purpose, Usage
from setpoint.kinds.strategy import Context, Obj, Strategy
from setpoint.meta.field import Errors, invalid, required
from setpoint.meta.names import dns1035_label, dns1123_subdomain

_IDENTIFIER = re.compile("[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
    "loop", "package", "namespace", "return", "var", "void", "while",
})  # fmt: skip


def param_kind(obj: Obj, now: datetime) -> str:
    kind = obj["spec"].get("paramKind")
    return UNSET if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"


def _validate_param_kind(kind: dict[str, Any], path: str, errs: Errors) -> None:
    api_version, name = kind.get("apiVersion", ""), kind.get("kind", "")
    if not api_version:
        errs.append(required(f"{path}.apiVersion"))
    elif api_version.count("/") > 1:
        errs.append(invalid(f"{path}.apiVersion", api_version, f"unexpected GroupVersion string: {api_version}"))
    else:
        group, _, version = api_version.rpartition("/")
        if group and (texts := dns1123_subdomain(group)):
            errs.append(invalid(f"{path}.apiVersion", group, ",".join(texts)))
        if not version:
            errs.append(invalid(f"{path}.apiVersion", api_version, "version must be specified"))
        elif texts := dns1035_label(version):
            errs.append(invalid(f"{path}.apiVersion", version, ",".join(texts)))
    if not name:
        errs.append(required(f"{path}.kind"))
    elif texts := dns1035_label(name.lower()):
        text = "may have mixed case, but should otherwise match: " + ",".join(texts)
        errs.append(invalid(f"{path}.kind", name, text))


class PolicyStrategy(Strategy):
    qualified_finalizers = False
    """A policy's spec up to its variables; what it then does is the subclass's."""

    allow_unconditional_update = False
    has_generation = True
    mutating = False

    def default(self, obj: Obj) -> None:
        spec = obj["spec"]
        spec.setdefault("failurePolicy", "Fail")
        default_match_resources(spec.get("matchConstraints"))

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        self._validate(obj, None, errs)
        validate_static_name(obj, errs, ctx)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self._validate(obj, old["spec"], errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        return []

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        return static_name_warnings(obj)

    def _validate(self, obj: Obj, old: dict[str, Any] | None, errs: Errors) -> None:
        spec = obj["spec"]
        one_of(spec.get("failurePolicy"), FAILURE_POLICIES, "spec.failurePolicy", errs)
        kind, constraints = spec.get("paramKind"), spec.get("matchConstraints")
        if kind is not None:
            _validate_param_kind(kind, "spec.paramKind", errs)
        path = "spec.matchConstraints"
        if constraints is None:
            errs.append(required(path))
        else:
            validate_match_resources(constraints, path, errs)
            if not constraints.get("resourceRules"):
                errs.append(required(f"{path}.resourceRules"))
            if self.mutating:
                validate_mutating_operations(constraints, path, errs)
        unchanged = old is not None and all(spec.get(key) == old.get(key) for key in ("paramKind", "matchConditions"))
        if not unchanged:
            stored = frozenset(c.get("expression", "") for c in (old or {}).get("matchConditions") or ())
            conditions = spec.get("matchConditions")
            validate_match_conditions(conditions, "spec.matchConditions", errs, kind is not None, stored)
        usage = Usage(Purpose.VARIABLE, has_params=kind is not None, has_authorizer=True)
        for i, variable in enumerate(spec.get("variables") or ()):
            usage = _validate_variable(variable, usage, f"spec.variables[{i}]", errs)
        self.validate_body(obj, old or {}, usage, errs)

    def validate_body(self, obj: Obj, old: dict[str, Any], usage: Usage, errs: Errors) -> None:
        """Validate the body; `usage` has the parameters and variables that this policy's expressions may use."""
        raise NotImplementedError


def _validate_variable(variable: dict[str, Any], usage: Usage, path: str, errs: Errors) -> Usage:
    """Validate a variable, which may use earlier ones."""
    name, expression = variable.get("name", ""), variable.get("expression", "")
    if not name.strip():
        errs.append(required(f"{path}.name", "name is not specified"))
    elif not _IDENTIFIER.fullmatch(name) or name in _RESERVED:
        errs.append(invalid(f"{path}.name", name, "must be a valid CEL identifier"))
    if not expression.strip():
        errs.append(required(f"{path}.expression", "expression is not specified"))
        return usage
    validate_expression(expression, expression, usage, f"{path}.expression", errs)
    return replace(usage, variables={**usage.variables, name: expression})
