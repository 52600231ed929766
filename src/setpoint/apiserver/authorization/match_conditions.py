"""Which questions concern a webhook: expressions over the SubjectAccessReview that it would be asked with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from setpoint.apiserver.filters.authorize import Problem
from setpoint.meta.cel import (
    BOOL,
    STRING,
    CelError,
    CelProblem,
    Environment,
    Program,
    StructType,
    kubernetes_environment,
    list_of,
    map_of,
)
from setpoint.meta.cel.types import declared_name
from setpoint.meta.goformat import aggregate

_LIMIT = 10_000_000
_REQUIREMENT = StructType(
    "kubernetes.SelectorRequirement", {"key": STRING, "operator": STRING, "values": list_of(STRING)}
)
_SELECTOR = {"rawSelector": STRING, "requirements": list_of(_REQUIREMENT.type)}
_FIELDS = StructType("kubernetes.FieldSelectorAttributes", _SELECTOR)
_LABELS = StructType("kubernetes.LabelSelectorAttributes", _SELECTOR)
_TEXTS = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
_RESOURCE = StructType(
    "kubernetes.ResourceAttributes",
    {**dict.fromkeys(_TEXTS, STRING), "fieldSelector": _FIELDS.type, "labelSelector": _LABELS.type},
)
_OTHER = StructType("kubernetes.NonResourceAttributes", {"path": STRING, "verb": STRING})
_SPEC = StructType(
    "kubernetes.SubjectAccessReviewSpec",
    {
        "resourceAttributes": _RESOURCE.type,
        "nonResourceAttributes": _OTHER.type,
        "user": STRING,
        "groups": list_of(STRING),
        "extra": map_of(STRING, list_of(STRING)),
        "uid": STRING,
    },
)


@cache
def _environment() -> Environment:
    structs = (_REQUIREMENT, _FIELDS, _LABELS, _RESOURCE, _OTHER, _SPEC)
    return kubernetes_environment(stored=True).extended({"request": _SPEC.type}, structs)


class ConditionProblem(ValueError):
    """Why an expression cannot be used, in upstream's words."""


def compile_condition(text: str) -> Program:
    """Raises ConditionProblem."""
    try:
        program = _environment().compile(text)
    except CelProblem as problem:
        raise ConditionProblem(f"compilation failed: {problem}") from None
    except CelError as error:
        raise ConditionProblem(f"program instantiation failed: {error}") from None
    if program.result != BOOL:
        raise ConditionProblem(f"must evaluate to {declared_name(BOOL)} but got {declared_name(program.result)}")
    return program


class MatchConditions:
    def __init__(self, expressions: Sequence[str]) -> None:
        self._programs = [compile_condition(text) for text in expressions]

    def hold(self, spec: Mapping[str, Any]) -> bool | Problem:
        """One that is false decides; else, what could not be evaluated is a problem."""
        if not self._programs:
            return True
        request = _shown(spec)
        problems: list[str] = []
        for program in self._programs:
            outcome = program.evaluate({"request": request}, _LIMIT)
            if outcome.error is not None:
                text = f"expression '{program.text}' resulted in error: {outcome.error}"
                problems.append(f"cel evaluation error: {text}")
            elif outcome.value is not True:
                return False
        return Problem(aggregate(problems)) if problems else True


def _shown(spec: Mapping[str, Any]) -> dict[str, Any]:
    """With the texts that are empty, too: expressions need not ask whether they are there."""
    shown: dict[str, Any] = {
        "user": spec.get("user", ""), "uid": spec.get("uid", ""), "groups": spec.get("groups") or [],
        "extra": spec.get("extra") or {},
    }  # fmt: skip
    attributes, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if attributes is not None:
        selectors = {name: attributes[name] for name in ("fieldSelector", "labelSelector") if name in attributes}
        shown["resourceAttributes"] = {name: attributes.get(name, "") for name in _TEXTS} | selectors
    if other is not None:
        shown["nonResourceAttributes"] = {"path": other.get("path", ""), "verb": other.get("verb", "")}
    return shown
