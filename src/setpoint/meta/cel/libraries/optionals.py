"""Optional values (`a.?b.orValue(c)`), macros with two variables (`m.all(key, value, ...)`) and `cel.bind`."""

from __future__ import annotations

from typing import Any

from setpoint.meta.cel import macros
from setpoint.meta.cel import types as t
from setpoint.meta.cel.compile_calls import never
from setpoint.meta.cel.compile_loops import entries
from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.operators import show
from setpoint.meta.cel.values import (
    NONE,
    CelError,
    Duration,
    Opaque,
    Optional,
    Timestamp,
    is_list,
    is_map,
    key_of,
)

_ZERO_TIME = -62135596800 * 1_000_000_000


def is_zero(value: Any) -> bool:
    """Return whether a value is the default of its type."""
    if value is None:
        return True
    if isinstance(value, Duration):
        return value.nanoseconds == 0
    if isinstance(value, Timestamp):
        return value.nanoseconds == _ZERO_TIME
    if isinstance(value, Opaque):
        return value.is_zero()
    if isinstance(value, Optional):
        return not value.present
    if is_list(value) or is_map(value):
        return len(value) == 0
    return not value if isinstance(value, bool | int | float | str | bytes) else False


def _of_non_zero(value: Any) -> Optional:
    return NONE if is_zero(value) else Optional(value)


def _unwrapped(values: Any) -> list[Any]:
    result = []
    for value in values:
        if not isinstance(value, Optional):
            raise CelError(f"value {show(value)} is not optional")
        if value.present:
            result.append(value.value)
    return result


OPTIONALS = Library(
    "cel.lib.optional",
    (
        ("optional_of", "optional.of(V) -> optional(V)", Optional),
        ("optional_ofNonZeroValue", "optional.ofNonZeroValue(V) -> optional(V)", _of_non_zero),
        ("optional_none", "optional.none() -> optional(V)", lambda: NONE),
        ("optional_value", "optional(V)::value() -> V", Optional.get),
        ("optional_hasValue", "optional(V)::hasValue() -> bool", lambda value: value.present),
        ("optional_or_optional", "optional(V)::or(optional(V)) -> optional(V)", never),
        ("optional_orValue_value", "optional(V)::orValue(V) -> V", never),
        ("select_optional_field", "_?._(dyn, string) -> optional(V)", never),
        ("list_optindex_optional_int", "_[?_](list(V), int) -> optional(V)", never),
        ("optional_list_optindex_optional_int", "_[?_](optional(list(V)), int) -> optional(V)", never),
        ("map_optindex_optional_value", "_[?_](map(K, V), K) -> optional(V)", never),
        ("optional_map_optindex_optional_value", "_[?_](optional(map(K, V)), K) -> optional(V)", never),
        ("optional_list_index_int", "_[_](optional(list(V)), int) -> optional(V)", never),
        ("optional_map_index_value", "_[_](optional(map(K, V)), K) -> optional(V)", never),
        ("list_last", "list(V)::last() -> optional(V)", lambda v: Optional(v[len(v) - 1]) if len(v) else NONE),
        ("list_first", "list(V)::first() -> optional(V)", lambda v: Optional(v[0]) if len(v) else NONE),
        ("optional_unwrap", "optional.unwrap(list(optional(V))) -> list(V)", _unwrapped),
        ("optional_unwrapOpt", "list(optional(V))::unwrapOpt() -> list(V)", _unwrapped),
    ),
    macros.OPTIONALS,
    {"optional_type": t.optional_of(t.DYN)},
    optional_syntax=True,
)


def _insert(target: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    if key_of(key) in target:
        raise CelError(f"insert failed: key {show(key)} already exists")
    target[key_of(key)] = value  # Only macros call this, with the map that they fill.
    return target


def _insert_all(target: dict[Any, Any], more: Any) -> dict[Any, Any]:
    for key, value in entries(more):
        _insert(target, key, value)
    return target


TWO_VARIABLE_COMPREHENSIONS = Library(
    "cel.lib.ext.comprev2",
    (
        ("@mapInsert_map_key_value", "cel.@mapInsert(map(K, V), K, V) -> map(K, V)", _insert),
        ("@mapInsert_map_map", "cel.@mapInsert(map(K, V), map(K, V)) -> map(K, V)", _insert_all),
    ),
    macros.TWO_VARIABLES,
)
BINDINGS = Library("cel.lib.ext.cel.bindings", (), macros.BINDINGS)
