"""Compilation of the expressions of policies and selectors, to report their errors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from setpoint.kinds.expression_environments import (
    admission_environment,
    device_environment,
    device_size,
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


# The same policy is checked on every write of it, its status included; compiling is the most of that.
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
    """Return the program of an expression of a policy or webhook, or what is wrong with it."""
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
    if program.cost_estimate(device_size).most > _DEVICE_COST:
        return ["too complex, exceeds cost limit"]
    return []
