"""Table columns from the `additionalPrinterColumns` of a definition."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from setpoint.kinds.cell_texts import since
from setpoint.kinds.columns import NAME
from setpoint.kinds.strategy import Column
from setpoint.meta.jsonpath import JsonPath, JsonPathError
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import TimeError, canonical_time

_FIELDS_ONLY = re.compile(r"(\.[A-Za-z0-9_-]+)+")
_MISSING = object()

Find = Callable[[Any], Any]


def printer_columns(given: Sequence[ObjView]) -> tuple[Column, ...]:
    """Return the columns, Name first. An invalid path ends the list."""
    columns = [NAME]
    for one in given or (_AGE,):
        try:
            find, text = path_finder(one.get("jsonPath", ""))
        except JsonPathError:
            break
        described = one.get("description") or _DESCRIBED.format(one.get("jsonPath", ""))
        kind = one.get("type", "")
        shown, priority = one.get("format", ""), int(one.get("priority", 0))
        columns.append(Column(one.get("name", ""), _cell(kind, find, text), kind, shown, described, priority))
    return tuple(columns)


_DESCRIBED = "Custom resource definition column (in JSONPath format): {}"
_AGE = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
    "description": "Time since the object was created.",
}


def path_finder(path: str) -> tuple[Find, Callable[[Any], str]]:
    """Return the first value at the path (`_MISSING` if there is none), and how a value is shown as text."""
    compiled = JsonPath.parse(f"{{{path}}}", allow_missing_keys=True)
    keys = path.split(".")[1:]
    as_it_is = JsonPath.parse("{@}")

    def by_fields(obj: Any) -> Any:
        for key in keys:
            if obj.__class__ is not dict or key not in obj:
                return _MISSING
            obj = obj[key]
        return obj

    def by_path(obj: Any) -> Any:
        try:
            groups = compiled.groups(obj)
        except JsonPathError:
            return _MISSING
        return groups[0][0] if groups and groups[0] else _MISSING

    return by_fields if _FIELDS_ONLY.fullmatch(path) else by_path, as_it_is.render


def is_missing(value: Any) -> bool:
    return value is _MISSING


def _cell(kind: str, find: Find, text: Callable[[Any], str]) -> Callable[[Obj, datetime], Any]:
    def string_cell(obj: Obj, now: datetime) -> Any:
        value = find(obj)
        if value is _MISSING:
            return None
        return value if value.__class__ is str else "<no value>" if value is None else text(value)

    def cell(obj: Obj, now: datetime) -> Any:
        value = find(obj)
        return None if value is _MISSING or value is None else convert(value, now)

    if kind == "string":
        return string_cell
    convert = _CONVERSIONS[kind]
    return cell


def _integer(value: Any, now: datetime) -> Any:
    return int(value) if value.__class__ in (int, float) else None


def _number(value: Any, now: datetime) -> Any:
    return value if value.__class__ in (int, float) else None


def _boolean(value: Any, now: datetime) -> Any:
    return value if value.__class__ is bool else None


def _date(value: Any, now: datetime) -> Any:
    if value.__class__ is not str:
        return None
    try:
        moment = canonical_time(value)
    except TimeError:
        return "<invalid>"
    return since(moment, now)


_CONVERSIONS = {"integer": _integer, "number": _number, "boolean": _boolean, "date": _date}
