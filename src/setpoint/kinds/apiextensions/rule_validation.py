"""`x-kubernetes-validations`: compilation with cost estimates, and validation of objects, with the old object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from setpoint.kinds.apiextensions import Schema
from setpoint.kinds.apiextensions.correlation import Correlated
from setpoint.kinds.apiextensions.rule_costs import bounded, has_rules
from setpoint.kinds.apiextensions.schema_paths import PathError, field_path
from setpoint.kinds.expression_environments import schema_environment
from setpoint.meta.cel import (
    BOOL,
    STRING,
    CelError,
    CelProblem,
    Environment,
    Optional,
    Program,
    SchemaType,
    Type,
    schema_type,
    sizer,
)
from setpoint.meta.cel.schema import MAX_REQUEST_BYTES
from setpoint.meta.field import OMIT, Errors, FieldError, duplicate, forbidden, invalid, required
from setpoint.meta.objects import ObjView

Stored = Callable[[str], bool]
"""Predicate for expressions that are stored already: they may use everything that the environment supports."""


@dataclass(slots=True)
class CompiledRule:
    rule: ObjView
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

    def environment(rule: ObjView, is_stored: bool) -> Environment:
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
        made.cost = bounded(made.program.cost_estimate(size).max)
        if message:
            made.message, problem = _compile(environment(rule, stored_message(message)), message, STRING)
            if made.message is None:
                made.message_problem = f"messageExpression {problem.removeprefix('cel expression ')}"
            else:
                made.message_cost = bounded(made.message.cost_estimate(size).max)
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


BUDGET = 10_000_000
_EMBEDDED = "x-kubernetes-embedded-resource"
_MAX_MESSAGE_LENGTH = 5 * 1024
_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
_BLOCKING = frozenset(
    ("FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid")
)
_NOTHING = Optional(None, present=False)


class _Spent(Exception):
    """Raised when the cost budget of a request is exhausted."""


@dataclass(slots=True)
class _Run:
    errs: Errors
    warn: Callable[[str], None]
    budget: int = BUDGET


@dataclass(slots=True, frozen=True)
class _OldValue:
    """The correlation of a value with the old object: its own old value, or the closest comparable ancestor."""

    current: Correlated | None = None
    nearest: Correlated | None = None

    @property
    def unchanged(self) -> bool:
        known = self.current if self.current is not None else self.nearest
        return known is not None and known.same

    def key(self, name: str) -> _OldValue:
        if self.current is None:
            return self
        if self.nearest is None and name in ("apiVersion", "kind"):
            return _OldValue()
        return _OldValue(self.current.key(name), self.current)

    def item(self, at: int) -> _OldValue:
        return self if self.current is None else _OldValue(self.current.item(at), self.current)


@dataclass(slots=True)
class RuleValidator:
    """The rules of a schema and of its parts."""

    schema: Schema
    declared: SchemaType | None
    rules: list[CompiledRule]
    items: RuleValidator | None = None
    additional: RuleValidator | None = None
    properties: dict[str, RuleValidator] = field(default_factory=dict)
    all_of: list[RuleValidator] = field(default_factory=list)

    def validate(self, obj: Any, old: Any, schema: Schema, errs: Errors, warn: Callable[[str], None]) -> None:
        """Validate the whole object; `old` is None on create.

        Rules are not evaluated on an object that is so invalid that they could fail on it."""
        if any(error.reason in _BLOCKING for error in errs):
            text = (
                "some validation rules were not checked because the object was invalid; "
                "correct the existing errors to complete validation"
            )
            errs.append(invalid("<nil>", None, text))
            return
        before = _OldValue(Correlated(obj, old, schema)) if old is not None else _OldValue()
        try:
            self._validate(_Run(errs, warn), "", obj, old, before)
        except _Spent:
            return

    def _validate(self, run: _Run, path: str, obj: Any, old: Any, before: _OldValue) -> None:
        if obj is None:
            return
        if self.rules:
            self._evaluate(run, path, obj, old, before)
        for part in self.all_of:
            part._validate(run, path, obj, old, _OldValue(None, before.nearest))
        if obj.__class__ is dict:
            known = old if old.__class__ is dict else {}
            if self.additional is not None:
                for key, value in obj.items():
                    self.additional._validate(run, f"{path}[{key}]", value, known.get(key), before.key(key))
            for key, validator in self.properties.items():
                if key in obj:
                    below = f"{path}.{key}" if path else key
                    validator._validate(run, below, obj[key], known.get(key), before.key(key))
        elif obj.__class__ is list and self.items is not None:
            pairs = Correlated(obj, old, self.schema)
            for i, value in enumerate(obj):
                pair = pairs.item(i)
                self.items._validate(run, f"{path}[{i}]", value, pair.old if pair else None, before.item(i))

    def _evaluate(self, run: _Run, path: str, obj: Any, old: Any, before: _OldValue) -> None:
        at, kind, errs, declared = path or "<nil>", self.schema.get("type", ""), run.errs, self.declared
        if run.budget <= 0:
            errs.append(invalid(at, kind, _OUT_OF_BUDGET))
            raise _Spent
        assert declared is not None
        current = declared.value(obj)
        bindings, optional_bindings = {"self": current}, {"self": current, "oldSelf": _NOTHING}
        if old is not None:
            former = declared.value(old)
            bindings["oldSelf"] = former
            optional_bindings["oldSelf"] = Optional(former)
        for compiled in self.rules:
            if compiled.program is None:
                if compiled.problem:
                    errs.append(invalid(at, kind, f"rule compile error: {compiled.problem}"))
                continue
            if compiled.uses_old_self and old is None and not compiled.optional:
                continue
            given = optional_bindings if compiled.optional else bindings
            outcome = compiled.program.evaluate(given)
            if outcome.cost > run.budget:
                errs.append(invalid(at, kind, _OUT_OF_BUDGET))
                raise _Spent
            run.budget -= outcome.cost
            if outcome.error is not None:
                _report_failure(compiled, outcome.error, outcome.cost_exceeded, at, kind, errs)
            elif outcome.value is not True:
                self._report(run, compiled, bindings, path, obj, before)

    def _report(
        self, run: _Run, compiled: CompiledRule, bindings: ObjView, path: str, obj: Any, before: _OldValue
    ) -> None:
        """Report a rule that does not hold."""
        at, kind = path or "<nil>", self.schema.get("type", "")
        if compiled.path:
            at = f"{path}.{compiled.path}" if path and not compiled.path.startswith("[") else path + compiled.path

        def append(error: FieldError) -> None:
            if not compiled.uses_old_self and before.unchanged:
                run.warn(error.message())
            else:
                run.errs.append(error)

        detail = _message(compiled.rule)
        if compiled.message is not None:
            message, problem = _evaluated_message(run, compiled.message, compiled.rule, bindings)
            if problem:
                append(invalid(at, kind, problem))
                raise _Spent
            detail = message or detail
        append(_error(at, OMIT if kind in ("object", "array") else obj, detail, compiled.rule.get("reason")))


def _message(rule: ObjView) -> str:
    message = rule.get("message", "")
    return message.strip() if message else f"failed rule: {rule.get('rule', '').strip()}"


def _named(rule: ObjView) -> str:
    return str(rule.get("message") or rule.get("rule", "")).strip()


def _report_failure(compiled: CompiledRule, error: str, exceeded: bool, at: str, kind: str, errs: Errors) -> None:
    rule = _named(compiled.rule)
    if exceeded:
        text = f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {rule}"
        errs.append(invalid(at, kind, text))
        raise _Spent
    if error.startswith("no such overload"):
        text = f"'{error}': call arguments did not match a supported operator, function or macro signature for rule: "
        errs.append(invalid(at, kind, text + rule))
    else:
        errs.append(invalid(at, kind, f"{error} evaluating rule: {rule}"))


def _evaluated_message(run: _Run, program: Program, rule: ObjView, bindings: ObjView) -> tuple[str, str]:
    """Return the message of the rule's messageExpression (empty if unusable), and an error that ends the validation."""
    outcome = program.evaluate(bindings)
    if outcome.cost > run.budget:
        return "", (
            "messageExpression evaluation failed due to running out of cost budget, "
            "no further validation rules will be run"
        )
    if outcome.cost_exceeded:
        shown = rule.get("messageExpression", "")
        text = "no further validation rules will be run due to call cost exceeds limit for messageExpression: "
        return "", f'{text}"{shown}"'
    run.budget -= outcome.cost
    if outcome.error is not None or not isinstance(outcome.value, str):
        return "", ""
    message = outcome.value.strip()
    return ("" if len(message.encode()) > _MAX_MESSAGE_LENGTH or "\n" in message else message), ""


def _error(at: str, value: Any, detail: str, reason: str | None) -> FieldError:
    if reason == "FieldValueForbidden":
        return forbidden(at, detail)
    if reason == "FieldValueRequired":
        return required(at, detail)
    if reason == "FieldValueDuplicate":
        return duplicate(at, value)
    return invalid(at, value, detail)


def compile_validator(schema: Schema, resource: bool = True) -> RuleValidator | None:
    """Return the validator of a schema, or None if it has no rules."""
    return _validator(schema, schema, resource) if has_rules(schema) else None


def _validator(rules: Schema, node: Schema, resource: bool) -> RuleValidator | None:
    """Compile the rules at `rules` for values of the schema `node`, which differ within `allOf`."""
    own = rules.get("x-kubernetes-validations") or ()
    declared = self_type(node, resource) if own else None
    made = RuleValidator(node, declared, [])
    if own and declared is not None:
        made.rules = compile_rules({**node, "x-kubernetes-validations": own}, declared)
    items, additional = rules.get("items"), rules.get("additionalProperties")
    node_items, node_additional = node.get("items"), node.get("additionalProperties")
    if isinstance(items, Mapping) and isinstance(node_items, Mapping):
        made.items = _validator(items, node_items, bool(node_items.get(_EMBEDDED)))
    if isinstance(additional, Mapping) and isinstance(node_additional, Mapping):
        made.additional = _validator(additional, node_additional, bool(node_additional.get(_EMBEDDED)))
    known = node.get("properties") or {}
    for key, part in (rules.get("properties") or {}).items():
        if key in known and (inner := _validator(part, known[key], bool(known[key].get(_EMBEDDED)))) is not None:
            made.properties[key] = inner
    for part in rules.get("allOf") or ():
        if (inner := _validator(part, node, resource)) is not None:
            made.all_of.append(inner)
    if made.rules or made.items is not None or made.additional is not None or made.properties or made.all_of:
        return made
    return None
