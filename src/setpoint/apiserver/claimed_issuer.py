"""Whom a token says it is from, before anybody has looked at its signature."""

from __future__ import annotations

import orjson

from setpoint.meta import base64url


def claimed_issuer(token: str) -> str:
    """It may lie. Empty: it is no such token."""
    parts = token.split(".", 3)
    try:
        claims = orjson.loads(base64url.decode(parts[1])) if len(parts) == 3 else None
    except ValueError:
        claims = None
    issuer = claims.get("iss") if isinstance(claims, dict) else None
    return issuer if isinstance(issuer, str) else ""
