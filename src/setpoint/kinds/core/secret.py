"""Secret: keys and values that must not be seen. `stringData` is a way to write, never stored."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.embedded_json import object_error
from setpoint.kinds.core.keyed_data import MAX_SIZE, decoded_length, forbid_change, validate_keys
from setpoint.kinds.strategy import Column, Context, Obj, Strategy
from setpoint.meta.field import Errors, invalid, required, too_long
from setpoint.meta.objectmeta import validate_immutable

SERVICE_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"
SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"
_DOCKER_KEYS = {"kubernetes.io/dockercfg": ".dockercfg", "kubernetes.io/dockerconfigjson": ".dockerconfigjson"}


def _type(obj: Obj, now: datetime) -> str:
    return str(obj.get("type", ""))


def _entries(obj: Obj, now: datetime) -> int:
    return len(obj.get("data", ()))


class SecretStrategy(Strategy):
    columns = (
        NAME,
        Column("Type", _type, description="What the data is for."),
        Column("Data", _entries, description="How many keys it holds."),
        AGE,
    )
    field_labels = Strategy.field_labels | {"type"}

    def default(self, obj: Obj) -> None:
        if not obj.get("type"):
            obj["type"] = "Opaque"
        text = obj.pop("stringData", None)
        if text:
            data = obj["data"] = dict(obj.get("data") or {})
            for key, value in text.items():
                data[key] = b64encode(value.encode()).decode()

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        data = obj.get("data") or {}
        validate_keys(data, "data", errs)
        if sum(map(decoded_length, data.values())) > MAX_SIZE:
            errs.append(too_long("data", MAX_SIZE))
        _validate_type(obj, data, errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        validate_immutable(obj.get("type", ""), old.get("type", ""), "type", errs)
        forbid_change(obj, old, ("data",), errs)
        self.validate(obj, errs, ctx)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        if obj.get("type") != "kubernetes.io/tls":
            return []
        # Here, because few Secrets are of this type, and what reads certificates is slow to load.
        from setpoint.kinds.core.tls_pair import pair_error

        data = obj.get("data") or {}
        error = pair_error(b64decode(data.get("tls.crt") or ""), b64decode(data.get("tls.key") or ""))
        return [error] if error else []

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        return {"type": obj.get("type", "")}


def _validate_type(obj: Obj, data: Mapping[str, str], errs: Errors) -> None:
    kind = obj.get("type", "")
    if kind == SERVICE_ACCOUNT_TOKEN:
        if not (obj["metadata"].get("annotations") or {}).get(SERVICE_ACCOUNT_NAME):
            errs.append(required(f"metadata.annotations[{SERVICE_ACCOUNT_NAME}]"))
    elif kind in _DOCKER_KEYS:
        key = _DOCKER_KEYS[kind]
        if key not in data:
            errs.append(required(f"data[{key}]"))
        else:
            error = object_error(b64decode(data[key] or ""))
            if error:
                errs.append(invalid(f"data[{key}]", "<secret contents redacted>", error))
    elif kind == "kubernetes.io/basic-auth":
        if "username" not in data and "password" not in data:
            errs.append(required("data[username]"))
            errs.append(required("data[password]"))
    elif kind == "kubernetes.io/ssh-auth":
        if not data.get("ssh-privatekey"):
            errs.append(required("data[ssh-privatekey]"))
    elif kind == "kubernetes.io/tls":
        for key in ("tls.crt", "tls.key"):
            if key not in data:
                errs.append(required(f"data[{key}]"))


STRATEGY = SecretStrategy()
