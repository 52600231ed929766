"""Errors of patches: classes that are distinguished by the response to the client, and upstream's error for a patched
document that no longer fits its type.
"""

from __future__ import annotations

from typing import Any

from setpoint.meta.errors import ApiError, BadRequest, Invalid, PlainServerError, RequestTooLarge
from setpoint.meta.schema import Shape, Type


class PatchError(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def to_api(self) -> ApiError:
        return PlainServerError(self.message)


class PatchUndecodable(PatchError):
    def to_api(self) -> ApiError:
        return BadRequest(self.message)


class PatchTooLarge(PatchError):
    def to_api(self) -> ApiError:
        return RequestTooLarge(self.message)


class PatchUnprocessable(PatchError):
    def to_api(self) -> ApiError:
        return Invalid("the server rejected our request due to an error in our request", details={})


class PatchRefused(PatchError):
    pass


_SCALARS = {
    Shape.STRING: "string",
    Shape.BOOL: "bool",
    Shape.INT32: "int32",
    Shape.INT64: "int64",
    Shape.FLOAT: "float64",
}

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
        # Go converts numbers to each other and integers to text, and nothing else.
        if (given in _NUMBERS and wanted in _NUMBERS) or (given == "int64" and wanted == "string"):
            return f"cannot convert {given} to {type_.go or wanted}"
        return f"unrecognized type: {wanted}"
    return None
