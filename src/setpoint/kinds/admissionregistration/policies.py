"""MutatingAdmissionPolicy and ValidatingAdmissionPolicy: expressions that change a write, or must hold for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from setpoint.kinds.admissionregistration.rules import (
    FAILURE_POLICIES,
    REINVOCATION_POLICIES,
    default_match_resources,
    one_of,
    static_name_warnings,
    validate_expression,
    validate_match_conditions,
    validate_match_resources,
    validate_mutating_operations,
    validate_static_name,
)
from setpoint.kinds.cell_texts import UNSET
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.expressions import Purpose, Usage
from setpoint.kinds.internal_form import internal_form
from setpoint.kinds.strategy import BareStatusStrategy, Column, Context, Strategy
from setpoint.meta.field import Errors, duplicate, invalid, not_supported, required
from setpoint.meta.names import dns1035_label, dns1123_subdomain, qualified_name
from setpoint.meta.objectmeta import validate_conditions
from setpoint.meta.objects import Obj

_IDENTIFIER = re.compile("[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED = frozenset(
    {
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    }
)


def param_kind(obj: Obj, now: datetime) -> str:
    kind = obj["spec"].get("paramKind")
    return UNSET if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"


def _validate_param_kind(kind: Obj, path: str, errs: Errors) -> None:
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
    """Rules of a policy's spec, up to its variables; subclasses add what the policy does."""

    qualified_finalizers = False
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

    def _validate(self, obj: Obj, old: Obj | None, errs: Errors) -> None:
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

    def validate_body(self, obj: Obj, old: Obj, usage: Usage, errs: Errors) -> None:
        """Validate the body; `usage` has the parameters and variables that this policy's expressions may use."""
        raise NotImplementedError


def _validate_variable(variable: Obj, usage: Usage, path: str, errs: Errors) -> Usage:
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


_PATCHES = {
    "ApplyConfiguration": ("applyConfiguration", Purpose.APPLY_CONFIGURATION),
    "JSONPatch": ("jsonPatch", Purpose.JSON_PATCH),
}


def _mutations_count(obj: Obj, now: datetime) -> int:
    return len(obj["spec"].get("mutations") or ())


class MutatingAdmissionPolicyStrategy(PolicyStrategy):
    mutating = True
    columns = (
        NAME,
        Column("Mutations", _mutations_count, type="integer", description="Number of changes the policy makes."),
        Column("ParamKind", param_kind, description="Kind of the objects that give the policy its parameters."),
        AGE,
    )

    def validate_body(self, obj: Obj, old: Obj, usage: Usage, errs: Errors) -> None:
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


def _validate_mutation(mutation: Obj, usage: Usage, stored: set[str], path: str, errs: Errors) -> None:
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


_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_MAX_ANNOTATIONS = 20
_MAX_VALUE_LENGTH = 5 * 1024
_ANNOTATION_FORM = {"key": "", "valueExpression": ""}


def _validations_count(obj: Obj, now: datetime) -> int:
    return len(obj["spec"].get("validations") or ())


class ValidatingAdmissionPolicyStrategy(PolicyStrategy):
    has_status = True
    columns = (
        NAME,
        Column("Validations", _validations_count, type="integer", description="Number of expressions that must hold."),
        Column("ParamKind", param_kind, description="Kind of the objects that give the policy its parameters."),
        AGE,
    )

    def __init__(self) -> None:
        self.subresources = {"status": PolicyStatusStrategy(self)}

    def validate_body(self, obj: Obj, old: Obj, usage: Usage, errs: Errors) -> None:
        spec = obj["spec"]
        validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
        if not validations and not annotations:
            text = "validations or auditAnnotations must contain at least one item"
            errs += [required("spec.validations", text), required("spec.auditAnnotations", text)]
            return
        old_validations = old.get("validations") or ()
        stored = {item.get("expression", "") for item in old_validations}
        stored_messages = {item.get("messageExpression", "") for item in old_validations}
        for i, validation in enumerate(validations):
            _validate_validation(validation, usage, stored, stored_messages, f"spec.validations[{i}]", errs)
        stored_values = {item.get("valueExpression", "") for item in old.get("auditAnnotations") or ()}
        _validate_annotations(obj, annotations, usage, stored_values, errs)


def _validate_validation(
    validation: Obj, usage: Usage, stored: set[str], stored_messages: set[str], path: str, errs: Errors
) -> None:
    expression, message = validation.get("expression", ""), validation.get("message", "")
    message_expression, reason = validation.get("messageExpression", ""), validation.get("reason")
    if not expression.strip():
        errs.append(required(f"{path}.expression", "expression is not specified"))
    else:
        rule = replace(usage, purpose=Purpose.VALIDATION, stored=expression in stored)
        validate_expression(expression, expression, rule, f"{path}.expression", errs)
    if message_expression and not message_expression.strip():
        errs.append(invalid(f"{path}.messageExpression", message_expression, "must be non-empty if specified"))
    elif message_expression:
        text = replace(
            usage, purpose=Purpose.MESSAGE, has_authorizer=False, stored=message_expression in stored_messages
        )
        validate_expression(message_expression, message_expression, text, f"{path}.messageExpression", errs)
    if message and not message.strip():
        errs.append(invalid(f"{path}.message", message, "must be non-empty if specified"))
    elif "\n" in message.strip() or "\r" in message.strip():
        errs.append(invalid(f"{path}.message", message, "must not contain line breaks"))
    if reason is not None and reason not in _REASONS:
        errs.append(not_supported(f"{path}.reason", reason, _REASONS))


def _validate_annotations(obj: Obj, annotations: Sequence[Obj], usage: Usage, stored: set[str], errs: Errors) -> None:
    name, path = obj["metadata"].get("name", ""), "spec.auditAnnotations"
    if len(annotations) > _MAX_ANNOTATIONS:
        shown = [internal_form(annotation, _ANNOTATION_FORM) for annotation in annotations]
        errs.append(invalid(path, shown, f"must not have more than {_MAX_ANNOTATIONS} auditAnnotations"))
    seen: set[str] = set()
    for i, annotation in enumerate(annotations):
        at, key, value = f"{path}[{i}]", annotation.get("key", ""), annotation.get("valueExpression", "")
        if name:
            errs.extend(invalid(f"{at}.key", f"{name}/{key}", text) for text in qualified_name(f"{name}/{key}"))
        else:
            errs.append(invalid(f"{at}.key", key, "requires metadata.name be non-empty"))
        expression = value.strip()
        if not expression:
            errs.append(required(f"{at}.valueExpression", "valueExpression is not specified"))
        elif len(expression.encode()) > _MAX_VALUE_LENGTH:
            errs.append(required(f"{at}.valueExpression", f"must not exceed {_MAX_VALUE_LENGTH} bytes in length"))
        else:
            note = replace(usage, purpose=Purpose.AUDIT_ANNOTATION, stored=value in stored)
            validate_expression(expression, value, note, f"{at}.valueExpression", errs)
        if key in seen:
            errs.append(duplicate(f"{at}.key", key))
        seen.add(key)


class PolicyStatusStrategy(BareStatusStrategy):
    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        status = obj.get("status") or {}
        warnings = (status.get("typeChecking") or {}).get("expressionWarnings") or ()
        for i, warning in enumerate(warnings):
            path = f"status.typeChecking.expressionWarnings[{i}]"
            if not warning.get("warning"):
                errs.append(required(f"{path}.warning"))
            if not warning.get("fieldRef", "").strip():
                errs.append(required(f"{path}.fieldRef"))
        validate_conditions(status.get("conditions") or [], "status.conditions", errs)


STRATEGIES = {
    "MutatingAdmissionPolicy": MutatingAdmissionPolicyStrategy(),
    "ValidatingAdmissionPolicy": ValidatingAdmissionPolicyStrategy(),
}
