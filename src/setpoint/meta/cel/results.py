"""Values as JSON: what a policy makes of the result of an expression."""

from __future__ import annotations

import base64
from typing import Any

from setpoint.meta.cel.compile_loops import entries
from setpoint.meta.cel.libraries.go_times import format_duration_seconds, format_timestamp
from setpoint.meta.cel.values import (
    CelError,
    Duration,
    Message,
    Opaque,
    Optional,
    Timestamp,
    Uint,
    is_list,
    is_map,
    type_of_value,
)


def to_json(value: Any) -> Any:
    """Return the value as JSON: messages and maps become objects, bytes base64, times text. Raises CelError where a
    value has no JSON, or a key is no string."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is Uint:
        return int(value)
    if type(value) is bytes:
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration_seconds(value)
    if isinstance(value, Message):
        return {name: to_json(item) for name, item in value.fields.items()}
    if is_list(value):
        return [to_json(item) for item in value]
    if is_map(value):
        result = {}
        for key, item in entries(value):
            if type(key) is not str:
                raise CelError(f"map key {key!r} is of type {type_of_value(key).name}, not string")
            result[key] = to_json(item)
        return result
    if isinstance(value, Optional) and value.present:
        return to_json(value.value)
    if isinstance(value, Opaque):
        return str(value)
    raise CelError(f"{type_of_value(value).name} cannot be converted to JSON")


def misnamed_types(value: Any) -> list[str]:
    """Return errors for messages `Object.a.b{}` that are not in the field that their type name says."""
    problems: list[str] = []
    _check(value, value.type.name if isinstance(value, Message) else "", problems)
    return problems


def _check(value: Any, path: str, problems: list[str]) -> None:
    if isinstance(value, Message):
        name = value.type.name
        if name != path:
            problems.append(
                f'unexpected type name "{name}", expected "{path}", which matches field name path from root Object type'
            )
        for field, item in value.fields.items():
            _check(item, f"{path}.{field}", problems)
    elif is_list(value):
        for item in value:
            _check(item, path, problems)
    elif is_map(value):
        for _, item in entries(value):
            _check(item, path, problems)
