"""Compilation of the expressions of policies and selectors, to report their errors, also against schemas of kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from setpoint.kinds.expression_environments import (
    admission_environment,
    device_environment,
    device_size,
    typed_admission_environment,
)
from setpoint.kinds.expressions import Purpose
from setpoint.meta.cel import (
    BOOL,
    DYN,
    NULL,
    STRING,
    CelError,
    CelProblem,
    Environment,
    Program,
    SchemaType,
    Type,
    list_of,
)
from setpoint.meta.cel.libraries.patches import JSON_PATCH_TYPE, OBJECT
from setpoint.meta.cel.types import ANY, declared_name

_DEVICE_COST = 1_000_000


_RESULTS: dict[Purpose, tuple[Type, ...]] = {
    Purpose.MATCH_CONDITION: (BOOL,),
    Purpose.VALIDATION: (BOOL,),
    Purpose.MESSAGE: (STRING,),
    Purpose.AUDIT_ANNOTATION: (STRING, NULL),
    Purpose.VARIABLE: (ANY, DYN),
    Purpose.APPLY_CONFIGURATION: (OBJECT,),
    Purpose.JSON_PATCH: (list_of(JSON_PATCH_TYPE),),
}


def _compiled(environment: Environment, text: str) -> tuple[Program | None, str]:
    """Return the program, or why there is none."""
    try:
        return environment.compile(text), ""
    except CelProblem as problem:
        return None, f"compilation failed: {problem}"
    except CelError as error:
        return None, f"program instantiation failed: {error}"


# Every write of a policy, its status included, checks the same expressions; compiling them dominates the cost.
@lru_cache(maxsize=1024)
def check_admission(
    text: str,
    purpose: Purpose,
    has_params: bool,
    has_authorizer: bool,
    stored: bool,
    variables: tuple[tuple[str, str], ...] | None,
) -> tuple[str, ...]:
    _, problem = admission_program(text, purpose, has_params, has_authorizer, stored, variables)
    return (problem,) if problem else ()


def admission_program(
    text: str,
    purpose: Purpose,
    has_params: bool,
    has_authorizer: bool,
    stored: bool,
    variables: tuple[tuple[str, str], ...] | None,
) -> tuple[Program | None, str]:
    """Return the program of an expression of a policy or webhook, or its error."""
    environment = admission_environment(
        has_params=has_params,
        has_authorizer=has_authorizer,
        patch_types=purpose in (Purpose.APPLY_CONFIGURATION, Purpose.JSON_PATCH),
        stored=stored,
        variables=None if variables is None else variable_types(variables, has_params, stored),
    )
    program, problem = _compiled(environment, text)
    if program is None:
        return None, problem
    wanted = _RESULTS[purpose]
    if ANY in wanted or program.result in wanted:
        return program, ""
    found = declared_name(program.result)
    if len(wanted) == 1:
        return None, f"must evaluate to {declared_name(wanted[0])} but got {found}"
    return None, f"must evaluate to one of [{' '.join(map(declared_name, wanted))}] but got {found}"


@lru_cache(maxsize=256)
def variable_types(variables: tuple[tuple[str, str], ...], has_params: bool, stored: bool) -> Mapping[str, Type]:
    """Return the types of a policy's variables, each of which may use those before it; dyn where one does not
    compile."""
    types: dict[str, Type] = {}
    for name, text in variables:
        environment = admission_environment(has_params=has_params, has_authorizer=True, stored=stored, variables=types)
        program, _ = _compiled(environment, text)
        types[name] = DYN if program is None else program.result
    return types


def check_selector(text: str) -> list[str]:
    program, problem = _compiled(device_environment(), text)
    if program is None:
        return [problem]
    if program.result not in (BOOL, ANY):
        return [f"must evaluate to bool or the unknown type, not {declared_name(program.result)}"]
    if program.cost_estimate(device_size).max > _DEVICE_COST:
        return ["too complex, exceeds cost limit"]
    return []


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
