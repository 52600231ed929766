"""Validation of the CEL expressions in objects: every rule with a user-written expression uses this module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from setpoint.meta.field import Errors, FieldError, forbidden, internal, invalid


class Purpose(Enum):
    """The purpose of an expression, which determines its variables and its result type."""

    MATCH_CONDITION = "match condition"  # bool
    VALIDATION = "validation"  # bool
    MESSAGE = "message"  # string
    AUDIT_ANNOTATION = "audit annotation"  # string or null
    VARIABLE = "variable"  # any
    APPLY_CONFIGURATION = "apply configuration"  # Object{}
    JSON_PATCH = "json patch"  # list of JSONPatch{}
    DEVICE_SELECTOR = "device selector"  # bool


@dataclass(frozen=True, slots=True)
class Usage:
    """The location of an expression and the variables available there."""

    purpose: Purpose
    has_params: bool = False
    has_authorizer: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    """Expressions that this one may refer to as `variables.<name>`."""
    stored: bool = False
    """Whether the stored object has this expression already: what used to compile still does."""


def check_expression(text: str, usage: Usage) -> list[str]:
    """Return the errors of the expression; empty if it is valid. Only this function calls the compiler.

    (The rules in the schemas of custom resources have their own: `apiextensions.rule_validation`.)"""
    # Imported with the first expression, because many clusters have none.
    from setpoint.kinds.expression_checks import check_admission, check_selector

    if usage.purpose is Purpose.DEVICE_SELECTOR:
        return check_selector(text)
    # `variables` is declared only if there are variables, and for the expressions of variables themselves.
    composed = usage.purpose is Purpose.VARIABLE or bool(usage.variables)
    variables = tuple(usage.variables.items()) if composed else None
    return list(check_admission(text, usage.purpose, usage.has_params, usage.has_authorizer, usage.stored, variables))


def expression_errors(text: str, shown: str, usage: Usage, path: str) -> Errors:
    """Return the same as errors of a field; `shown` is the value as it stands there."""
    return [_as_error(problem, shown, path) for problem in check_expression(text, usage)]


def _as_error(problem: str, shown: str, path: str) -> FieldError:
    if problem.startswith("program instantiation failed: "):
        return internal(path, problem)
    if problem.startswith("too complex, "):
        return forbidden(path, problem)
    return invalid(path, shown, problem)
