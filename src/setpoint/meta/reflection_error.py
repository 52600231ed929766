"""Upstream's error for a strategically patched document that no longer fits its type.

Upstream converts such a document to a typed object by reflection, with messages of its own. Here the decoder has
rejected the document already, and this only finds the message."""

from __future__ import annotations

from typing import Any

from setpoint.meta.schema import Shape, Type

_SCALARS = {
    Shape.STRING: "string", Shape.BOOL: "bool", Shape.INT32: "int32", Shape.INT64: "int64", Shape.FLOAT: "float64",
}  # fmt: skip

_NUMBERS = frozenset({"int32", "int64", "float64"})


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64"
    if isinstance(value, float):
        return "float64"
    if isinstance(value, str):
        return "string"
    return "map" if isinstance(value, dict) else "slice"


def reflection_error(type_: Type, value: Any) -> str | None:
    """Return the message for the first type mismatch, or None if there is none."""
    if value is None:
        return None
    shape = type_.shape
    if shape is Shape.STRUCT:
        if not isinstance(value, dict):
            return f"cannot restore struct from: {_kind(value)}"
        for name, field in type_.fields.items():
            if name in value:
                wrong = reflection_error(field.type, value[name])
                if wrong:
                    return wrong
    elif shape is Shape.MAP:
        if not isinstance(value, dict):
            return f"cannot restore map from {_kind(value)}"
        for item in value.values():
            wrong = reflection_error(type_.item, item) if type_.item is not None else None
            if wrong:
                return wrong
    elif shape is Shape.LIST:
        if not isinstance(value, list):
            return f"cannot restore slice from {_kind(value)}"
        for item in value:
            wrong = reflection_error(type_.item, item) if type_.item is not None else None
            if wrong:
                return wrong
    elif shape in _SCALARS:
        wanted, given = _SCALARS[shape], _kind(value)
        if given == wanted or (given in _NUMBERS and wanted in _NUMBERS and value == int(value)):
            return None
        # Go converts numbers to each other and integers to text; for anything else it knows no way at all.
        if (given in _NUMBERS and wanted in _NUMBERS) or (given == "int64" and wanted == "string"):
            return f"cannot convert {given} to {type_.go or wanted}"
        return f"unrecognized type: {wanted}"
    return None
