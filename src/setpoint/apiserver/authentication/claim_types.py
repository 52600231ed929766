"""The claims that every token of an issuer has, with types: what a reader with types stumbles over, in its words.

What has a reader of its own, audience and times, stops the reading; of all else the first mistake is told at the end.
Null is as good as nothing, mostly.
"""

from __future__ import annotations

import re
from typing import Any

from setpoint.apiserver.filters.authenticate import TokenRefused
from setpoint.meta.decode_report import describe
from setpoint.meta.goformat import quote

Claims = dict[str, Any]
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,400})(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,9})?")
_TIMES = ("exp", "iat", "nbf")
_TEXTS = ("iss", "sub", "nonce", "at_hash")
_MAPS = {"_claim_names": "string", "_claim_sources": "oidc.claimSource"}


def check_types(claims: Claims, payload: bytes) -> None:
    """`payload`: what they were read from. Raises TokenRefused."""
    for name, value in claims.items():
        if name == "aud":
            _check_audience(value)
        elif name in _TIMES:
            _check_time(name, value, payload)
    for name, value in claims.items():
        if value is None:
            continue
        if name in _TEXTS and not isinstance(value, str):
            raise _misfit(value, f"idToken.{name}", "string")
        if name in _MAPS:
            _check_map(name, value)


def audiences(claims: Claims) -> list[str]:
    if "aud" not in claims:
        return []
    given = claims["aud"]
    return [one or "" for one in given] if isinstance(given, list) else [given or ""]


def moment(value: Any) -> float | None:
    """Of a time that was checked; None: there is none."""
    return None if value is None else float(value)


def _check_audience(value: Any) -> None:
    if not isinstance(value, list | str | None):
        raise _misfit(value, "idToken.aud", "[]string")
    for one in value if isinstance(value, list) else ():
        if not isinstance(one, str | None):
            raise _misfit(one, "idToken.aud", "string")


def _check_time(name: str, value: Any, payload: bytes) -> None:
    if value is None:
        if name != "nbf":
            raise _unreadable('strconv.ParseFloat: parsing "": invalid syntax')
        return
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            shown = quote(quote(value))
            raise _unreadable(f"json: invalid number literal, trying to unmarshal {shown} into Number")
        written = value
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise _misfit(value, f"idToken.{name}", "json.Number")
    else:
        written = ""
    if abs(float(value)) == float("inf"):
        raise _unreadable(
            f"strconv.ParseFloat: parsing {quote(written or _as_written(name, payload))}: value out of range"
        )


def _as_written(name: str, payload: bytes) -> str:
    found = re.search(rb'"%s"\s*:\s*([-+.0-9eE]{1,400})' % name.encode(), payload)
    return found[1].decode() if found else ""


def _check_map(name: str, value: Any) -> None:
    of = _MAPS[name]
    if not isinstance(value, dict):
        raise _misfit(value, f"idToken.{name}", f"map[string]{of}")
    for one in value.values():
        if one is None:
            continue
        if of == "string":
            if not isinstance(one, str):
                raise _misfit(one, f"idToken.{name}", of)
        elif not isinstance(one, dict):
            raise _misfit(one, f"idToken.{name}", of)
        else:
            for key in ("endpoint", "access_token"):
                if not isinstance(one.get(key), str | None):
                    raise _misfit(one[key], f"claimSource.{name}.{key}", "string")


def _misfit(value: Any, field: str, of: str) -> TokenRefused:
    return _unreadable(f"json: cannot unmarshal {describe(value)} into Go struct field {field} of type {of}")


def _unreadable(why: str) -> TokenRefused:
    return TokenRefused(f"oidc: failed to unmarshal claims: {why}")
