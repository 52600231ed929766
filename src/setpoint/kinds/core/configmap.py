"""ConfigMap: keys and values that Pods read; and the rules for keyed data of bounded size, which Secret shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, forbidden, invalid, too_long
from setpoint.meta.names import config_map_key
from setpoint.meta.objects import Obj

MAX_SIZE = 1024 * 1024
_IMMUTABLE_TEXT = "field is immutable when `immutable` is set"


def decoded_length(base64_text: str | None) -> int:
    """Return the bytes that a base64 text stands for."""
    if not base64_text:
        return 0
    return len(base64_text) * 3 // 4 - base64_text.count("=", -2)


def validate_keys(data: Mapping[str, str], path: str, errs: Errors) -> None:
    for key in data:
        for text in config_map_key(key):
            errs.append(invalid(f"{path}[{key}]", key, text))


def forbid_change(obj: Obj, old: Obj, fields: Iterable[str], errs: Errors) -> None:
    """Reject changes to an immutable object."""
    if not old.get("immutable"):
        return
    if not obj.get("immutable"):
        errs.append(forbidden("immutable", _IMMUTABLE_TEXT))
    for field in fields:
        if (obj.get(field) or {}) != (old.get(field) or {}):
            errs.append(forbidden(field, _IMMUTABLE_TEXT))


def _entries(obj: Obj, now: datetime) -> int:
    return len(obj.get("data", ())) + len(obj.get("binaryData", ()))


class ConfigMapStrategy(Strategy):
    columns = (NAME, Column("Data", _entries, description="How many keys it holds."), AGE)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        size = 0
        for key, value in data.items():
            for text in config_map_key(key):
                errs.append(invalid(f"data[{key}]", key, text))
            if key in binary:
                errs.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
            size += len(value) if value.isascii() else len(value.encode())
        validate_keys(binary, "binaryData", errs)
        size += sum(map(decoded_length, binary.values()))
        if size > MAX_SIZE:
            # Upstream reports an object that is too long as a whole with an empty path.
            errs.append(too_long("[]", MAX_SIZE))

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        forbid_change(obj, old, ("data", "binaryData"), errs)
        self.validate(obj, errs, ctx)


STRATEGY = ConfigMapStrategy()
