"""Whom a token says it is from, before anybody has looked at its signature."""

from __future__ import annotations

from typing import Any

import orjson

from setpoint.meta import base64url


def claimed_issuer(token: str) -> str:
    """It may lie. Empty: it is no such token."""
    parts = token.split(".")
    claims = unverified_part(parts[1]) if len(parts) == 3 else None
    issuer = claims.get("iss") if isinstance(claims, dict) else None
    return issuer if isinstance(issuer, str) else ""


def unverified_part(part: str) -> Any:
    """The head or the claims, of a token in three parts; None: they cannot be read."""
    try:
        return orjson.loads(base64url.decode(part))
    except ValueError:
        return None
