"""The rules in a schema (`x-kubernetes-validations`), compiled: do they make sense, and can they become too expensive.

A rule is evaluated once for every value that its schema describes. How often that can be is its cardinality: the
product of the limits (`maxItems`, `maxProperties`) of all lists and maps around it. Estimated cost times cardinality
must stay within a budget, for each rule and for the schema as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from setpoint.kinds.apiextensions.internal_schema import RULE_FORM
from setpoint.kinds.expression_environments import schema_environment
from setpoint.kinds.internal_form import internal_form
from setpoint.meta.cel import BOOL, STRING, CelError, CelProblem, Environment, Program, SchemaType, schema_type, sizer
from setpoint.meta.cel.schema import MAX_REQUEST_BYTES
from setpoint.meta.cel.sizes import MOST
from setpoint.meta.field import Errors, forbidden, invalid

RULE_LIMIT = 10_000_000
SCHEMA_LIMIT = 100_000_000
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class RulePlace:
    """Where rules stand in a schema."""

    resource: bool
    """The schema is that of a whole resource."""
    cardinality: int | None
    """How many values there can be; None: as many as fit into a request."""
    uncorrelatable: str
    """The outermost list or map around whose items of before and after cannot be matched: no `oldSelf` in there."""


class CostTotal:
    """What all rules of a schema can cost together."""

    def __init__(self) -> None:
        self.total = 0
        self.expensive: list[tuple[int, str]] = []

    def observe(self, path: str, cost: int) -> None:
        self.total = min(self.total + cost, MOST)
        if cost >= SCHEMA_LIMIT // 100:
            self.expensive.append((cost, path))
            self.expensive.sort(key=lambda entry: -entry[0])
            del self.expensive[_SHOWN:]

    def validate(self, path: str, errs: Errors) -> None:
        if self.total <= SCHEMA_LIMIT:
            return
        text = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        errs.extend(forbidden(where, text) for _, where in self.expensive)
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        errs.append(forbidden(path, over_budget(name, self.total, SCHEMA_LIMIT)))


def over_budget(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    if factor > 100:
        shown = "more than 100x"
    else:
        shown = f"{factor:.6f}x" if factor < 1.5 else f"{factor:.1f}x"
    return (
        f"{name} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, and "
        "maxLength where arrays, maps, and strings are declared)"
    )


def check_rules(schema: Mapping[str, Any], path: str, place: RulePlace, total: CostTotal, errs: Errors) -> None:
    """Compiles the rules of one schema."""
    rules = schema.get("x-kubernetes-validations") or ()
    if not rules:
        return
    typed = schema_type(schema, root=place.resource)
    if typed is None:
        text = "unable to convert structural schema to CEL declarations"
        errs.append(invalid(f"{path}.x-kubernetes-validations", "", text))
        return
    often = MAX_REQUEST_BYTES // (typed.shortest + 1) if place.cardinality is None else place.cardinality
    for i, rule in enumerate(rules):
        _check_rule(rule, f"{path}.x-kubernetes-validations[{i}]", typed, often, place.uncorrelatable, total, errs)


def _check_rule(
    rule: Mapping[str, Any],
    path: str,
    schema: SchemaType,
    often: int,
    uncorrelatable: str,
    total: CostTotal,
    errs: Errors,
) -> None:
    text = rule.get("rule", "")
    environment = schema_environment(schema, optional_old=bool(rule.get("optionalOldSelf")))
    program, problem = _compiled(environment, text)
    if program is not None and program.result != BOOL:
        program, problem = None, "cel expression must evaluate to a bool"
    cost = 0
    if program is not None:
        cost = min(program.cost_estimate(sizer(schema)).most * often, MOST)
        if cost > RULE_LIMIT:
            errs.append(forbidden(f"{path}.rule", over_budget("estimated rule cost", cost, RULE_LIMIT)))
    total.observe(f"{path}.rule", cost)
    if program is None:
        errs.append(invalid(f"{path}.rule", internal_form(rule, RULE_FORM), problem))
    elif rule.get("messageExpression"):
        _check_message(rule, path, environment, schema, total, errs)
    if program is not None and "oldSelf" in program.variables:
        if uncorrelatable:
            detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
            errs.append(invalid(f"{path}.rule", text, detail))
    elif rule.get("optionalOldSelf") is not None:
        detail = "may not be set if oldSelf is not used in rule"
        errs.append(invalid(f"{path}.optionalOldSelf", rule["optionalOldSelf"], detail))


def _check_message(
    rule: Mapping[str, Any], path: str, environment: Environment, schema: SchemaType, total: CostTotal, errs: Errors
) -> None:
    at = f"{path}.messageExpression"
    program, problem = _compiled(environment, rule["messageExpression"])
    if program is None:
        errs.append(
            invalid(at, internal_form(rule, RULE_FORM), f"messageExpression {problem.removeprefix('program ')}")
        )
    elif program.result != STRING:
        shown = internal_form(rule, RULE_FORM)
        errs.append(invalid(at, shown, "messageExpression must evaluate to a string"))
    else:
        cost = program.cost_estimate(sizer(schema)).most
        if cost > RULE_LIMIT:
            errs.append(forbidden(at, over_budget("estimated messageExpression cost", cost, RULE_LIMIT)))
        total.observe(at, cost)


def _compiled(environment: Environment, text: str) -> tuple[Program | None, str]:
    try:
        return environment.compile(text), ""
    except CelProblem as problem:
        return None, f"compilation failed: {problem}"
    except CelError as error:
        return None, f"program instantiation failed: {error}"
