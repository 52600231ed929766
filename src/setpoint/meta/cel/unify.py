"""Assignability of types, and inference of type variables."""

from __future__ import annotations

from setpoint.meta.cel import types as t
from setpoint.meta.cel.types import Kind, Type


class Bindings:
    """The inferred types of type variables. A failed trial is undone step by step: copying would make checking
    quadratic."""

    __slots__ = ("_known", "_trail")

    def __init__(self, known: dict[Type, Type] | None = None) -> None:
        self._known: dict[Type, Type] = known or {}
        self._trail: list[tuple[Type, Type | None]] = []

    def get(self, variable: Type) -> Type | None:
        return self._known.get(variable)

    def bind(self, variable: Type, value: Type) -> None:
        self._trail.append((variable, self._known.get(variable)))
        self._known[variable] = value

    def mark(self) -> int:
        return len(self._trail)

    def undo(self, mark: int) -> None:
        while len(self._trail) > mark:
            variable, before = self._trail.pop()
            if before is None:
                del self._known[variable]
            else:
                self._known[variable] = before


_NULLABLE = frozenset({Kind.OPAQUE, Kind.STRUCT, Kind.ANY, Kind.DURATION, Kind.TIMESTAMP})
_COMPOUND = frozenset({Kind.OPAQUE, Kind.LIST, Kind.MAP})


def substitute(bindings: Bindings, value: Type, unknown_to_dyn: bool = False) -> Type:
    """Return the type with everything known about its variables put in."""
    while value.kind is Kind.PARAM and (known := bindings.get(value)) is not None:
        value = known
    if value.kind is Kind.PARAM:
        return t.DYN if unknown_to_dyn else value
    if value.parameters:
        return Type(value.kind, value.name, tuple(substitute(bindings, p, unknown_to_dyn) for p in value.parameters))
    return value


def assignable(bindings: Bindings, first: Type, second: Type) -> bool:
    """Return whether two types unify. On success `bindings` is extended; on failure it is unchanged."""
    mark = bindings.mark()
    if _assignable(bindings, first, second):
        return True
    bindings.undo(mark)
    return False


def all_assignable(bindings: Bindings, first: list[Type], second: tuple[Type, ...]) -> bool:
    if len(first) != len(second):
        return False
    mark = bindings.mark()
    for one, other in zip(first, second):
        if not _assignable(bindings, one, other):
            bindings.undo(mark)
            return False
    return True


def _assignable(bindings: Bindings, first: Type, second: Type) -> bool:
    if second.kind is Kind.PARAM:
        valid, known = _fits(bindings, first, second)
        if valid:
            return True
        if known:
            return False
    if first.kind is Kind.PARAM:
        return _fits(bindings, second, first)[0]
    if first.is_dyn_or_error or second.is_dyn_or_error:
        return True
    if first.kind is Kind.NULL:
        return _takes_null(second)
    if second.kind is Kind.NULL:
        return _takes_null(first)
    if first.kind is Kind.TYPE:
        return second.kind is Kind.TYPE
    if first.kind in _COMPOUND:
        return (
            first.kind is second.kind
            and first.name == second.name
            and len(first.parameters) == len(second.parameters)
            and all(_assignable(bindings, a, b) for a, b in zip(first.parameters, second.parameters))
        )
    return first.kind is second.kind and first.name == second.name


def _takes_null(value: Type) -> bool:
    return value.kind in _NULLABLE or value.nullable or value.kind is Kind.NULL


def _fits(bindings: Bindings, value: Type, variable: Type) -> tuple[bool, bool]:
    """Return whether the variable can be bound to the value, and whether it was bound already."""
    if value == variable:
        return True, True
    known = bindings.get(variable)
    if known is not None:
        if value == known:
            return True, True
        if _assignable(bindings, value, known):
            general = most_general(value, known)
            if not _occurs(bindings, variable, general):
                bindings.bind(variable, general)
            return True, True
        return False, True
    if not _occurs(bindings, variable, value):
        bindings.bind(variable, value)
        return True, False
    return False, False


def _occurs(bindings: Bindings, variable: Type, within: Type) -> bool:
    if variable == within:
        return True
    if within.kind is Kind.PARAM:
        known = bindings.get(within)
        return known is not None and _occurs(bindings, variable, known)
    return any(_occurs(bindings, variable, parameter) for parameter in within.parameters)


def most_general(first: Type, second: Type) -> Type:
    return first if _less_specific(first, second) else second


def _less_specific(first: Type, second: Type) -> bool:
    """Return whether a type equals the other, or has dyn where the other is precise."""
    if first.is_dyn or first.kind is Kind.PARAM:
        return True
    if second.is_dyn or second.kind is Kind.PARAM:
        return False
    if first.kind is not second.kind:
        return False
    if first.kind is Kind.TYPE:
        return True
    if first.kind in _COMPOUND:
        return (
            first.name == second.name
            and len(first.parameters) == len(second.parameters)
            and all(_less_specific(a, b) for a, b in zip(first.parameters, second.parameters))
        )
    return first == second
