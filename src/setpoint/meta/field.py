"""Field errors with upstream's messages.

Paths are plain strings (`spec.containers[0].name`), built only for the fields that a validator visits. Validators take
an `errs` list and append to it; none of them raises and none of them stops at the first error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from setpoint.meta.goformat import quote

OMIT = object()
"""Bad value that is omitted from the message."""

_TITLES = {
    "FieldValueNotFound": "Not found",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueTooFew": "Too few",
    "FieldValueTooShort": "Too short",
    "InternalError": "Internal error",
    "FieldValueTypeInvalid": "Invalid value",
}
_WITHOUT_VALUE = {
    "FieldValueRequired",
    "FieldValueForbidden",
    "FieldValueTooLong",
    "FieldValueTooShort",
    "InternalError",
}

# Go's encoder escapes JSON for HTML.
_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


_MAX_SHOWN_LENGTH = 64 * 1024
"""Maximum number of characters of a bad value in a message. Upstream has no limit."""


class FieldError(NamedTuple):
    reason: str
    field: str
    value: Any
    detail: str

    def body(self) -> str:
        """Return the message without the field."""
        text = _TITLES[self.reason]
        if self.reason not in _WITHOUT_VALUE and self.value is not OMIT:
            text += ": " + _render(self.value)
        return f"{text}: {self.detail}" if self.detail else text

    def message(self) -> str:
        return f"{self.field}: {self.body()}"

    def cause(self) -> dict[str, str]:
        return {"reason": self.reason, "message": self.body(), "field": self.field}


Errors = list[FieldError]


def _render(value: Any) -> str:
    if isinstance(value, str):
        return quote(value if len(value) <= _MAX_SHOWN_LENGTH else value[:_MAX_SHOWN_LENGTH] + "...")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    import orjson  # slow to load; clients that only know the classes of errors do not need it

    return orjson.dumps(value).decode().translate(_HTML)


def aggregate_message(errors: Iterable[FieldError]) -> str:
    """Return the message of one error, or those of several in brackets without duplicates."""
    messages = list(dict.fromkeys(error.message() for error in errors))
    return messages[0] if len(messages) == 1 else "[" + ", ".join(messages) + "]"


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, value, detail)


def type_invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError("FieldValueTypeInvalid", field, value, detail)


def required(field: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", field, "", detail)


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, "", detail)


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError("FieldValueDuplicate", field, value, "")


def not_found(field: str, value: Any) -> FieldError:
    return FieldError("FieldValueNotFound", field, value, "")


def not_supported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    """Return the error for an unsupported value; `supported` is shown in the order given."""
    shown = ", ".join(quote(choice) for choice in supported)
    return FieldError("FieldValueNotSupported", field, value, f"supported values: {shown}" if shown else "")


def too_long(field: str, limit: int, unit: str = "bytes") -> FieldError:
    if limit == 1:
        unit = unit.removesuffix("s")
    detail = f"may not be more than {limit} {unit}" if limit >= 0 else "value is too long"
    return FieldError("FieldValueTooLong", field, "", detail)


def too_many(field: str, count: int, limit: int) -> FieldError:
    items = "item" if limit == 1 else "items"
    detail = f"must have at most {limit} {items}" if limit >= 0 else "has too many items"
    return FieldError("FieldValueTooMany", field, count if count >= 0 else OMIT, detail)


def internal(field: str, detail: str) -> FieldError:
    return FieldError("InternalError", field, "", detail)
