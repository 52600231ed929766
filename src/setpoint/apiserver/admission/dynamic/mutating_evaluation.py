"""A MutatingAdmissionPolicy, compiled: what it makes of an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from setpoint.apiserver.admission.dynamic.expressions import (
    BUDGET,
    Context,
    Expression,
    OutOfBudget,
    Run,
    Subject,
    conditions_hold,
)
from setpoint.apiserver.admission.plugin import Obj
from setpoint.kinds.catalog import Resource
from setpoint.kinds.expressions import Purpose
from setpoint.meta.apply.check import problems, problems_text
from setpoint.meta.apply.merge import merge
from setpoint.meta.cel import CelError
from setpoint.meta.cel.results import misnamed_types, to_json
from setpoint.meta.patch.errors import PatchError
from setpoint.meta.patch.json_patch import apply_json_patch
from setpoint.meta.schema import ListType, Shape, Type

_PURPOSES = {
    "ApplyConfiguration": ("applyConfiguration", Purpose.APPLY_CONFIGURATION),
    "JSONPatch": ("jsonPatch", Purpose.JSON_PATCH),
}


class MutationError(Exception):
    """A mutation came to nothing that could be applied."""


class MutatingEvaluator:
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

    def applies(self, subject: Subject, asked: Resource, params: Obj | None) -> bool:
        """Raises ConditionError."""
        bindings = subject.with_params(params, None, matched=asked)
        return conditions_hold(self._conditions, bindings, self._variables, self._ignores_failure)

    def mutated(self, at: int, obj: Obj, type_: Type, bindings: Mapping[str, Any]) -> Obj:
        """The object, whole, after one of the mutations. It may share parts with `obj`. Raises MutationError."""
        purpose, expression = self.mutations[at]
        if expression.program is None:
            raise MutationError(expression.problem)
        try:
            result = Run(bindings, self._variables, BUDGET).evaluate(expression)
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
        wrong = misnamed_types(fields["value"])
        if wrong:
            raise MutationError("type mismatch: " + "\n".join(wrong))
        operation["value"] = to_json(fields["value"])
    return operation


def _applied(obj: Obj, type_: Type, value: Any) -> Obj:
    wrong = misnamed_types(value)
    if wrong:
        raise MutationError("type mismatch: " + "\n".join(wrong))
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
    """Where a configuration would replace something whole, and thereby remove what it does not name."""
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
