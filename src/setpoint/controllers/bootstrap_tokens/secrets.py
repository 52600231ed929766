"""Signs with bootstrap tokens. Pure functions."""

from __future__ import annotations

import hmac
import re
from datetime import datetime

import orjson

from setpoint.client.resources import builtin
from setpoint.kinds.core.bootstrap_token import Obj, seconds_until_expiry, text_value
from setpoint.meta import base64url

SECRETS = builtin("secrets")
_NAME = re.compile(r"bootstrap-token-([a-z0-9]{6})")


def signing_token(secret: Obj, now: datetime) -> tuple[str, str] | None:
    """Return the token's id and secret if it may be used for signing, otherwise None."""
    named = _NAME.fullmatch(secret["metadata"]["name"])
    token, key = text_value(secret, "token-id"), text_value(secret, "token-secret")
    if named is None or named[1] != token or not key:
        return None
    if seconds_until_expiry(secret, now) == 0.0 or text_value(secret, "usage-bootstrap-signing") != "true":
        return None
    return token, key


def detached_signature(content: str, token: str, key: str) -> str:
    """Return a JWS with detached content (RFC 7515, appendix F)."""
    head = base64url.encode(orjson.dumps({"alg": "HS256", "kid": token}))
    signature = hmac.digest(key.encode(), f"{head}.{base64url.encode(content.encode())}".encode(), "sha256")
    return f"{head}..{base64url.encode(signature)}"
