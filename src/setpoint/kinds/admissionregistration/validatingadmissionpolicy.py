"""ValidatingAdmissionPolicy: expressions that must hold for a write to be accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from setpoint.kinds.admissionregistration.conditions import validate_expression
from setpoint.kinds.admissionregistration.policies import PolicyStrategy, param_kind
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.expressions import Purpose, Usage
from setpoint.kinds.internal_form import internal_form
from setpoint.kinds.status_metadata import BareStatusStrategy
from setpoint.kinds.strategy import Column, Context, Obj
from setpoint.meta.field import Errors, duplicate, invalid, not_supported, required
from setpoint.meta.names import qualified_name
from setpoint.meta.objectmeta import validate_conditions

_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_MAX_ANNOTATIONS = 20
_MAX_VALUE_LENGTH = 5 * 1024
_ANNOTATION_FORM = {"key": "", "valueExpression": ""}


def _count(obj: Obj, now: datetime) -> int:
    return len(obj["spec"].get("validations") or ())


class ValidatingAdmissionPolicyStrategy(PolicyStrategy):
    has_status = True
    columns = (
        NAME,
        Column("Validations", _count, type="integer", description="Number of expressions that must hold."),
        Column("ParamKind", param_kind, description="Kind of the objects that give the policy its parameters."),
        AGE,
    )

    def __init__(self) -> None:
        self.subresources = {"status": PolicyStatusStrategy(self)}

    def validate_body(self, obj: Obj, old: dict[str, Any], usage: Usage, errs: Errors) -> None:
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
    validation: dict[str, Any], usage: Usage, stored: set[str], stored_messages: set[str], path: str, errs: Errors
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


def _validate_annotations(
    obj: Obj, annotations: Sequence[dict[str, Any]], usage: Usage, stored: set[str], errs: Errors
) -> None:
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


STRATEGY = ValidatingAdmissionPolicyStrategy()
