"""Type checks of values with the messages of server-side apply, which differ from those of the decoder."""

from __future__ import annotations

from typing import Any

from setpoint.meta.apply.field_set import text
from setpoint.meta.apply.items import element_function, item_problem
from setpoint.meta.goformat import plain, quote, type_name
from setpoint.meta.schema import ListType, Shape, Type

Problem = tuple[str, str]
"""Path and message."""

_NUMBERS = frozenset({Shape.INT32, Shape.INT64, Shape.FLOAT})
_STRINGS = frozenset({Shape.STRING, Shape.BYTES, Shape.DURATION})


def problems(type_: Type, value: Any, *, allow_duplicates: bool = False) -> list[Problem]:
    """Return the type errors in `value`. Null is valid everywhere."""
    out: list[Problem] = []
    _check(type_, value, "", allow_duplicates, out)
    return out


def problems_text(found: list[Problem]) -> str:
    lines = [f"{path}: {message}" if path else message for path, message in found]
    return lines[0] if len(lines) == 1 else "\n".join(["errors:", *("  " + line for line in lines)])


def _check(type_: Type, value: Any, path: str, allow_duplicates: bool, out: list[Problem]) -> None:
    shape = type_.shape
    if value is None or shape is Shape.ANY:
        return
    if shape is Shape.STRUCT:
        _check_struct(type_, value, path, allow_duplicates, out)
    elif shape is Shape.LIST:
        _check_list(type_, value, path, allow_duplicates, out)
    elif shape is Shape.MAP:
        if type(value) is not dict:
            out.append((path, f"expected map, got &{{{plain(value)}}}"))
        elif type_.item is not None:
            for name, member in value.items():
                _check(type_.item, member, f"{path}.{name}", allow_duplicates, out)
    elif shape in _NUMBERS:
        if type(value) not in (int, float):
            out.append((path, f"expected numeric (int or float), got {type_name(value)}"))
    elif shape in _STRINGS:
        if type(value) is not str:
            out.append((path, f"expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"))
    elif shape is Shape.BOOL:
        if type(value) is not bool:
            out.append((path, f"expected boolean, got &{{{plain(value)}}}"))
    elif type(value) in (dict, list):
        out.append((path, f"expected any scalar, got &{{{plain(value)}}}"))


def _check_struct(type_: Type, value: Any, path: str, allow_duplicates: bool, out: list[Problem]) -> None:
    if type(value) is not dict:
        out.append((path, f"expected map, got &{{{plain(value)}}}"))
        return
    for name, member in value.items():
        field = type_.fields.get(name)
        if field is not None:
            _check(field.type, member, f"{path}.{name}", allow_duplicates, out)
        elif not type_.preserve_unknown:
            # The first unknown field ends the check of this struct.
            out.append((f"{path}.{name}", "field not declared in schema"))
            return


def _check_list(type_: Type, value: Any, path: str, allow_duplicates: bool, out: list[Problem]) -> None:
    if type(value) is not list:
        out.append((path, f"expected list, got &{{{plain(value)}}}"))
        return
    item_type = type_.item
    if type_.list_type is ListType.ATOMIC:
        if item_type is not None:
            for index, item in enumerate(value):
                _check(item_type, item, f"{path}[{index}]", allow_duplicates, out)
        return
    element_of = element_function(type_)
    seen: set[str] = set()
    for index, item in enumerate(value):
        element = element_of(item)
        if element is None:
            out.append((path, f"element {index}: {item_problem(type_, item)}"))
            return
        if element in seen and not allow_duplicates:
            out.append((path, f"duplicate entries for key {text(element)}"))
        seen.add(element)
        if item_type is not None:
            _check(item_type, item, path + text(element), allow_duplicates, out)


def _go_syntax(value: Any) -> str:
    """Return Go's %#v."""
    if value is None:
        return "interface {}(nil)"
    if type(value) is str:
        return quote(value)
    if type(value) is dict:
        inner = ", ".join(f"{quote(name)}:{_go_syntax(value[name])}" for name in sorted(value))
        return f"map[string]interface {{}}{{{inner}}}"
    if type(value) is list:
        return "[]interface {}{" + ", ".join(map(_go_syntax, value)) + "}"
    return plain(value)
