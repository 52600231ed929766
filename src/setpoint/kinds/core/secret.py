"""Secret: keys and values that must not be disclosed, and the Secrets that hold bootstrap tokens.

`stringData` is an input format and is never stored.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.configmap import MAX_SIZE, decoded_length, forbid_change, validate_keys
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, invalid, required, too_long
from setpoint.meta.json_syntax import unmarshal
from setpoint.meta.objectmeta import validate_immutable
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import parse_time

TYPE, NAMESPACE, PREFIX = "bootstrap.kubernetes.io/token", "kube-system", "bootstrap-token-"
DEFAULT_GROUP = "system:bootstrappers"
TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")


def text_value(secret: ObjView, key: str) -> str:
    """Return the decoded value of a key; empty if it is missing or not text."""
    try:
        return b64decode((secret.get("data") or {}).get(key) or "").decode()
    except ValueError:
        return ""


def seconds_until_expiry(secret: ObjView, now: datetime) -> float | None:
    """Return the seconds until expiry: 0 or less if expired or unreadable, None if the token never expires."""
    expiration = text_value(secret, "expiration")
    if not expiration:
        return None
    try:
        return max(0.0, (parse_time(expiration) - now).total_seconds())
    except ValueError:
        return 0.0


def groups(secret: ObjView) -> list[str] | None:
    """Return the groups of a token's user, or None if the Secret names a group that is not allowed."""
    extra = text_value(secret, "auth-extra-groups")
    named = extra.split(",") if extra else []
    if not all(map(_GROUP.fullmatch, named)):
        return None
    return sorted({DEFAULT_GROUP, *named})


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
        # Imported here, because few Secrets have this type, and the certificate parser is slow to import.
        from setpoint.kinds.certificates.requests import pair_error

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
            try:
                unmarshal(b64decode(data[key] or ""), dict, "map[string]interface {}")
            except ValueError as error:
                errs.append(invalid(f"data[{key}]", "<secret contents redacted>", str(error)))
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
