"""`x-kubernetes-validations` of one schema, compiled: what is wrong with them, what they may cost, and programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from setpoint.kinds.apiextensions.rule_costs import bounded
from setpoint.kinds.apiextensions.schema_paths import PathError, field_path
from setpoint.kinds.expression_environments import schema_environment
from setpoint.meta.cel import (
    BOOL,
    STRING,
    CelError,
    CelProblem,
    Environment,
    Program,
    SchemaType,
    Type,
    schema_type,
    sizer,
)
from setpoint.meta.cel.schema import MAX_REQUEST_BYTES

Schema = Mapping[str, Any]
Stored = Callable[[str], bool]
"""Predicate for expressions that are stored already: they may use everything that the environment supports."""


@dataclass(slots=True)
class CompiledRule:
    rule: Mapping[str, Any]
    program: Program | None = None
    """The compiled rule; None if it does not compile (`problem` has the error) or there is none."""
    problem: str = ""
    message: Program | None = None
    message_problem: str = ""
    cost: int = 0
    """Maximum cost of one evaluation, by the sizes that the schema allows."""
    message_cost: int = 0
    max_values: int = 0
    """Maximum number of such values in a request."""
    path: str = ""
    """Field below the value at which a failure is reported; empty for the value itself."""

    @property
    def uses_old_self(self) -> bool:
        return self.program is not None and "oldSelf" in self.program.variables

    @property
    def optional(self) -> bool:
        return bool(self.rule.get("optionalOldSelf"))


def self_type(schema: Schema, resource: bool) -> SchemaType | None:
    """Return the type of `self`, or None if expressions cannot access such a value."""
    return schema_type(schema, root=resource)


def compile_rules(
    schema: Schema, declared: SchemaType, stored: Stored = lambda _: True, stored_message: Stored = lambda _: True
) -> list[CompiledRule]:
    """Return the rules of this schema alone, not of its parts."""
    size = sizer(declared)

    def environment(rule: Mapping[str, Any], is_stored: bool) -> Environment:
        return schema_environment(declared, optional_old=bool(rule.get("optionalOldSelf")), stored=is_stored)

    found = []
    for rule in schema.get("x-kubernetes-validations") or ():
        made = CompiledRule(rule, max_values=MAX_REQUEST_BYTES // (declared.min_bytes + 1))
        found.append(made)
        text, message = rule.get("rule", ""), rule.get("messageExpression", "")
        if not text.strip():
            continue
        made.program, made.problem = _compile(environment(rule, stored(text)), text, BOOL)
        if made.program is None:
            continue
        made.cost = bounded(made.program.cost_estimate(size).most)
        if message:
            made.message, problem = _compile(environment(rule, stored_message(message)), message, STRING)
            if made.message is None:
                made.message_problem = f"messageExpression {problem.removeprefix('cel expression ')}"
            else:
                made.message_cost = bounded(made.message.cost_estimate(size).most)
        if rule.get("fieldPath"):
            try:
                made.path = field_path(rule["fieldPath"], schema)
            except PathError:
                continue
    return found


def _compile(environment: Environment, text: str, wanted: Type) -> tuple[Program | None, str]:
    try:
        program = environment.compile(text)
    except CelProblem as problem:
        return None, f"compilation failed: {problem}"
    except CelError as error:
        return None, f"program instantiation failed: {error}"
    if program.result != wanted:
        return None, f"cel expression must evaluate to a {'bool' if wanted == BOOL else 'string'}"
    return program, ""
