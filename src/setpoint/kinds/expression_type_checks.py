"""Checks the expressions of a policy against the schemas of the kinds that it is for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from setpoint.kinds.expression_environments import typed_admission_environment
from setpoint.meta.cel import DYN, CelProblem, Environment, SchemaType, Type


class TypedKind(NamedTuple):
    shown: str
    """How warnings name it."""
    type: SchemaType | None
    """Of its objects; None: nothing is known about them."""


class TypedPolicy:
    """The environments of a policy's expressions: one for each kind that it is for."""

    def __init__(
        self,
        kinds: Sequence[TypedKind],
        has_params: bool = False,
        params: SchemaType | None = None,
        variables: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._environments = [(kind.shown, _with_variables(kind.type, has_params, params, variables)) for kind in kinds]

    def problems(self, text: str) -> str:
        """What is wrong with an expression, for every kind that it does not suit; empty: it suits them all."""
        found = []
        for shown, environment in self._environments:
            try:
                environment.check(text)
            except CelProblem as problem:
                found.append(f"{shown}: {problem}\n")
        return "\n".join(found)


def _with_variables(
    kind: SchemaType | None, has_params: bool, params: SchemaType | None, variables: Sequence[tuple[str, str]]
) -> Environment:
    """Each variable sees those before it; one that does not compile can be anything."""
    types: dict[str, Type] = {}
    environment = typed_admission_environment(kind, has_params, params, types)
    for name, text in variables:
        try:
            types[name] = environment.check(text)[1].type
        except CelProblem:
            types[name] = DYN
        environment = typed_admission_environment(kind, has_params, params, types)
    return environment
