"""Checks the expressions of a policy against the schemas of the kinds that it is for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from setpoint.kinds.expression_environments import typed_admission_environment
from setpoint.meta.cel import DYN, CelProblem, Environment, SchemaType, Type


class TypedKind(NamedTuple):
    shown: str
    """Name of the kind in warnings."""
    type: SchemaType | None
    """Type of the kind's objects; None if unknown."""


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
        """Return the type errors of an expression for each kind; empty if it is valid for all of them."""
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
    """Return the environment with the variables; each may use those before it, and one that does not compile is dyn."""
    types: dict[str, Type] = {}
    environment = typed_admission_environment(kind, has_params, params, types)
    for name, text in variables:
        try:
            types[name] = environment.check(text)[1].type
        except CelProblem:
            types[name] = DYN
        environment = typed_admission_environment(kind, has_params, params, types)
    return environment
