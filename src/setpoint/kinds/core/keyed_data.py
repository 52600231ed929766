"""Rules that ConfigMap and Secret share: keyed data of bounded size that may be immutable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from setpoint.kinds.strategy import Obj
from setpoint.meta.field import Errors, forbidden, invalid
from setpoint.meta.names import config_map_key

MAX_SIZE = 1024 * 1024
_SEALED = "field is immutable when `immutable` is set"


def decoded_length(base64_text: str | None) -> int:
    """Return the bytes that a base64 text stands for."""
    if not base64_text:
        return 0
    return len(base64_text) * 3 // 4 - base64_text.count("=", -2)


def validate_keys(data: Mapping[str, str], path: str, errs: Errors) -> None:
    for key in data:
        for text in config_map_key(key):
            errs.append(invalid(f"{path}[{key}]", key, text))


def forbid_change(obj: Obj, old: Obj, bags: Iterable[str], errs: Errors) -> None:
    """Reject changes to an immutable object."""
    if not old.get("immutable"):
        return
    if not obj.get("immutable"):
        errs.append(forbidden("immutable", _SEALED))
    for bag in bags:
        if (obj.get(bag) or {}) != (old.get(bag) or {}):
            errs.append(forbidden(bag, _SEALED))
