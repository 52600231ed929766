"""The public keys of an issuer: where it publishes them, kept until a token shows that there are new ones."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

from setpoint.apiserver.authentication.fetching import Document, Fetcher, FetchProblem
from setpoint.apiserver.single_flight import SingleFlight
from setpoint.meta.clock import Clock
from setpoint.meta.goformat import quote

WELL_KNOWN = "/.well-known/openid-configuration"
_EARLY = 30.0
"""So long before their end keys may be fetched anew."""
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age=\"?(\d{1,9})")
_MOST_KEYS = 256


class _Key(NamedTuple):
    id: str
    key: Any
    type: str


class BadIssuer(Exception):
    """It does not publish what it should; the text says what is wrong."""


async def discover(fetcher: Fetcher, issuer: str, discovery_url: str = "") -> str:
    """Where the issuer's keys are. Raises BadIssuer."""
    try:
        answer = await fetcher.get(discovery_url or issuer.removesuffix("/") + WELL_KNOWN)
    except FetchProblem as problem:
        raise BadIssuer(str(problem)) from None
    if answer.status != 200:
        raise BadIssuer(f"{answer.phrase}: {answer.text}")
    document = _json(answer)
    if not isinstance(document, dict):
        raise BadIssuer(f"oidc: failed to decode provider discovery object: {_unreadable(answer)}")
    if document.get("issuer") != issuer:
        raise BadIssuer(
            "oidc: issuer did not match the issuer returned by provider, "
            f"expected {quote(issuer)} got {quote(str(document.get('issuer', '')))}"
        )
    place = document.get("jwks_uri")
    if not isinstance(place, str) or not place:
        raise BadIssuer("provider did not return JWKS URL")
    return place


class IssuerKeys:
    def __init__(self, fetcher: Fetcher, url: str, clock: Clock) -> None:
        self._fetcher = fetcher
        self._url = url
        self._clock = clock
        self._keys: list[_Key] = []
        self._good_until = 0.0
        self._flight: SingleFlight[str, None] = SingleFlight()

    def open(self, token: str, algorithm: str, key_id: str) -> bytes | None:
        """What the token says, if one of the keys that are known signed it."""
        from jwt import InvalidTokenError
        from jwt.api_jws import decode

        wanted = "EC" if algorithm.startswith("ES") else "RSA"
        for known in self._keys:
            if known.type != wanted or (key_id and known.id != key_id):
                continue
            try:
                payload: bytes = decode(token, known.key, [algorithm])
                return payload
            except InvalidTokenError:
                continue
        return None

    @property
    def may_have_changed(self) -> bool:
        return self._clock.monotonic() + _EARLY > self._good_until

    async def refresh(self) -> None:
        """Raises BadIssuer."""
        await self._flight.run("", self._fetch)

    async def _fetch(self) -> None:
        try:
            answer = await self._fetcher.get(self._url)
        except FetchProblem as problem:
            raise BadIssuer(f"oidc: get keys failed {problem}") from None
        if answer.status != 200:
            raise BadIssuer(f"oidc: get keys failed: {answer.phrase} {answer.text}")
        document = _json(answer)
        if not isinstance(document, dict) or not isinstance(document.get("keys", []), list):
            raise BadIssuer(f"oidc: failed to decode keys: {_unreadable(answer)} {answer.text}")
        self._keys = [key for key in map(_key, (document.get("keys") or [])[:_MOST_KEYS]) if key is not None]
        self._good_until = self._clock.monotonic() + _lifetime(answer)


def _key(published: Any) -> _Key | None:
    """None: of a kind that signs nothing we take."""
    from jwt import InvalidKeyError
    from jwt.algorithms import ECAlgorithm, RSAAlgorithm

    if not isinstance(published, dict):
        return None
    kind = published.get("kty")
    try:
        if kind == "RSA":
            key: Any = RSAAlgorithm.from_jwk(published)
        elif kind == "EC":
            key = ECAlgorithm.from_jwk(published)
        else:
            return None
    except (InvalidKeyError, ValueError, TypeError, KeyError):
        return None
    if hasattr(key, "private_numbers"):
        key = key.public_key()
    return _Key(str(published.get("kid", "")), key, kind)


def _lifetime(answer: Document) -> float:
    """For which the issuer promises the keys; without a promise, none at all."""
    control = answer.headers.get("cache-control", "").lower()
    if "no-store" in control or "no-cache" in control:
        return 0.0
    age = _MAX_AGE.search(control)
    return float(age[1]) if age else 0.0


def _json(answer: Document) -> Any:
    try:
        return orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return None


def _unreadable(answer: Document) -> str:
    kind = answer.headers.get("content-type", "")
    if kind.split(";")[0].strip() == "application/json":
        return "got Content-Type = application/json, but could not unmarshal as JSON"
    return f"expected Content-Type = application/json, got {quote(kind)}"
