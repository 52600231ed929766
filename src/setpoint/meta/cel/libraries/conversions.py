"""`int(...)`, `string(...)`, ...: one type into another."""

from __future__ import annotations

import math
from typing import Any

from setpoint.meta.cel.libraries.go_times import (
    format_duration_seconds,
    format_timestamp,
    read_duration,
    read_timestamp,
)
from setpoint.meta.cel.numbers import format_general, parse_bool, parse_float, parse_int, parse_uint
from setpoint.meta.cel.operators import checked_int, checked_timestamp, checked_uint
from setpoint.meta.cel.types import Type
from setpoint.meta.cel.values import SECOND, CelError, Duration, Timestamp, Uint, type_of_value


def _failed(source: str, target: str) -> CelError:
    return CelError(f"type conversion error from '{source}' to '{target}'")


def _same(value: Any) -> Any:
    return value


def _string_to_bool(value: str) -> bool:
    result = parse_bool(value)
    if result is None:
        raise _failed("string", "bool")
    return result


def _bytes_to_string(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


def _string_to_bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _string_to_double(value: str) -> float:
    result = parse_float(value)
    if result is None:
        raise _failed("string", "double")
    return result


def _double_to_int(value: float) -> int:
    if not -9223372036854775808.0 < value < 9223372036854775808.0:
        raise CelError("integer overflow")
    return int(value)


def _double_to_uint(value: float) -> Uint:
    if not 0 <= value < 18446744073709551616.0:
        raise CelError("unsigned integer overflow")
    return Uint(int(value))


def _string_to_int(value: str) -> int:
    result = parse_int(value)
    if result is None:
        raise _failed("string", "int")
    return result


def _string_to_uint(value: str) -> Uint:
    result = parse_uint(value)
    if result is None:
        raise _failed("string", "uint")
    return Uint(result)


def string_to_duration(value: str) -> Duration:
    result = read_duration(value)
    if result is None:
        raise _failed("string", "google.protobuf.Duration")
    return result


def string_to_timestamp(value: str) -> Timestamp:
    result = read_timestamp(value)
    if result is None:
        raise _failed("string", "google.protobuf.Timestamp")
    return checked_timestamp(result.nanoseconds, result.offset)


def _int_to_timestamp(value: int) -> Timestamp:
    return checked_timestamp(value * SECOND)


def _type(value: Any) -> Type:
    return type_of_value(value)


def _double_to_string(value: float) -> str:
    if value != value or math.isinf(value):
        return format_general(value)
    return format_general(value)


CONVERSIONS: tuple[tuple[str, str, Any], ...] = (
    ("type", "type(A) -> type(A)", _type),
    ("bool_to_bool", "bool(bool) -> bool", _same),
    ("string_to_bool", "bool(string) -> bool", _string_to_bool),
    ("bytes_to_bytes", "bytes(bytes) -> bytes", _same),
    ("string_to_bytes", "bytes(string) -> bytes", _string_to_bytes),
    ("double_to_double", "double(double) -> double", _same),
    ("int64_to_double", "double(int) -> double", float),
    ("string_to_double", "double(string) -> double", _string_to_double),
    ("uint64_to_double", "double(uint) -> double", float),
    ("duration_to_duration", "duration(duration) -> duration", _same),
    ("string_to_duration", "duration(string) -> duration", string_to_duration),
    ("to_dyn", "dyn(A) -> dyn", _same),
    ("int64_to_int64", "int(int) -> int", _same),
    ("double_to_int64", "int(double) -> int", _double_to_int),
    ("duration_to_int64", "int(duration) -> int", lambda value: value.nanoseconds),
    ("string_to_int64", "int(string) -> int", _string_to_int),
    ("timestamp_to_int64", "int(timestamp) -> int", lambda value: value.nanoseconds // SECOND),
    ("uint64_to_int64", "int(uint) -> int", lambda value: checked_int(int(value))),
    ("string_to_string", "string(string) -> string", _same),
    ("bool_to_string", "string(bool) -> string", lambda value: "true" if value else "false"),
    ("bytes_to_string", "string(bytes) -> string", _bytes_to_string),
    ("double_to_string", "string(double) -> string", _double_to_string),
    ("duration_to_string", "string(duration) -> string", format_duration_seconds),
    ("int64_to_string", "string(int) -> string", str),
    ("timestamp_to_string", "string(timestamp) -> string", format_timestamp),
    ("uint64_to_string", "string(uint) -> string", lambda value: str(int(value))),
    ("timestamp_to_timestamp", "timestamp(timestamp) -> timestamp", _same),
    ("int64_to_timestamp", "timestamp(int) -> timestamp", _int_to_timestamp),
    ("string_to_timestamp", "timestamp(string) -> timestamp", string_to_timestamp),
    ("uint64_to_uint64", "uint(uint) -> uint", _same),
    ("double_to_uint64", "uint(double) -> uint", _double_to_uint),
    ("int64_to_uint64", "uint(int) -> uint", lambda value: checked_uint(value)),
    ("string_to_uint64", "uint(string) -> uint", _string_to_uint),
)
