"""Declarations of an environment: functions with their overloads, and libraries of them.

A signature is one line, as the documentation of CEL writes it:

    size(list(A)) -> int                    a global function
    string::charAt(int) -> string           a method
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from setpoint.meta.cel import types as t
from setpoint.meta.cel.macros import Macro, MacroKey
from setpoint.meta.cel.types import Kind, Type

Implementation = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Overload:
    """One overload of a function: its argument types, its result type, and the Python function that implements it."""

    id: str
    member: bool
    arguments: tuple[Type, ...]
    result: Type
    call: Implementation
    variables: tuple[Type, ...]


@dataclass(slots=True)
class Function:
    name: str
    overloads: list[Overload] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Library:
    """A set of functions, macros and types that an environment can have."""

    name: str
    functions: tuple[tuple[str, str, Implementation], ...] = ()
    """The overload id, the signature and the implementation of each function."""
    macros: Mapping[MacroKey, Macro] = field(default_factory=dict)
    types: Mapping[str, Type] = field(default_factory=dict)
    """Names of types that an expression may use as values."""
    optional_syntax: bool = False


_NAMES = {
    "dyn": t.DYN,
    "null": t.NULL,
    "bool": t.BOOL,
    "int": t.INT,
    "uint": t.UINT,
    "double": t.DOUBLE,
    "string": t.STRING,
    "bytes": t.BYTES,
    "duration": t.DURATION,
    "timestamp": t.TIMESTAMP,
    "type": t.TYPE,
}
_WORD = re.compile(r"(?<!\s)\s*+([A-Za-z_@][A-Za-z0-9_.@]*|[(),])")


class _Reader:
    def __init__(self, text: str) -> None:
        self.words = _WORD.findall(text)
        self.at = 0

    def peek(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def take(self) -> str:
        word = self.peek()
        self.at += 1
        return word

    def type(self) -> Type:
        name = self.take()
        parameters: list[Type] = []
        if self.peek() == "(":
            self.take()
            while self.peek() != ")":
                parameters.append(self.type())
                if self.peek() == ",":
                    self.take()
            self.take()
        if name == "list":
            return t.list_of(parameters[0])
        if name == "map":
            return t.map_of(parameters[0], parameters[1])
        if name == "optional":
            return t.optional_of(parameters[0])
        if name == "type" and parameters:
            return t.type_of(parameters[0])
        if name in _NAMES:
            return _NAMES[name]
        if len(name) == 1 and name.isupper():
            return t.param(name)
        if name.startswith("kubernetes."):
            return t.struct(name)  # To the checker, the types of Kubernetes' libraries are messages.
        return t.opaque(name, *parameters)


@lru_cache(maxsize=2048)
def parse_type(text: str) -> Type:
    return _Reader(text).type()


def _variables(values: tuple[Type, ...]) -> tuple[Type, ...]:
    found: dict[Type, None] = {}
    pending = list(values)
    while pending:
        value = pending.pop()
        if value.kind is Kind.PARAM:
            found[value] = None
        pending.extend(value.parameters)
    return tuple(found)


def overload(identity: str, signature: str, call: Implementation) -> tuple[str, Overload]:
    """Parse a signature to the name of the function and the overload."""
    head, _, result_text = signature.partition(" -> ")
    target_text, member, rest = head.rpartition("::")
    name, _, arguments_text = rest.partition("(")
    arguments: list[Type] = [parse_type(target_text)] if member else []
    reader = _Reader(arguments_text[:-1])
    while reader.peek():
        arguments.append(reader.type())
        if reader.peek() == ",":
            reader.take()
    result = parse_type(result_text)
    wanted = tuple(arguments)
    return name, Overload(identity, bool(member), wanted, result, call, _variables((*wanted, result)))
