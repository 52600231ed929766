"""What a service account token claims, read with types: whoever has the key may still have signed nonsense."""

from __future__ import annotations

from typing import Any

from setpoint.apiserver.filters.authenticate import TokenRefused
from setpoint.meta.decode_report import describe
from setpoint.meta.strict_json import DuplicateKey, read_strictly

Claims = dict[str, Any]
_LEGACY_CLAIM = "kubernetes.io/serviceaccount/"
_LONGEST = 2.0**63
"""Seconds that a reader with 64 bits can still count."""


def read_claims(payload: bytes) -> Claims:
    """Raises TokenRefused."""
    try:
        claims = read_strictly(payload)
    except DuplicateKey as key:
        raise TokenRefused(f"json: duplicate key '{key}' in object") from None
    except ValueError:
        raise TokenRefused("go-jose/go-jose: error in cryptographic primitive") from None
    if not isinstance(claims, dict):
        raise _wrong(claims, "jwt.Claims")
    for name in claims:
        if name in ("iss", "sub", "jti") or name.startswith(_LEGACY_CLAIM):
            _text(claims, name)
    if "aud" in claims:
        claims["aud"] = _audiences(claims["aud"])
    for name in ("exp", "nbf", "iat"):
        _moment(claims, name)
    private = _object(claims, "kubernetes.io", "serviceaccount.kubernetes")
    _text(private, "namespace")
    _moment(private, "warnafter")
    for name in ("serviceaccount", "pod", "secret", "node"):
        reference = _object(private, name, "serviceaccount.ref")
        _text(reference, "name")
        _text(reference, "uid")
    return claims


def _text(of: Claims, name: str) -> None:
    """Null is as good as nothing."""
    value = of.get(name)
    if value is None:
        of.pop(name, None)
    elif not isinstance(value, str):
        raise _wrong(value, "string")


def _object(of: Claims, name: str, go: str) -> Claims:
    value = of.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _wrong(value, go)
    return value


def _audiences(value: Any) -> list[str]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise TokenRefused("go-jose/go-jose/jwt: expected string or array value to unmarshal to Audience")
    return given


def _moment(of: Claims, name: str) -> None:
    value = of.get(name)
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused("go-jose/go-jose/jwt: expected number value to unmarshal NumericDate")
    if name == "exp" and abs(value) >= _LONGEST:
        # It wraps around.
        raise TokenRefused("service account token has expired")


def _wrong(value: Any, go: str) -> TokenRefused:
    return TokenRefused(f"json: cannot unmarshal {describe(value)} into Go value of type {go}")
