"""`a.b`, `a.?b`, `has(a.b)`: reading fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from setpoint.meta.cel.code import Code, Frame, refunding
from setpoint.meta.cel.json_values import TypedObject
from setpoint.meta.cel.operators import find_index, get_index
from setpoint.meta.cel.syntax import Call, Literal, Select
from setpoint.meta.cel.types import Kind
from setpoint.meta.cel.values import MISSING, NONE, CelError, Optional

if TYPE_CHECKING:
    from setpoint.meta.cel.compiler import Compiler


def compile_select(compiler: Compiler, expr: Select) -> Code:
    operand = compiler.compile(expr.operand)
    name = expr.field
    read = refunding(operand.run, 1)
    kind = expr.operand.type.kind
    access = compiler.access(expr.operand.type, name) if kind is Kind.STRUCT else None
    if access is not None:
        key, convert = access

        def of_object(frame: Frame) -> Any:
            value = read(frame)
            if type(value) is TypedObject:
                value = value.raw
            elif type(value) is not dict:
                return get_index(value, name)
            found = value.get(key)
            if found is None:
                raise CelError(f"no such key: {name}")
            return found if convert is None else convert(found)

        return operand.qualified(of_object, 1)
    if kind is Kind.MAP:

        def of_map(frame: Frame) -> Any:
            value = read(frame)
            if type(value) is dict:
                try:
                    return value[name]
                except KeyError:
                    raise CelError(f"no such key: {name}") from None
            return get_index(value, name)

        return operand.qualified(of_map, 1)
    if kind in (Kind.DYN, Kind.OPAQUE, Kind.ANY):
        return _maybe_optional(operand, name)
    return operand.qualified(lambda frame: get_index(read(frame), name), 1)


def _maybe_optional(operand: Code, name: str) -> Code:
    """Compile a selection whose operand may be optional: then an absent field is no error and costs nothing."""
    read = operand.run

    def run(frame: Frame) -> Any:
        value = read(frame)
        if type(value) is dict:
            frame[0] += 1
            try:
                return value[name]
            except KeyError:
                raise CelError(f"no such key: {name}") from None
        if type(value) is Optional:
            return _from_optional(frame, value, name)
        frame[0] += 1
        return get_index(value, name)

    return operand.qualified(run, 0)


def _from_optional(frame: Frame, value: Optional, key: Any) -> Any:
    if not value.present:
        return NONE
    found = find_index(value.value, key)
    if found is MISSING:
        return NONE
    frame[0] += 1
    return Optional(found)


def compile_opt_select(compiler: Compiler, expr: Call) -> Code:
    name = expr.arguments[1]
    assert isinstance(name, Literal)
    return _optional_index(compiler.compile(expr.arguments[0]), name.value)


def _optional_index(operand: Code, key: Any) -> Code:
    """Compile `a.?b` and `a[?b]` with a constant key."""
    read = operand.run

    def run(frame: Frame) -> Any:
        value = read(frame)
        if type(value) is Optional:
            return _from_optional(frame, value, key)
        found = find_index(value, key)
        if found is MISSING:
            return NONE
        frame[0] += 1
        return Optional(found)

    return operand.qualified(run, 0)


def compile_test(compiler: Compiler, expr: Select) -> Code:
    """Compile `has(a.b)`, which costs as much as reading `a`; the test itself is free."""
    operand = compiler.compile(expr.operand)
    read, name = refunding(operand.run, 1), expr.field
    base = operand.bare + 1
    kind = expr.operand.type.kind
    access = compiler.access(expr.operand.type, name) if kind is Kind.STRUCT else None
    if access is not None:
        key = access[0]

        def of_object(frame: Frame) -> bool:
            value = read(frame)
            if type(value) is TypedObject:
                value = value.raw
            elif type(value) is not dict:
                return find_index(value, name) is not MISSING
            return value.get(key) is not None

        return Code(of_object, base)
    if kind is Kind.MAP:

        def of_map(frame: Frame) -> bool:
            value = read(frame)
            if type(value) is dict:
                return name in value
            return find_index(value, name) is not MISSING

        return Code(of_map, base)

    def general(frame: Frame) -> bool:
        value = read(frame)
        if type(value) is Optional:
            return value.present and find_index(value.value, name) is not MISSING
        return find_index(value, name) is not MISSING

    return Code(general, base)


def compile_index(operand: Code, index: Code) -> Code:
    """Compile `a[b]`."""
    read, at = refunding(operand.run, index.bare + 1), index.run
    if index.constant:
        key = index.value

        def fixed(frame: Frame) -> Any:
            value = read(frame)
            if type(value) is list and type(key) is int:
                if 0 <= key < len(value):
                    return value[key]
                raise CelError(f"index out of bounds: {key}")
            if type(value) is Optional:
                frame[0] -= 1  # Already charged for the whole expression.
                return _from_optional(frame, value, key)
            return get_index(value, key)

        return operand.qualified(fixed, 1)

    def run(frame: Frame) -> Any:
        value = read(frame)
        key = at(frame)
        if type(value) is list and type(key) is int:
            if 0 <= key < len(value):
                return value[key]
            raise CelError(f"index out of bounds: {key}")
        if type(value) is dict and type(key) is str:
            try:
                return value[key]
            except KeyError:
                raise CelError(f"no such key: {key}") from None
        if type(value) is Optional:
            frame[0] -= 1
            return _from_optional(frame, value, key)
        return get_index(value, key)

    return operand.qualified(run, index.bare + 1)


def compile_opt_index(operand: Code, index: Code) -> Code:
    """Compile `a[?b]`."""
    if index.constant:
        return _optional_index(operand, index.value)
    read, at = refunding(operand.run, index.bare), index.run

    def run(frame: Frame) -> Any:
        value = read(frame)
        key = at(frame)
        if type(value) is Optional:
            return _from_optional(frame, value, key)
        found = find_index(value, key)
        if found is MISSING:
            return NONE
        frame[0] += 1
        return Optional(found)

    return operand.qualified(run, index.bare)
