"""The language's own functions and operators, conversions between types, and the parts of timestamps and durations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from setpoint.meta.cel import macros
from setpoint.meta.cel import operators as ops
from setpoint.meta.cel import types as t
from setpoint.meta.cel.compile_calls import never
from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.go_text import (
    format_duration_seconds,
    format_general,
    format_timestamp,
    parse_float,
    parse_int,
    parse_uint,
    read_duration,
    read_timestamp,
)
from setpoint.meta.cel.libraries.regular import matches
from setpoint.meta.cel.operators import checked_int, checked_timestamp, checked_uint
from setpoint.meta.cel.types import Type
from setpoint.meta.cel.values import SECOND, CelError, Duration, Timestamp, Uint, type_of_value
from setpoint.meta.goformat import parse_bool


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


_OFFSET = re.compile(r"[+-]?\d+", re.ASCII)


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    if name.startswith(("/", "\\")) or ".." in name:
        raise CelError("time: invalid location name")
    try:
        return ZoneInfo(name)
    except Exception:  # zoneinfo raises several types of errors for an unknown zone.
        raise CelError(f"unknown time zone {name}") from None


def _offset(when: Timestamp, zone: str) -> int:
    """Return the seconds east of UTC."""
    hours, colon, minutes = zone.partition(":")
    if not colon:
        if zone in ("", "UTC"):
            return 0
        moment = when.aware().astimezone(_zone(zone))
        shift = moment.utcoffset()
        return 0 if shift is None else int(shift.total_seconds())
    for part in (hours, minutes):
        if not _OFFSET.fullmatch(part):
            raise CelError(f'strconv.Atoi: parsing "{part}": invalid syntax')
    if not 0 <= int(minutes) <= 59:
        raise CelError(f"timezone offset minutes out of range [0, 59]: {zone}")
    signed = int(minutes) if not zone.startswith("-") else -int(minutes)
    return (int(hours) * 60 + signed) * 60


def _part(read: Callable[[datetime, int], int]) -> Callable[..., int]:
    def get(when: Timestamp, zone: str = "UTC") -> int:
        return read(when.civil(_offset(when, zone)), when.nanoseconds % SECOND)

    return get


def _span(nanoseconds: int) -> Callable[[Duration], int]:
    def get(value: Duration) -> int:
        whole = abs(value.nanoseconds) // nanoseconds
        return whole if value.nanoseconds >= 0 else -whole

    return get


_PARTS: tuple[tuple[str, str, Callable[[datetime, int], int]], ...] = (
    ("getFullYear", "timestamp_to_year", lambda civil, _: civil.year),
    ("getMonth", "timestamp_to_month", lambda civil, _: civil.month - 1),
    ("getDayOfYear", "timestamp_to_day_of_year", lambda civil, _: civil.timetuple().tm_yday - 1),
    ("getDayOfMonth", "timestamp_to_day_of_month", lambda civil, _: civil.day - 1),
    ("getDate", "timestamp_to_day_of_month_1_based", lambda civil, _: civil.day),
    ("getDayOfWeek", "timestamp_to_day_of_week", lambda civil, _: civil.isoweekday() % 7),
    ("getHours", "timestamp_to_hours", lambda civil, _: civil.hour),
    ("getMinutes", "timestamp_to_minutes", lambda civil, _: civil.minute),
    ("getSeconds", "timestamp_to_seconds", lambda civil, _: civil.second),
    ("getMilliseconds", "timestamp_to_milliseconds", lambda _, fraction: fraction // 1_000_000),
)
_SPANS = (
    ("getHours", "duration_to_hours", 3600 * SECOND),
    ("getMinutes", "duration_to_minutes", 60 * SECOND),
    ("getSeconds", "duration_to_seconds", SECOND),
    ("getMilliseconds", "duration_to_milliseconds", 1_000_000),
)


def _declared() -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = []
    for name, identity, read in _PARTS:
        found.append((identity, f"timestamp::{name}() -> int", _part(read)))
        found.append((f"{identity}_with_tz", f"timestamp::{name}(string) -> int", _part(read)))
        found.extend(
            (span, f"duration::{called}() -> int", _span(unit)) for called, span, unit in _SPANS if called == name
        )
    return found


TIMES = tuple(_declared())


def _size(value: Any) -> int:
    return len(value)


def _order(name: str, word: str) -> list[tuple[str, str, Any]]:
    """Return the overloads of one comparison: each type with itself, and numbers of all types with one another."""
    call = {"_<_": ops.less, "_<=_": ops.less_equal, "_>_": ops.greater, "_>=_": ops.greater_equal}[name]
    names = (
        ("bool", "bool"),
        ("int64", "int"),
        ("int64_double", "int, double"),
        ("int64_uint64", "int, uint"),
        ("uint64", "uint"),
        ("uint64_double", "uint, double"),
        ("uint64_int64", "uint, int"),
        ("double", "double"),
        ("double_int64", "double, int"),
        ("double_uint64", "double, uint"),
        ("string", "string"),
        ("bytes", "bytes"),
        ("timestamp", "timestamp"),
        ("duration", "duration"),
    )
    found = []
    for suffix, arguments in names:
        both = arguments if "," in arguments else f"{arguments}, {arguments}"
        found.append((f"{word}_{suffix}", f"{name}({both}) -> bool", call))
    return found


_SAME = {"int64": "int", "uint64": "uint", "double": "double"}

STANDARD = Library(
    "cel",
    (
        ("conditional", "_?_:_(bool, A, A) -> A", never),
        ("logical_and", "_&&_(bool, bool) -> bool", never),
        ("logical_or", "_||_(bool, bool) -> bool", never),
        ("logical_not", "!_(bool) -> bool", never),
        ("not_strictly_false", "@not_strictly_false(bool) -> bool", never),
        ("equals", "_==_(A, A) -> bool", never),
        ("not_equals", "_!=_(A, A) -> bool", never),
        ("add_bytes", "_+_(bytes, bytes) -> bytes", ops.plus),
        ("add_double", "_+_(double, double) -> double", ops.plus),
        ("add_duration_duration", "_+_(duration, duration) -> duration", ops.plus),
        ("add_duration_timestamp", "_+_(duration, timestamp) -> timestamp", ops.plus),
        ("add_timestamp_duration", "_+_(timestamp, duration) -> timestamp", ops.plus),
        ("add_int64", "_+_(int, int) -> int", ops.plus),
        ("add_list", "_+_(list(A), list(A)) -> list(A)", ops.plus),
        ("add_string", "_+_(string, string) -> string", ops.plus),
        ("add_uint64", "_+_(uint, uint) -> uint", ops.plus),
        *((f"divide_{word}", f"_/_({kind}, {kind}) -> {kind}", ops.divided) for word, kind in _SAME.items()),
        ("modulo_int64", "_%_(int, int) -> int", ops.modulo),
        ("modulo_uint64", "_%_(uint, uint) -> uint", ops.modulo),
        *((f"multiply_{word}", f"_*_({kind}, {kind}) -> {kind}", ops.times) for word, kind in _SAME.items()),
        ("negate_double", "-_(double) -> double", ops.negated),
        ("negate_int64", "-_(int) -> int", ops.negated),
        ("subtract_double", "_-_(double, double) -> double", ops.minus),
        ("subtract_duration_duration", "_-_(duration, duration) -> duration", ops.minus),
        ("subtract_int64", "_-_(int, int) -> int", ops.minus),
        ("subtract_timestamp_duration", "_-_(timestamp, duration) -> timestamp", ops.minus),
        ("subtract_timestamp_timestamp", "_-_(timestamp, timestamp) -> duration", ops.minus),
        ("subtract_uint64", "_-_(uint, uint) -> uint", ops.minus),
        *_order("_<_", "less"),
        *_order("_<=_", "less_equals"),
        *_order("_>_", "greater"),
        *_order("_>=_", "greater_equals"),
        ("index_list", "_[_](list(A), int) -> A", never),
        ("index_map", "_[_](map(A, B), A) -> B", never),
        ("in_list", "@in(A, list(A)) -> bool", ops.contains),
        ("in_map", "@in(A, map(A, B)) -> bool", ops.contains),
        ("size_bytes", "size(bytes) -> int", _size),
        ("bytes_size", "bytes::size() -> int", _size),
        ("size_list", "size(list(A)) -> int", _size),
        ("list_size", "list(A)::size() -> int", _size),
        ("size_map", "size(map(A, B)) -> int", _size),
        ("map_size", "map(A, B)::size() -> int", _size),
        ("size_string", "size(string) -> int", _size),
        ("string_size", "string::size() -> int", _size),
        ("contains_string", "string::contains(string) -> bool", lambda text, part: part in text),
        ("ends_with_string", "string::endsWith(string) -> bool", str.endswith),
        ("starts_with_string", "string::startsWith(string) -> bool", str.startswith),
        ("matches", "matches(string, string) -> bool", matches),
        ("matches_string", "string::matches(string) -> bool", matches),
        *CONVERSIONS,
        *TIMES,
    ),
    macros.STANDARD,
    {
        "bool": t.BOOL,
        "bytes": t.BYTES,
        "double": t.DOUBLE,
        "google.protobuf.Duration": t.DURATION,
        "google.protobuf.Timestamp": t.TIMESTAMP,
        "int": t.INT,
        "list": t.list_of(t.DYN),
        "map": t.map_of(t.DYN, t.DYN),
        "null_type": t.NULL,
        "string": t.STRING,
        "type": t.TYPE,
        "uint": t.UINT,
    },
)
