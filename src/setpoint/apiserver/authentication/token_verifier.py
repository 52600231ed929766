"""Whether a token of an issuer is good: signature, issuer, audience and times."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime

import orjson

from setpoint.apiserver.authentication.claim_types import audiences, check_types, moment
from setpoint.apiserver.authentication.claims import Claims
from setpoint.apiserver.authentication.issuer_keys import BadIssuer, IssuerKeys
from setpoint.apiserver.claimed_issuer import claimed_issuer
from setpoint.apiserver.filters.authenticate import TokenRefused
from setpoint.meta.clock import Clock
from setpoint.meta.goformat import quote, quote_all
from setpoint.meta.jose_header import BadJoseHeader, read_jose_header

ALGORITHMS = ("ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512")
_LEEWAY = 60.0
_GOOGLE, _GOOGLE_SHORT = "https://accounts.google.com", "accounts.google.com"


def untrusted_issuer(token: str) -> str:
    """As `claimed_issuer`; Google's tokens go by a short name too."""
    issuer = claimed_issuer(token)
    return _GOOGLE if issuer == _GOOGLE_SHORT else issuer


class TokenVerifier:
    """Signature, issuer, audience and times of the tokens of one issuer."""

    def __init__(self, issuer: str, keys: IssuerKeys, audiences: Sequence[str], algorithms: Sequence[str],
                 clock: Clock) -> None:  # fmt: skip
        self._issuer = issuer
        self._keys = keys
        self._audiences = tuple(audiences)
        self._algorithms = tuple(algorithms)
        self._clock = clock

    def verify(self, token: str) -> Claims | Awaitable[Claims]:
        """The claims. To be awaited if the keys have to be fetched. Raises TokenRefused."""
        try:
            head = read_jose_header(token.split(".", 1)[0])
        except BadJoseHeader as problem:
            raise TokenRefused(f"oidc: malformed jwt: {problem}") from None
        algorithm: str = head.get("alg") or ""
        key = head.get("kid")
        if algorithm not in self._algorithms:
            raise TokenRefused(
                "oidc: id token signed with unsupported algorithm, "
                f"expected {quote_all(self._algorithms)} got {quote(algorithm)}"
            )
        key_id = key if isinstance(key, str) else ""
        payload = self._keys.open(token, algorithm, key_id)
        if payload is not None:
            return self._accepted(payload)
        if not self._keys.may_have_changed:
            raise TokenRefused("failed to verify signature: failed to verify id token signature")
        return self._with_new_keys(token, algorithm, key_id)

    async def _with_new_keys(self, token: str, algorithm: str, key: str) -> Claims:
        try:
            await self._keys.refresh()
        except BadIssuer as problem:
            raise TokenRefused(f"failed to verify signature: fetching keys {problem}") from None
        payload = self._keys.open(token, algorithm, key)
        if payload is None:
            raise TokenRefused("failed to verify signature: failed to verify id token signature")
        return self._accepted(payload)

    def _accepted(self, payload: bytes) -> Claims:
        claims = orjson.loads(payload)
        if not isinstance(claims, dict):
            raise TokenRefused("oidc: failed to unmarshal claims: it is not an object")
        check_types(claims, payload)
        _check_sources(claims)
        issuer = claims.get("iss")
        if issuer != self._issuer and not (self._issuer == _GOOGLE and issuer == _GOOGLE_SHORT):
            raise TokenRefused(
                "oidc: id token issued by a different provider, "
                f"expected {quote(self._issuer)} got {quote(str(issuer))}"
            )
        self._check_audience(audiences(claims))
        self._check_times(claims)
        return claims

    def _check_audience(self, given: Sequence[str]) -> None:
        if any(one in self._audiences for one in given):
            return
        shown = quote_all(given)
        if len(self._audiences) == 1:
            raise TokenRefused(f"oidc: expected audience {quote(self._audiences[0])} got {shown}")
        raise TokenRefused(f"oidc: expected audience in {quote_all(sorted(self._audiences))} got {shown}")

    def _check_times(self, claims: Claims) -> None:
        now = self._clock.now().timestamp()
        ends, starts = moment(claims.get("exp")), moment(claims.get("nbf"))
        if ends is None or ends < now:
            shown = _shown(ends) if ends is not None else "0001-01-01 00:00:00 +0000 UTC"
            raise TokenRefused(f"oidc: token is expired (Token Expiry: {shown})")
        if starts is not None and now + _LEEWAY < starts:
            raise TokenRefused(f"oidc: current time {_shown(now)} before the nbf (not before) time: {_shown(starts)}")


def _check_sources(claims: Claims) -> None:
    """Of claims that are to be got elsewhere."""
    names, sources = claims.get("_claim_names") or {}, claims.get("_claim_sources") or {}
    for source in names.values():
        if not source:
            raise TokenRefused("oidc: failed to obtain source from claim name")
        if source not in sources:
            raise TokenRefused("oidc: source does not exist")


def _shown(moment: float) -> str:
    try:
        return f"{datetime.fromtimestamp(int(moment), UTC):%Y-%m-%d %H:%M:%S} +0000 UTC"
    except (ValueError, OverflowError, OSError):
        return f"{moment:g}"
