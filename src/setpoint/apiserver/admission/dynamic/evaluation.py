"""Compiled admission policies: evaluation of validating policies, and the mutations of mutating ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from setpoint.apiserver.admission.dynamic.expressions import (
    BUDGET,
    ConditionError,
    Context,
    Expression,
    ExpressionRun,
    OutOfBudget,
    Result,
    WriteBindings,
    conditions_hold,
)
from setpoint.kinds.catalog import Resource
from setpoint.kinds.expressions import Purpose
from setpoint.meta.apply.check import problems, problems_text
from setpoint.meta.apply.merge import merge
from setpoint.meta.cel import CelError
from setpoint.meta.cel.json_values import misnamed_types, to_json
from setpoint.meta.cel.values import type_of_value
from setpoint.meta.objects import Obj
from setpoint.meta.patch.errors import PatchError
from setpoint.meta.patch.json_patch import apply_json_patch
from setpoint.meta.schema import ListType, Shape, Type

_MAX_MESSAGE_BYTES = 5 * 1024
_MAX_ANNOTATION_LENGTH = 10 * 1024
_PURPOSES = {
    "ApplyConfiguration": ("applyConfiguration", Purpose.APPLY_CONFIGURATION),
    "JSONPatch": ("jsonPatch", Purpose.JSON_PATCH),
}


class Denial(NamedTuple):
    """A validation that failed."""

    at: int
    """Index of the validation."""
    message: str
    reason: str = ""


@dataclass(slots=True)
class ValidationResult:
    """The outcome of a policy for one write."""

    denials: list[Denial]
    annotations: list[tuple[str, str]]
    """Key and value of the audit annotations, in order."""
    annotation_errors: list[str]


class _Validation(NamedTuple):
    rule: Expression
    text: Expression | None
    """The messageExpression; None if there is none."""
    message: str
    reason: str


class ValidatingEvaluator:
    """A compiled ValidatingAdmissionPolicy."""

    def __init__(self, policy: Obj) -> None:
        spec = policy["spec"]
        variables = tuple((one["name"], one["expression"]) for one in spec.get("variables") or ())
        context = Context(spec.get("paramKind") is not None, variables)
        self._ignores_failure = spec.get("failurePolicy") == "Ignore"
        self._variables = context.compiled_variables()
        self._conditions = [
            context.expression(one["expression"], Purpose.MATCH_CONDITION) for one in spec.get("matchConditions") or ()
        ]
        self._validations = [_validation(context, one) for one in spec.get("validations") or ()]
        self._annotations = [
            (one["key"], context.expression(one["valueExpression"], Purpose.AUDIT_ANNOTATION))
            for one in spec.get("auditAnnotations") or ()
        ]

    def validate(
        self, write: WriteBindings, requested: Resource, params: Obj | None, namespace: Obj | None
    ) -> ValidationResult:
        """Evaluate the policy; `requested` is the resource that the request names."""
        bindings = write.with_params(params, None, matched=requested)
        try:
            if not conditions_hold(self._conditions, bindings, self._variables, self._ignores_failure):
                return ValidationResult([], [], [])
            bindings = write.with_params(params, namespace)
            run = ExpressionRun(bindings, self._variables, BUDGET)
            results = [run.evaluate(validation.rule) for validation in self._validations]
        except (ConditionError, OutOfBudget) as error:
            return self._failed(str(error))
        bindings = write.with_params(params, namespace, authorizer=False)
        texts, text_error = self._messages(ExpressionRun(bindings, self._variables, run.budget))
        denials = []
        for at, (validation, result) in enumerate(zip(self._validations, results)):
            if result.error is not None or text_error:
                if not self._ignores_failure:
                    denials.append(Denial(at, result.error or f"failed messageExpression: {text_error}"))
            elif result.value is not True:
                text = texts[at] if at < len(texts) else Result(None)
                denials.append(Denial(at, _message(validation, text), validation.reason))
        return self._with_annotations(denials, ExpressionRun(bindings, self._variables, BUDGET))

    def _failed(self, why: str) -> ValidationResult:
        return ValidationResult([] if self._ignores_failure else [Denial(0, why)], [], [])

    def _messages(self, run: ExpressionRun) -> tuple[list[Result], str]:
        try:
            return [Result(None) if one.text is None else run.evaluate(one.text) for one in self._validations], ""
        except OutOfBudget as error:
            return [], str(error)

    def _with_annotations(self, denials: list[Denial], run: ExpressionRun) -> ValidationResult:
        try:
            results = [(key, one, run.evaluate(one)) for key, one in self._annotations]
        except OutOfBudget as error:
            return self._failed(str(error))
        outcome = ValidationResult(denials, [], [])
        for key, expression, result in results:
            problem = result.error
            if problem is None and result.value is not None and not isinstance(result.value, str):
                problem = (
                    f"valueExpression '{expression.text}' resulted in unsupported return type: "
                    f"{type_of_value(result.value).name}. Return type must be either string or null."
                )
            if problem is not None:
                if not self._ignores_failure:
                    outcome.annotation_errors.append(problem)
            elif result.value is not None and result.value.strip():
                outcome.annotations.append((key, result.value.strip()[:_MAX_ANNOTATION_LENGTH]))
        return outcome


def _validation(context: Context, validation: Obj) -> _Validation:
    text = validation.get("messageExpression", "")
    return _Validation(
        context.expression(validation["expression"], Purpose.VALIDATION),
        context.expression(text, Purpose.MESSAGE, has_authorizer=False) if text else None,
        validation.get("message", "").strip(),
        validation.get("reason") or "Invalid",
    )


def _message(validation: _Validation, text: Result) -> str:
    """Return the value of the message expression if it is a valid message, otherwise the static message, otherwise the
    rule."""
    if text.error is None and isinstance(text.value, str):
        message = text.value.strip()
        if message and "\n" not in message and len(message.encode()) <= _MAX_MESSAGE_BYTES:
            return message
    return validation.message or f"failed expression: {validation.rule.text.strip()}"


class MutationError(Exception):
    """A mutation has no result that can be applied."""


class MutatingEvaluator:
    """A compiled MutatingAdmissionPolicy."""

    def __init__(self, policy: Obj) -> None:
        spec = policy["spec"]
        variables = tuple((one["name"], one["expression"]) for one in spec.get("variables") or ())
        context = Context(spec.get("paramKind") is not None, variables)
        self._ignores_failure = spec.get("failurePolicy") == "Ignore"
        self._variables = context.compiled_variables()
        self._conditions = [
            context.expression(one["expression"], Purpose.MATCH_CONDITION) for one in spec.get("matchConditions") or ()
        ]
        self.mutations: list[tuple[Purpose, Expression]] = []
        for mutation in spec.get("mutations") or ():
            field, purpose = _PURPOSES[mutation["patchType"]]
            text = mutation[field].get("expression", "")
            self.mutations.append((purpose, context.expression(text, purpose)))

    def applies(self, write: WriteBindings, requested: Resource, params: Obj | None) -> bool:
        """Return whether the match conditions hold. Raises ConditionError."""
        bindings = write.with_params(params, None, matched=requested)
        return conditions_hold(self._conditions, bindings, self._variables, self._ignores_failure)

    def mutated(self, at: int, obj: Obj, type_: Type, bindings: Mapping[str, Any]) -> Obj:
        """Return the complete object after one of the mutations; it may share parts with `obj`. Raises
        MutationError."""
        purpose, expression = self.mutations[at]
        if expression.program is None:
            raise MutationError(expression.problem)
        try:
            result = ExpressionRun(bindings, self._variables, BUDGET).evaluate(expression)
        except OutOfBudget as error:
            raise MutationError(str(error)) from None
        if result.error is not None:
            raise MutationError(result.error)
        if purpose is Purpose.JSON_PATCH:
            return _patched(obj, result.value)
        return _applied(obj, type_, result.value)


def _patched(obj: Obj, operations: Any) -> Obj:
    try:
        patch = [_operation(operation.fields) for operation in operations]
    except CelError as error:
        raise MutationError(
            f"JSONPath valueExpression evaluated to a type that could not marshal to JSON: {error}"
        ) from None
    try:
        patched: Obj = apply_json_patch(orjson.loads(orjson.dumps(obj)), patch)
    except PatchError as error:
        if error.message.endswith(": test failed"):
            return obj
        raise MutationError(f"JSON Patch: {error}") from None
    return patched


def _operation(fields: Mapping[str, Any]) -> Obj:
    operation: Obj = {name: fields[name] for name in ("op", "path", "from") if fields.get(name)}
    if "value" in fields:
        mismatches = misnamed_types(fields["value"])
        if mismatches:
            raise MutationError("type mismatch: " + "\n".join(mismatches))
        operation["value"] = to_json(fields["value"])
    return operation


def _applied(obj: Obj, type_: Type, value: Any) -> Obj:
    mismatches = misnamed_types(value)
    if mismatches:
        raise MutationError("type mismatch: " + "\n".join(mismatches))
    try:
        config = {**to_json(value), "apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    except CelError as error:
        raise MutationError(f"invalid return type: {error}") from None
    found = problems(type_, config)
    if found:
        text = f"failed to convert patch object to typed object: {problems_text(found)}"
        raise MutationError(f"error applying patch: {text}")
    atomics = _atomics(type_, config, "")
    if atomics:
        text = f"may not mutate atomic arrays, maps or structs: {', '.join(atomics)}"
        raise MutationError(f"error applying patch: invalid ApplyConfiguration: {text}")
    merged: Obj = merge(type_, obj, config)
    return merged


def _atomics(type_: Type, value: Any, path: str) -> list[str]:
    """Return the paths at which a configuration would replace an atomic value, and so remove what it does not name."""
    found: list[str] = []
    if isinstance(value, dict) and type_.shape in (Shape.STRUCT, Shape.MAP):
        if type_.atomic:
            found.append(path)
        if type_.shape is Shape.STRUCT:
            for name, item in value.items():
                field = type_.fields.get(name)
                if field is not None:
                    found += _atomics(field.type, item, f"{path}.{name}")
    elif isinstance(value, list) and type_.shape is Shape.LIST:
        if type_.list_type is ListType.ATOMIC:
            found.append(path)
        if type_.item is not None:
            for at, item in enumerate(value):
                found += _atomics(type_.item, item, f"{path}[{at}]")
    return found
