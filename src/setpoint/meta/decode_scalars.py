"""Decoders of the values that have no parts. Each returns the one form of its value or raises Wrong."""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from typing import Any

from setpoint.meta.decode_report import NumberText, lenient_base64
from setpoint.meta.quantity import QuantityError
from setpoint.meta.quantity import canonical as canonical_quantity
from setpoint.meta.schema import Shape
from setpoint.meta.times import TimeError, canonical_micro, canonical_time, format_duration, parse_duration

Decoder = Callable[[Any, list[bool]], Any]
"""Function that decodes a value and appends to the list for an unknown field; raises Wrong."""


class Wrong(Exception):
    """A value does not fit its type."""


class Inexact(Exception):
    """A number whose text matters was read as a float."""


def decode_any(value: Any, unknown: list[bool]) -> Any:
    return value


def decode_string(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is not str:
        raise Wrong
    return value


def decode_bool(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is not bool:
        raise Wrong
    return value


def decode_int32(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is not int or not -(2**31) <= value < 2**31:
        raise Wrong
    return value


def decode_int64(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is not int or not -(2**63) <= value < 2**63:
        raise Wrong
    return value


def decode_float(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is int:
        value = float(value)
    elif not isinstance(value, float):
        raise Wrong
    return int(value) if abs(value) < 1e21 and value.is_integer() else float(value)


def decode_bytes(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is list:
        if not all(one is None or (one.__class__ is int and 0 <= one < 256) for one in value):
            raise Wrong
        return b2a_base64(bytes(one or 0 for one in value), newline=False).decode()
    if value.__class__ is not str:
        raise Wrong
    try:
        if b2a_base64(a2b_base64(value, strict_mode=True), newline=False).decode() == value:
            return value
    except (Base64Error, ValueError):
        pass
    text = lenient_base64(value)
    if text is None:
        raise Wrong
    return text


def decode_quantity(value: Any, unknown: list[bool]) -> Any:
    try:
        if value.__class__ is str:
            return canonical_quantity(value)
        if value.__class__ is int:
            return canonical_quantity(str(value))
        if value.__class__ is NumberText:
            return canonical_quantity(value.text)
    except QuantityError:
        raise Wrong from None
    if value.__class__ is float:
        raise Inexact
    raise Wrong


def decode_time(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is not str:
        raise Wrong
    try:
        return canonical_time(value)
    except TimeError:
        raise Wrong from None


def decode_microtime(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is not str:
        raise Wrong
    try:
        return canonical_micro(value)
    except TimeError:
        raise Wrong from None


def decode_duration(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is not str:
        raise Wrong
    try:
        return format_duration(parse_duration(value))
    except TimeError:
        raise Wrong from None


def decode_int_or_string(value: Any, unknown: list[bool]) -> Any:
    return value if value.__class__ is str else decode_int32(value, unknown)


SCALARS: dict[Shape, Decoder] = {
    Shape.STRING: decode_string,
    Shape.BYTES: decode_bytes,
    Shape.BOOL: decode_bool,
    Shape.INT32: decode_int32,
    Shape.INT64: decode_int64,
    Shape.FLOAT: decode_float,
    Shape.QUANTITY: decode_quantity,
    Shape.TIME: decode_time,
    Shape.MICROTIME: decode_microtime,
    Shape.DURATION: decode_duration,
    Shape.INT_OR_STRING: decode_int_or_string,
    Shape.ANY: decode_any,
}
