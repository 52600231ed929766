"""The language's own functions and operators."""

from __future__ import annotations

from typing import Any

from setpoint.meta.cel import macros
from setpoint.meta.cel import operators as ops
from setpoint.meta.cel import types as t
from setpoint.meta.cel.compile_calls import never
from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.libraries.conversions import CONVERSIONS
from setpoint.meta.cel.libraries.regular import matches
from setpoint.meta.cel.libraries.times import TIMES


def _size(value: Any) -> int:
    return len(value)


def _order(name: str, word: str) -> list[tuple[str, str, Any]]:
    """Return the overloads of one comparison: each type with itself, and numbers of all types with one another."""
    call = {"_<_": ops.less, "_<=_": ops.less_equal, "_>_": ops.greater, "_>=_": ops.greater_equal}[name]
    names = (
        ("bool", "bool"), ("int64", "int"), ("int64_double", "int, double"), ("int64_uint64", "int, uint"),
        ("uint64", "uint"), ("uint64_double", "uint, double"), ("uint64_int64", "uint, int"),
        ("double", "double"), ("double_int64", "double, int"), ("double_uint64", "double, uint"),
        ("string", "string"), ("bytes", "bytes"), ("timestamp", "timestamp"), ("duration", "duration"),
    )  # fmt: skip
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
