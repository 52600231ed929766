"""Expressions of an AuthenticationConfiguration: over the claims of a token, or over the user that they make."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from setpoint.meta.cel import BOOL, STRING, CelError, CelProblem, Environment, Program, StructType, list_of, map_of
from setpoint.meta.cel.escaping import unescape
from setpoint.meta.cel.kubernetes import kubernetes_environment
from setpoint.meta.cel.operators import equals
from setpoint.meta.cel.syntax import Call, Expr, Ident, Literal, Select, walk
from setpoint.meta.cel.types import ANY, declared_name
from setpoint.meta.cel.values import MISSING, TypedList, TypedMap, is_list, is_map

LIMIT = 10_000_000
"""Of the cost of one evaluation: tokens are limited in size, expressions are an administrator's."""

_USER = StructType(
    "kubernetes.UserInfo",
    {"username": STRING, "uid": STRING, "groups": list_of(STRING), "extra": map_of(STRING, list_of(STRING))},
)


class ExpressionProblem(ValueError):
    """Why an expression cannot be used, in upstream's words."""


@cache
def _environment(variable: str) -> Environment:
    if variable == "claims":
        return kubernetes_environment(stored=True).extended({"claims": map_of(STRING, ANY)})
    return kubernetes_environment(stored=True).extended({"user": _USER.type}, (_USER,))


@lru_cache(maxsize=256)
def compiled(text: str, variable: str, *, rule: bool = False) -> Program:
    """`variable`: `claims` or `user`, the one that there is. A `rule` says yes or no. Raises ExpressionProblem."""
    try:
        program = _environment(variable).compile(text)
    except CelProblem as problem:
        raise ExpressionProblem(f"compilation failed: {problem}") from None
    except CelError as error:
        raise ExpressionProblem(f"program instantiation failed: {error}") from None
    if rule and program.result != BOOL:
        raise ExpressionProblem(f"must evaluate to {declared_name(BOOL)}")
    return program


def uses_claim(program: Program, claim: str) -> bool:
    return any(_is_claim(node, claim) for node in walk(program.tree))


def _is_claim(node: Expr, claim: str) -> bool:
    """`claims.claim` or `claims.?claim`."""
    if isinstance(node, Select):
        return node.field == claim and isinstance(node.operand, Ident) and node.operand.name == "claims"
    if isinstance(node, Call) and node.function == "_?._" and len(node.arguments) == 2:
        of, field = node.arguments
        is_field = isinstance(field, Literal) and field.value == claim
        return is_field and isinstance(of, Ident) and of.name == "claims"
    return False


# -- values -----------------------------------------------------------------------------------------------------------


def as_value(value: Any) -> Any:
    """JSON as these expressions see it: every number is a double, and `a__dot__b` finds the key `a.b`."""
    if type(value) is int:
        return float(value)
    if isinstance(value, dict):
        return _Map(value)
    return _List(value) if isinstance(value, list) else value


class _Map(TypedMap):
    __slots__ = ("_raw",)

    def __init__(self, raw: dict[str, Any]) -> None:
        self._raw = raw

    def __len__(self) -> int:
        return len(self._raw)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._raw)

    def find(self, key: Any) -> Any:
        if type(key) is not str:
            return MISSING
        if "__" in key:
            key = unescape(key) or key
        found = self._raw.get(key, MISSING)
        return found if found is MISSING else as_value(found)

    def equals(self, other: Any) -> bool:
        if not is_map(other) or len(other) != len(self):
            return False
        for key in self._raw:
            theirs = other.get(key, MISSING) if isinstance(other, dict) else other.find(key)
            if theirs is MISSING or not equals(as_value(self._raw[key]), theirs):
                return False
        return True


class _List(TypedList):
    __slots__ = ("_raw",)

    def __init__(self, raw: list[Any]) -> None:
        self._raw = raw

    def __len__(self) -> int:
        return len(self._raw)

    def __iter__(self) -> Iterator[Any]:
        return map(as_value, self._raw)

    def __getitem__(self, index: int) -> Any:
        return as_value(self._raw[index])

    def equals(self, other: Any) -> bool:
        return is_list(other) and len(other) == len(self) and all(map(equals, self, other))
