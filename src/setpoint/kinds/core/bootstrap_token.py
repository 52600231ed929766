"""What a Secret says that holds a bootstrap token: `bootstrap-token-<id>` in `kube-system`. Pure."""

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


def said(secret: Obj, key: str) -> str:
    """Empty: nothing."""
    try:
        return b64decode((secret.get("data") or {}).get(key) or "").decode()
    except ValueError:
        return ""


def seconds_left(secret: Obj, now: datetime) -> float | None:
    """Not more than 0: it has expired, as it has if nobody can read when. None: it never does."""
    expiration = said(secret, "expiration")
    if not expiration:
        return None
    try:
        return max(0.0, (parse_time(expiration) - now).total_seconds())
    except ValueError:
        return 0.0


def groups(secret: Obj) -> list[str] | None:
    """Of whoever comes with the token; None: it names one that it must not give."""
    extra = said(secret, "auth-extra-groups")
    named = extra.split(",") if extra else []
    if not all(map(_GROUP.fullmatch, named)):
        return None
    return sorted({DEFAULT_GROUP, *named})
