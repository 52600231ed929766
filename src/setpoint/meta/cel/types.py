"""The types of CEL: what an expression can be, known before it runs."""

from __future__ import annotations

from enum import Enum, auto


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
    (see `structs.StructType`), so that types stay small values."""

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
    """Return a message or object type; what fields it has is the environment's to know."""
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
