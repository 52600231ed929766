"""Secrets that hold a bootstrap token: `bootstrap-token-<id>` in `kube-system`. Pure."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from setpoint.meta.times import parse_time

Obj = Mapping[str, Any]

TYPE, NAMESPACE, PREFIX = "bootstrap.kubernetes.io/token", "kube-system", "bootstrap-token-"
DEFAULT_GROUP = "system:bootstrappers"
TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")


def text_value(secret: Obj, key: str) -> str:
    """Return the decoded value of a key; empty if it is missing or not text."""
    try:
        return b64decode((secret.get("data") or {}).get(key) or "").decode()
    except ValueError:
        return ""


def seconds_until_expiry(secret: Obj, now: datetime) -> float | None:
    """Return the seconds until expiry: 0 or less if expired or unreadable, None if the token never expires."""
    expiration = text_value(secret, "expiration")
    if not expiration:
        return None
    try:
        return max(0.0, (parse_time(expiration) - now).total_seconds())
    except ValueError:
        return 0.0


def groups(secret: Obj) -> list[str] | None:
    """Return the groups of a token's user, or None if the Secret names a group that is not allowed."""
    extra = text_value(secret, "auth-extra-groups")
    named = extra.split(",") if extra else []
    if not all(map(_GROUP.fullmatch, named)):
        return None
    return sorted({DEFAULT_GROUP, *named})
