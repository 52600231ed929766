"""MutatingAdmissionPolicy: expressions that mutate a write."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from setpoint.kinds.admissionregistration.conditions import validate_expression
from setpoint.kinds.admissionregistration.policies import PolicyStrategy, param_kind
from setpoint.kinds.admissionregistration.rules import REINVOCATION_POLICIES, one_of
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.expressions import Purpose, Usage
from setpoint.kinds.strategy import Column, Obj
from setpoint.meta.field import Errors, invalid, not_supported, required

_PATCHES = {
    "ApplyConfiguration": ("applyConfiguration", Purpose.APPLY_CONFIGURATION),
    "JSONPatch": ("jsonPatch", Purpose.JSON_PATCH),
}


def _count(obj: Obj, now: datetime) -> int:
    return len(obj["spec"].get("mutations") or ())


class MutatingAdmissionPolicyStrategy(PolicyStrategy):
    mutating = True
    columns = (
        NAME,
        Column("Mutations", _count, type="integer", description="Number of changes the policy makes."),
        Column("ParamKind", param_kind, description="Kind of the objects that give the policy its parameters."),
        AGE,
    )

    def validate_body(self, obj: Obj, old: dict[str, Any], usage: Usage, errs: Errors) -> None:
        spec = obj["spec"]
        mutations = spec.get("mutations") or ()
        stored = {
            (mutation.get("applyConfiguration") or {}).get("expression", "") for mutation in old.get("mutations") or ()
        }
        if not mutations:
            errs.append(required("spec.mutations", "mutations must contain at least one item"))
        for i, mutation in enumerate(mutations):
            _validate_mutation(mutation, usage, stored, f"spec.mutations[{i}]", errs)
        one_of(spec.get("reinvocationPolicy"), REINVOCATION_POLICIES, "spec.reinvocationPolicy", errs)


def _validate_mutation(mutation: dict[str, Any], usage: Usage, stored: set[str], path: str, errs: Errors) -> None:
    kind = mutation.get("patchType", "")
    if not kind:
        errs.append(required(f"{path}.patchType"))
        return
    if kind not in _PATCHES:
        errs.append(not_supported(f"{path}.patchType", kind, sorted(_PATCHES)))
        return
    for other, (name, purpose) in sorted(_PATCHES.items(), key=lambda item: item[0] != kind):
        patch, at = mutation.get(name), f"{path}.{name}"
        if other != kind:
            if patch is not None:
                errs.append(invalid(at, f"{{{name}}}", f"must not be specified when patchType is {kind}"))
        elif patch is None:
            errs.append(required(at, f"must be specified when patchType is {kind}"))
        elif not (expression := patch.get("expression", "").strip()):
            errs.append(required(f"{at}.expression"))
        else:
            use = replace(usage, purpose=purpose, stored=patch["expression"] in stored)
            validate_expression(expression, expression, use, f"{at}.expression", errs)


STRATEGY = MutatingAdmissionPolicyStrategy()
