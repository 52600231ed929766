"""ConfigMap: plain keys and values that Pods read."""

from __future__ import annotations

from datetime import datetime

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.keyed_data import MAX_SIZE, decoded_length, forbid_change, validate_keys
from setpoint.kinds.strategy import Column, Context, Obj, Strategy
from setpoint.meta.field import Errors, invalid, too_long
from setpoint.meta.names import config_map_key


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
            # The whole object is too long, which upstream writes as the path of nothing.
            errs.append(too_long("[]", MAX_SIZE))

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        forbid_change(obj, old, ("data", "binaryData"), errs)
        self.validate(obj, errs, ctx)


STRATEGY = ConfigMapStrategy()
