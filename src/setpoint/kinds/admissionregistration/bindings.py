"""MutatingAdmissionPolicyBinding and ValidatingAdmissionPolicyBinding: activate a policy with parameters, for a part of
what it matches."""

from __future__ import annotations

from datetime import datetime

from setpoint.kinds.admissionregistration.rules import (
    default_match_resources,
    static_name_warnings,
    validate_match_resources,
    validate_mutating_operations,
    validate_static_name,
)
from setpoint.kinds.cell_texts import UNSET
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, duplicate, forbidden, invalid, not_supported, required
from setpoint.meta.names import dns1123_subdomain, path_segment
from setpoint.meta.objectmeta import validate_label_selector
from setpoint.meta.objects import Obj, ObjView

_ACTIONS = ("Audit", "Deny", "Warn")
_EXCLUSIVE = "name and selector are mutually exclusive"


def _policy(obj: Obj, now: datetime) -> str:
    return str(obj["spec"].get("policyName", ""))


def _selector_text(selector: ObjView) -> str:
    labels = selector.get("matchLabels") or {}
    shown = "".join(f"{key}: {labels[key]}," for key in sorted(labels))
    requirements = "".join(
        f"LabelSelectorRequirement{{Key:{item.get('key', '')},Operator:{item.get('operator', '')},"
        f"Values:[{' '.join(item.get('values') or ())}],}},"
        for item in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{shown}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )


def _params(obj: Obj, now: datetime) -> str:
    params = obj["spec"].get("paramRef")
    if params is None:
        return UNSET
    if name := params.get("name"):
        return f"{params.get('namespace') or '*'}/{name}"
    selector = params.get("selector")
    return UNSET if selector is None else _selector_text(selector)


def _validate_params(params: Obj | None, path: str, errs: Errors) -> None:
    if params is None:
        return
    name, selector = params.get("name", ""), params.get("selector")
    if name:
        errs.extend(invalid(f"{path}.name", name, text) for text in path_segment(name))
        if selector is not None:
            errs.append(forbidden(f"{path}.name", _EXCLUSIVE))
    if selector is not None:
        validate_label_selector(selector, f"{path}.selector", errs)
        if name:
            errs.append(forbidden(f"{path}.selector", _EXCLUSIVE))
    if not name and selector is None:
        errs.append(required(path, "one of name or selector must be specified"))
    action = params.get("parameterNotFoundAction")
    if not action:
        errs.append(required(f"{path}.parameterNotFoundAction"))
    elif action not in ("Deny", "Allow"):
        errs.append(not_supported(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow")))


def _validate_actions(actions: list[str], path: str, errs: Errors, late: Errors) -> None:
    for i, action in enumerate(actions):
        if action not in _ACTIONS:
            errs.append(not_supported(f"{path}[{i}]", action, _ACTIONS))
        if action in actions[:i]:
            errs.append(duplicate(f"{path}[{i}]", action))
    if "Deny" in actions and "Warn" in actions:
        text = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        errs.append(invalid(path, actions, text))
    if not actions:
        late.append(required(path))


class BindingStrategy(Strategy):
    qualified_finalizers = False
    allow_unconditional_update = False
    has_generation = True
    mutating = False
    columns = (
        NAME,
        Column("PolicyName", _policy, description="The policy that is put to work."),
        Column("ParamRef", _params, description="Where its parameters come from."),
        AGE,
    )

    def default(self, obj: Obj) -> None:
        default_match_resources(obj["spec"].get("matchResources"))

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        self._validate(obj["spec"], errs)
        validate_static_name(obj, errs, ctx)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self._validate(obj["spec"], errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        return []

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        return static_name_warnings(obj)

    def _validate(self, spec: Obj, errs: Errors) -> None:
        late: Errors = []  # Validating bindings report missing fields last.
        policy, match = spec.get("policyName", ""), spec.get("matchResources")
        if policy:
            errs.extend(invalid("spec.policyName", policy, text) for text in dns1123_subdomain(policy))
        else:
            (errs if self.mutating else late).append(required("spec.policyName"))
        _validate_params(spec.get("paramRef"), "spec.paramRef", errs)
        validate_match_resources(match, "spec.matchResources", errs)
        if not self.mutating:
            _validate_actions(spec.get("validationActions") or [], "spec.validationActions", errs, late)
        elif match is not None:
            validate_mutating_operations(match, "spec.matchResources", errs)
        errs.extend(late)


class MutatingAdmissionPolicyBindingStrategy(BindingStrategy):
    mutating = True


class ValidatingAdmissionPolicyBindingStrategy(BindingStrategy):
    mutating = False


STRATEGIES = {
    "MutatingAdmissionPolicyBinding": MutatingAdmissionPolicyBindingStrategy(),
    "ValidatingAdmissionPolicyBinding": ValidatingAdmissionPolicyBindingStrategy(),
}
