"""A ValidatingAdmissionPolicy, compiled: what it says of one write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from setpoint.apiserver.admission.dynamic.expressions import (
    BUDGET,
    ConditionError,
    Context,
    Expression,
    OutOfBudget,
    Result,
    Run,
    Subject,
    conditions_hold,
)
from setpoint.apiserver.admission.plugin import Obj
from setpoint.kinds.catalog import Resource
from setpoint.kinds.expressions import Purpose
from setpoint.meta.cel.values import type_of_value

_LONGEST_MESSAGE = 5 * 1024
_LONGEST_ANNOTATION = 10 * 1024


class Denial(NamedTuple):
    at: int
    """Which of the validations."""
    message: str
    reason: str = ""


@dataclass(slots=True)
class Verdict:
    denials: list[Denial]
    annotations: list[tuple[str, str]]
    """Key and value, in order."""
    annotation_errors: list[str]


class _Validation(NamedTuple):
    rule: Expression
    text: Expression | None
    """Of the message."""
    message: str
    reason: str


class ValidatingEvaluator:
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

    def judge(self, subject: Subject, asked: Resource, params: Obj | None, namespace: Obj | None) -> Verdict:
        """`asked`: the resource that the request names."""
        bindings = subject.with_params(params, None, matched=asked)
        try:
            if not conditions_hold(self._conditions, bindings, self._variables, self._ignores_failure):
                return Verdict([], [], [])
            bindings = subject.with_params(params, namespace)
            run = Run(bindings, self._variables, BUDGET)
            results = [run.evaluate(validation.rule) for validation in self._validations]
        except (ConditionError, OutOfBudget) as error:
            return self._failed(str(error))
        bindings = subject.with_params(params, namespace, authorizer=False)
        texts, text_error = self._messages(Run(bindings, self._variables, run.budget))
        denials = []
        for at, (validation, result) in enumerate(zip(self._validations, results)):
            if result.error is not None or text_error:
                if not self._ignores_failure:
                    denials.append(Denial(at, result.error or f"failed messageExpression: {text_error}"))
            elif result.value is not True:
                text = texts[at] if at < len(texts) else Result(None)
                denials.append(Denial(at, _message(validation, text), validation.reason))
        return self._annotate(denials, Run(bindings, self._variables, BUDGET))

    def _failed(self, why: str) -> Verdict:
        return Verdict([] if self._ignores_failure else [Denial(0, why)], [], [])

    def _messages(self, run: Run) -> tuple[list[Result], str]:
        try:
            return [Result(None) if one.text is None else run.evaluate(one.text) for one in self._validations], ""
        except OutOfBudget as error:
            return [], str(error)

    def _annotate(self, denials: list[Denial], run: Run) -> Verdict:
        try:
            results = [(key, one, run.evaluate(one)) for key, one in self._annotations]
        except OutOfBudget as error:
            return self._failed(str(error))
        verdict = Verdict(denials, [], [])
        for key, expression, result in results:
            problem = result.error
            if problem is None and result.value is not None and not isinstance(result.value, str):
                problem = (
                    f"valueExpression '{expression.text}' resulted in unsupported return type: "
                    f"{type_of_value(result.value).name}. Return type must be either string or null."
                )
            if problem is not None:
                if not self._ignores_failure:
                    verdict.annotation_errors.append(problem)
            elif result.value is not None and result.value.strip():
                verdict.annotations.append((key, result.value.strip()[:_LONGEST_ANNOTATION]))
        return verdict


def _validation(context: Context, validation: Obj) -> _Validation:
    text = validation.get("messageExpression", "")
    return _Validation(
        context.expression(validation["expression"], Purpose.VALIDATION),
        context.expression(text, Purpose.MESSAGE, has_authorizer=False) if text else None,
        validation.get("message", "").strip(),
        validation.get("reason") or "Invalid",
    )


def _message(validation: _Validation, text: Result) -> str:
    """What the expression says, if that is a proper message; else what is written; else which rule it is."""
    if text.error is None and isinstance(text.value, str):
        said = text.value.strip()
        if said and "\n" not in said and len(said.encode()) <= _LONGEST_MESSAGE:
            return said
    return validation.message or f"failed expression: {validation.rule.text.strip()}"
