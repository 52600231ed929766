"""The public keys of OpenID Connect issuers: discovered, fetched over TLS, and cached."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from setpoint.apiserver.remote_servers import RemoteServer, RemoteServerError, RemoteServers
from setpoint.apiserver.single_flight import SingleFlight
from setpoint.meta.clock import Clock
from setpoint.meta.goformat import quote
from setpoint.wire.message import Peer, Request

_TIMEOUT = 30.0
_DISCOVERY_PATH = "/.well-known/openid-configuration"
_REFRESH_MARGIN = 30.0
"""Seconds before the expiry of keys at which they may be fetched again."""
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age=\"?(\d{1,9})")
_MAX_KEYS = 256


class FetchFailed(Exception):
    """There is no response; the message says why."""


class Document(NamedTuple):
    """The response to a GET request."""

    status: int
    body: bytes
    headers: dict[str, str]
    """Header values by lower-case name."""

    @property
    def phrase(self) -> str:
        """The status code and its reason phrase."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return str(self.status)

    @property
    def text(self) -> str:
        return self.body[:2048].decode("utf-8", "replace")


class Fetcher:
    """Fetches documents over HTTPS, without following redirects."""

    def __init__(self, servers: RemoteServers, authority: bytes = b"") -> None:
        """`authority` holds the trusted certificates as PEM; empty means those that the machine trusts."""
        self._servers = servers
        self._authority = authority

    async def get(self, url: str, token: str = "") -> Document:
        """Fetch a document, with a bearer token if `token` is not empty. Raises FetchFailed."""
        try:
            parsed = urlsplit(url)
            host, port = parsed.hostname or "", parsed.port or 443
        except ValueError as error:
            raise FetchFailed(f'parse "{url}": {error}') from None
        if parsed.scheme != "https" or not host:
            raise FetchFailed(f'Get "{url}": only https is supported')
        headers = {"accept": "application/json, */*", "user-agent": "kube-apiserver"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        server = RemoteServer(host, port, ca_bundle=self._authority, display_address=parsed.netloc.rpartition("@")[2])
        request = Request("GET", parsed.path or "/", parsed.query, headers, b"", Peer())
        try:
            response = await self._servers.call(server, request, _TIMEOUT)
        except RemoteServerError as problem:
            raise FetchFailed(f'Get "{url}": {problem}') from None
        headers = {name.lower(): value for name, value in response.headers}
        return Document(response.status, response.whole_body, headers)


class _Key(NamedTuple):
    id: str
    key: Any
    type: str


class InvalidIssuer(Exception):
    """The issuer does not publish what it should; the message says what is wrong."""


async def discover(fetcher: Fetcher, issuer: str, discovery_url: str = "") -> str:
    """Return the URL of the issuer's keys. Raises InvalidIssuer."""
    try:
        answer = await fetcher.get(discovery_url or issuer.removesuffix("/") + _DISCOVERY_PATH)
    except FetchFailed as problem:
        raise InvalidIssuer(str(problem)) from None
    if answer.status != 200:
        raise InvalidIssuer(f"{answer.phrase}: {answer.text}")
    document = _json(answer)
    if not isinstance(document, dict):
        raise InvalidIssuer(f"oidc: failed to decode provider discovery object: {_decode_problem(answer)}")
    if document.get("issuer") != issuer:
        raise InvalidIssuer(
            "oidc: issuer did not match the issuer returned by provider, "
            f"expected {quote(issuer)} got {quote(str(document.get('issuer', '')))}"
        )
    jwks_uri = document.get("jwks_uri")
    if not isinstance(jwks_uri, str) or not jwks_uri:
        raise InvalidIssuer("provider did not return JWKS URL")
    return jwks_uri


class IssuerKeys:
    """The keys of one issuer, cached until a token was signed by an unknown one."""

    def __init__(self, fetcher: Fetcher, url: str, clock: Clock) -> None:
        self._fetcher = fetcher
        self._url = url
        self._clock = clock
        self._keys: list[_Key] = []
        self._expires = 0.0
        self._flight: SingleFlight[str, None] = SingleFlight()

    def verify(self, token: str, algorithm: str, key_id: str) -> bytes | None:
        """Return the payload of the token if one of the known keys signed it, or None."""
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
        return self._clock.monotonic() + _REFRESH_MARGIN > self._expires

    async def refresh(self) -> None:
        """Fetch the keys again. Raises InvalidIssuer."""
        await self._flight.run("", self._fetch)

    async def _fetch(self) -> None:
        try:
            answer = await self._fetcher.get(self._url)
        except FetchFailed as problem:
            raise InvalidIssuer(f"oidc: get keys failed {problem}") from None
        if answer.status != 200:
            raise InvalidIssuer(f"oidc: get keys failed: {answer.phrase} {answer.text}")
        document = _json(answer)
        if not isinstance(document, dict) or not isinstance(document.get("keys", []), list):
            raise InvalidIssuer(f"oidc: failed to decode keys: {_decode_problem(answer)} {answer.text}")
        self._keys = [key for key in map(_key, (document.get("keys") or [])[:_MAX_KEYS]) if key is not None]
        self._expires = self._clock.monotonic() + _lifetime(answer)


def _key(published: Any) -> _Key | None:
    """Return the key, or None if it is of an unsupported type."""
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
    """Return the seconds for which the response may be cached; 0 without a max-age."""
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


def _decode_problem(answer: Document) -> str:
    kind = answer.headers.get("content-type", "")
    if kind.split(";")[0].strip() == "application/json":
        return "got Content-Type = application/json, but could not unmarshal as JSON"
    return f"expected Content-Type = application/json, got {quote(kind)}"
