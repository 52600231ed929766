"""Values as Go sees them: concrete values, interface values, and absent values."""

from __future__ import annotations

from typing import Any, Final

from setpoint.meta import goformat


class Int(int):
    """Go's `int`, for constants and lengths; numbers from JSON are `int64`."""

    __slots__ = ()


class Byte(int):
    """A byte of a string."""

    __slots__ = ()


class Boxed:
    """A value from a map or list, which is an `interface {}` in Go; None inside is nil."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Absent:
    def __repr__(self) -> str:
        return "<no value>"


ABSENT: Final = _Absent()
"""An absent value: a missing key, or a dereferenced nil."""


def unboxed(value: Any) -> Any:
    if isinstance(value, Boxed):
        return ABSENT if value.value is None else value.value
    return value


def plain_value(value: Any) -> Any:
    """Return the plain value for functions that accept anything; None if it is absent."""
    value = unboxed(value)
    return None if value is ABSENT else value


def type_name(value: Any) -> str:
    if isinstance(value, Boxed):
        return "interface {}"
    if isinstance(value, Int):
        return "int"
    if isinstance(value, Byte):
        return "uint8"
    return goformat.type_name(value)


def is_true(value: Any) -> bool:
    value = unboxed(value)
    return value is not ABSENT and value is not None and bool(value)


def utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
