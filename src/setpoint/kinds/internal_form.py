"""Structs as messages print and compare them: like upstream's internal types, with every field, under Go's names."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.quantity import compare

Form = ObjView
"""All fields in Go's order, with the value for an absent one or one of the functions below for a nested struct.

A Go name that is not the capitalized JSON name follows an equals sign: `apiGroups=APIGroups`."""
_EMPTY: Obj = {'""': "", "0": 0, "false": False, '"0"': "0", "{}": {}}
_SELECTOR = {"matchLabels", "matchExpressions"}
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})
_AMOUNTS = frozenset({"limits", "requests", "overhead", "allocatedResources", "capacity"})
_AMOUNT = frozenset({"sizeLimit", "divisor"})


def internal_form(value: ObjView, form: Form) -> Obj:
    shown = {}
    for field, absent in form.items():
        name, _, go_name = field.partition("=")
        shown[go_name or name[0].upper() + name[1:]] = (
            absent(value.get(name)) if callable(absent) else value.get(name, absent)
        )
    return shown


def struct(form: Form) -> Callable[[Any], Any]:
    return lambda value: internal_form(value or {}, form)


def pointer(form: Form) -> Callable[[Any], Any]:
    return lambda value: None if value is None else internal_form(value, form)


def items(form: Form) -> Callable[[Any], Any]:
    return lambda values: None if not values else [internal_form(value, form) for value in values]


def mapping(form: Form) -> Callable[[Any], Any]:
    return lambda values: None if not values else {key: internal_form(value, form) for key, value in values.items()}


@lru_cache(maxsize=1)
def _table() -> dict[str, list[tuple[str, str, str]]]:
    parsed: dict[str, list[tuple[str, str, str]]] = orjson.loads(
        Path(__file__).with_name("data").joinpath("internal_core.json").read_bytes()
    )
    return parsed


def internal(type_name: str, value: ObjView | None) -> Obj:
    """Return the value of this type with all its fields."""
    value = value or {}
    out: Obj = {}
    for go_name, name, kind in _table()[type_name]:
        given = value.get(name)
        if kind == "inline":
            out.update(given or {})
        elif kind in _EMPTY:
            out[go_name] = _EMPTY[kind] if given is None else given
        elif kind.startswith("[]"):
            item = kind[2:]
            out[go_name] = [internal(item, one) for one in given] if given and item else given or None
        elif kind == "*":
            # Maps are printed in the order of their keys; label selectors are API types, in the order of their fields.
            is_map = isinstance(given, dict) and not given.keys() <= _SELECTOR
            out[go_name] = dict(sorted((given or {}).items())) if is_map else given
        elif kind.startswith("*"):
            out[go_name] = None if given is None else internal(kind[1:], given)
        else:
            out[go_name] = internal(kind, given)
    return out


def shown(type_name: str, value: ObjView | None) -> orjson.Fragment:
    """Return the value of this type as upstream prints it in messages."""
    return as_json(internal(type_name, value))


def as_json(value: Any) -> orjson.Fragment:
    """Return the value as JSON, which messages show for pointers, list items and map values."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return orjson.Fragment(text.translate(_ESCAPES))


def internal_diff(type_name: str, left: ObjView, right: ObjView) -> str:
    """Return a unified diff of the two, printed as indented JSON."""
    # Imported here because only the message about an invalid update needs it.
    from difflib import unified_diff

    before, after = _lines(type_name, left), _lines(type_name, right)
    return "".join(list(unified_diff(before, after))[2:])


def _lines(type_name: str, value: ObjView) -> list[str]:
    text = json.dumps(internal(type_name, value), indent=1, ensure_ascii=False).translate(_ESCAPES)
    return [line + "\n" for line in text.split("\n")]


def same(left: Any, right: Any) -> bool:
    if left == right:
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same_value(key, left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return False


def _same_value(key: str, left: Any, right: Any) -> bool:
    if left == right:
        return True
    if key in _AMOUNTS and isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(compare(left[name], right[name]) == 0 for name in left)
    if key in _AMOUNT and isinstance(left, str) and isinstance(right, str):
        return compare(left, right) == 0
    return same(left, right)
