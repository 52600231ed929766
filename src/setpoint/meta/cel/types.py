"""The static types of CEL: declaration, message types, assignability, and inference of type variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


class Kind(Enum):
    DYN = auto()
    ANY = auto()
    NULL = auto()
    BOOL = auto()
    INT = auto()
    UINT = auto()
    DOUBLE = auto()
    STRING = auto()
    BYTES = auto()
    DURATION = auto()
    TIMESTAMP = auto()
    LIST = auto()
    MAP = auto()
    STRUCT = auto()
    OPAQUE = auto()
    TYPE = auto()
    PARAM = auto()
    ERROR = auto()


class Type:
    """A type, equal to another by kind, name and parameters. A struct's fields are found by its name in an environment
    (see `StructType`), so that types stay small values."""

    __slots__ = ("_hash", "kind", "name", "nullable", "parameters")

    def __init__(self, kind: Kind, name: str, parameters: tuple[Type, ...] = (), nullable: bool = False) -> None:
        self.kind = kind
        self.name = name
        self.parameters = parameters
        self.nullable = nullable  # wrapper types of protocol buffers: the scalar or null
        self._hash = hash((kind, name, parameters, nullable))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Type)
            and self.kind is other.kind
            and self.name == other.name
            and self.nullable == other.nullable
            and self.parameters == other.parameters
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Type({self})"

    def __str__(self) -> str:
        """Return the type as error messages show it."""
        if self.kind is Kind.ERROR:
            return "!error!"
        if self.kind is Kind.NULL:
            return "null"
        if self.kind is Kind.TIMESTAMP:
            return "timestamp"
        if self.kind is Kind.DURATION:
            return "duration"
        if self.kind is Kind.PARAM:
            return self.name
        if self.nullable:
            return f"wrapper({self.name})"
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(map(str, self.parameters))})"

    @property
    def is_dyn(self) -> bool:
        return self.kind is Kind.DYN or self.kind is Kind.ANY

    @property
    def is_dyn_or_error(self) -> bool:
        return self.kind is Kind.DYN or self.kind is Kind.ERROR or self.kind is Kind.ANY

    @property
    def is_optional(self) -> bool:
        return self.kind is Kind.OPAQUE and self.name == "optional_type"


DYN = Type(Kind.DYN, "dyn")
ANY = Type(Kind.ANY, "any")
NULL = Type(Kind.NULL, "null_type")
BOOL = Type(Kind.BOOL, "bool")
INT = Type(Kind.INT, "int")
UINT = Type(Kind.UINT, "uint")
DOUBLE = Type(Kind.DOUBLE, "double")
STRING = Type(Kind.STRING, "string")
BYTES = Type(Kind.BYTES, "bytes")
DURATION = Type(Kind.DURATION, "google.protobuf.Duration")
TIMESTAMP = Type(Kind.TIMESTAMP, "google.protobuf.Timestamp")
TYPE = Type(Kind.TYPE, "type")
ERROR = Type(Kind.ERROR, "*error*")


def list_of(element: Type) -> Type:
    return Type(Kind.LIST, "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type(Kind.MAP, "map", (key, value))


def struct(name: str) -> Type:
    """Return a message or object type; the environment knows its fields."""
    return Type(Kind.STRUCT, name)


def opaque(name: str, *parameters: Type) -> Type:
    return Type(Kind.OPAQUE, name, parameters)


def optional_of(value: Type) -> Type:
    return opaque("optional_type", value)


def type_of(value: Type) -> Type:
    """Return the type of a type."""
    return Type(Kind.TYPE, "type", (value,))


def param(name: str) -> Type:
    return Type(Kind.PARAM, name)


def wrapper(value: Type) -> Type:
    return Type(value.kind, value.name, value.parameters, nullable=True)


def unwrap_optional(value: Type) -> tuple[Type, bool]:
    if value.is_optional:
        return value.parameters[0], True
    return value, False


def declared_name(value: Type) -> str:
    """Return a type as messages about results show it: names as declared, unlike in the checker's own messages."""
    if not value.parameters:
        return f"wrapper({value.name})" if value.nullable else value.name
    return f"{value.name}({', '.join(map(declared_name, value.parameters))})"


@dataclass(frozen=True, slots=True)
class StructType:
    """A type with fields. `construct` builds a value from an expression's `Name{field: value}`."""

    name: str
    fields: Mapping[str, Type]
    construct: Callable[[dict[str, Any]], Any] | None = None
    access: Mapping[str, tuple[str, Callable[[Any], Any] | None]] | None = None
    """Property of each field of a JSON object, and the function that converts it. A field that is null is absent."""

    is_open: bool = False
    """Whether the type has any field, of any type."""

    def field(self, name: str) -> Type | None:
        found = self.fields.get(name)
        return DYN if found is None and self.is_open else found

    @property
    def type(self) -> Type:
        return struct(self.name)


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
        return DYN if unknown_to_dyn else value
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
