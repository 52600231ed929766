"""What a Secret says that holds a bootstrap token. Pure."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from setpoint.client.resources import builtin
from setpoint.meta.times import parse_time

Obj = Mapping[str, Any]

SECRETS = builtin("secrets")
TYPE, NAMESPACE = "bootstrap.kubernetes.io/token", "kube-system"
_NAME = re.compile(r"bootstrap-token-([a-z0-9]{6})")


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


def signing_token(secret: Obj, now: datetime) -> tuple[str, str] | None:
    """The token's id and secret, if it may be signed with."""
    named = _NAME.fullmatch(secret["metadata"]["name"])
    token, key = said(secret, "token-id"), said(secret, "token-secret")
    if named is None or named[1] != token or not key:
        return None
    if seconds_left(secret, now) == 0.0 or said(secret, "usage-bootstrap-signing") != "true":
        return None
    return token, key


def detached_signature(content: str, token: str, key: str) -> str:
    """A JWS (RFC 7515, appendix F) without the content that it is for."""
    head = _encoded(orjson.dumps({"alg": "HS256", "kid": token}))
    signature = hmac.digest(key.encode(), f"{head}.{_encoded(content.encode())}".encode(), "sha256")
    return f"{head}..{_encoded(signature)}"


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
