"""Lists that are sets have each item once, and lists with keys each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from setpoint.kinds.apiextensions.value_walk import Rule, Schema
from setpoint.meta.field import Errors, duplicate, invalid


def list_rule(schema: Schema) -> Rule | None:
    list_type = schema.get("x-kubernetes-list-type")
    if list_type == "set":
        return _check_set
    if list_type != "map":
        return None
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())

    def check_keyed(value: Any, path: str, errs: Errors) -> None:
        if value.__class__ is not list:
            return
        for i, item in enumerate(value):
            if item is not None and item.__class__ is not dict:
                errs.append(invalid(f"{path}[{i}]", item, "must be an object for an array of list-type map"))
                return
        if len(value) > 1:
            found = [{key: item[key] for key in keys if key in item} if item else {} for item in value]
            errs.extend(duplicate(f"{path}[{i}]", found[i]) for i in _repeated(found))

    return check_keyed


def _check_set(value: Any, path: str, errs: Errors) -> None:
    if value.__class__ is list and len(value) > 1:
        errs.extend(duplicate(f"{path}[{i}]", value[i]) for i in _repeated(value))


def _repeated(values: Sequence[Any]) -> list[int]:
    """Return the index of the second occurrence of each repeated value."""
    times: dict[bytes, int] = {}
    found = []
    for i, value in enumerate(values):
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        times[text] = times.get(text, 0) + 1
        if times[text] == 2:
            found.append(i)
    return found
