"""Macros with two variables (`m.all(key, value, ...)`), `cel.bind`, and the function behind `transformMap`."""

from __future__ import annotations

from typing import Any

from setpoint.meta.cel import macros
from setpoint.meta.cel.compile_loops import entries
from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.operators import show
from setpoint.meta.cel.values import CelError, key_of


def _insert(target: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    if key_of(key) in target:
        raise CelError(f"insert failed: key {show(key)} already exists")
    target[key_of(key)] = value  # only macros call this, with the map that they are filling
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
