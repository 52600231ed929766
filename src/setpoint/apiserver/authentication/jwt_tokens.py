"""Tokens of OpenID Connect issuers.

A token is verified by its signature, issuer, audience and times. Groups may be distributed claims (OpenID Connect Core
1.0, section 5.6.2), which are fetched from where the token says. The issuer's configuration maps claims to a user.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from setpoint.apiserver.authentication.claims import ClaimMapping, Claims, audiences, check_types, timestamp
from setpoint.apiserver.authentication.issuer_keys import Fetcher, FetchFailed, InvalidIssuer, IssuerKeys, discover
from setpoint.apiserver.filters.authenticate import AudienceAgnostic, TokenRefused, Verified
from setpoint.apiserver.tokens import claimed_issuer
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.caching import TtlCache
from setpoint.meta.clock import Clock
from setpoint.meta.goformat import aggregate, quote, quote_all
from setpoint.meta.jose import BadJoseHeader, read_jose_header

ALGORITHMS = ("ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512")
_LEEWAY = 60.0
_GOOGLE, _GOOGLE_SHORT = "https://accounts.google.com", "accounts.google.com"
_CLAIM_NAMES, _CLAIM_SOURCES = "_claim_names", "_claim_sources"
_MAX_DISTRIBUTED_ISSUERS = 16
_RETRY_SECONDS = 10.0
_CACHE_SECONDS = 10.0
_MAX_CACHED_TOKENS = 4096


def _untrusted_issuer(token: str) -> str:
    """Return the unverified issuer of a token; Google's tokens may contain a short form of its name."""
    issuer = claimed_issuer(token)
    return _GOOGLE if issuer == _GOOGLE_SHORT else issuer


class _TokenVerifier:
    """Verifies signature, issuer, audience and times of the tokens of one issuer."""

    def __init__(
        self, issuer: str, keys: IssuerKeys, audiences: Sequence[str], algorithms: Sequence[str], clock: Clock
    ) -> None:
        self._issuer = issuer
        self._keys = keys
        self._audiences = tuple(audiences)
        self._algorithms = tuple(algorithms)
        self._clock = clock

    def verify(self, token: str) -> Claims | Awaitable[Claims]:
        """Return the claims of a valid token, or an awaitable if keys must be fetched. Raises TokenRefused."""
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
        payload = self._keys.verify(token, algorithm, key_id)
        if payload is not None:
            return self._verified_claims(payload)
        if not self._keys.may_have_changed:
            raise TokenRefused("failed to verify signature: failed to verify id token signature")
        return self._with_new_keys(token, algorithm, key_id)

    async def _with_new_keys(self, token: str, algorithm: str, key: str) -> Claims:
        try:
            await self._keys.refresh()
        except InvalidIssuer as problem:
            raise TokenRefused(f"failed to verify signature: fetching keys {problem}") from None
        payload = self._keys.verify(token, algorithm, key)
        if payload is None:
            raise TokenRefused("failed to verify signature: failed to verify id token signature")
        return self._verified_claims(payload)

    def _verified_claims(self, payload: bytes) -> Claims:
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
        expires, not_before = timestamp(claims.get("exp")), timestamp(claims.get("nbf"))
        if expires is None or expires < now:
            shown = _go_time(expires) if expires is not None else "0001-01-01 00:00:00 +0000 UTC"
            raise TokenRefused(f"oidc: token is expired (Token Expiry: {shown})")
        if not_before is not None and now + _LEEWAY < not_before:
            raise TokenRefused(
                f"oidc: current time {_go_time(now)} before the nbf (not before) time: {_go_time(not_before)}"
            )


def _check_sources(claims: Claims) -> None:
    """Check the sources of distributed claims."""
    names, sources = claims.get("_claim_names") or {}, claims.get("_claim_sources") or {}
    for source in names.values():
        if not source:
            raise TokenRefused("oidc: failed to obtain source from claim name")
        if source not in sources:
            raise TokenRefused("oidc: source does not exist")


def _go_time(moment: float) -> str:
    try:
        return f"{datetime.fromtimestamp(int(moment), UTC):%Y-%m-%d %H:%M:%S} +0000 UTC"
    except (ValueError, OverflowError, OSError):
        return f"{moment:g}"


class _DistributedClaims:
    """Fetches a claim that a token refers to."""

    def __init__(self, claim: str, fetcher: Fetcher, verifier_of: Callable[[str], Awaitable[_TokenVerifier]]) -> None:
        """`claim` is the claim to fetch; empty means none."""
        self._claim = claim
        self._fetcher = fetcher
        self._verifier_of = verifier_of
        self._verifiers: OrderedDict[str, _TokenVerifier] = OrderedDict()

    def needed(self, claims: Claims) -> bool:
        return bool(self._claim) and self._claim not in claims and _CLAIM_NAMES in claims

    async def expanded(self, claims: Claims) -> Claims:
        """Return the claims including the fetched one. Raises InvalidIssuer."""
        names, sources = claims[_CLAIM_NAMES], claims.get(_CLAIM_SOURCES)
        if not isinstance(names, dict):
            raise InvalidIssuer("oidc: error parsing distributed claim names: it is not an object")
        source = names.get(self._claim)
        endpoint = sources.get(source) if isinstance(sources, dict) else None
        if not isinstance(endpoint, dict) or not endpoint.get("endpoint"):
            return claims
        return claims | {self._claim: await self._fetch(str(endpoint["endpoint"]), endpoint.get("access_token"))}

    async def _fetch(self, url: str, access_token: Any) -> Any:
        about = f"while getting distributed claim {quote(self._claim)}"
        try:
            answer = await self._fetcher.get(url, str(access_token or ""))
        except FetchFailed as problem:
            raise InvalidIssuer(f"{about}: {problem}") from None
        if not 200 <= answer.status <= 226:
            raise InvalidIssuer(f"{about}: error while getting distributed claim JWT: {answer.phrase}")
        token = answer.body.decode("utf-8", "replace").strip()
        issuer = _untrusted_issuer(token)
        if not issuer:
            raise InvalidIssuer(f"getting untrusted issuer from endpoint {url} failed for claim {quote(self._claim)}")
        verifier = self._verifiers.get(issuer)
        if verifier is None:
            try:
                verifier = self._verifiers[issuer] = await self._verifier_of(issuer)
            except InvalidIssuer as problem:
                raise InvalidIssuer(f"verifying untrusted issuer {issuer} failed: {problem}") from None
            if len(self._verifiers) > _MAX_DISTRIBUTED_ISSUERS:
                self._verifiers.popitem(last=False)
        try:
            found = verifier.verify(token)
            claims = found if isinstance(found, dict) else await found
        except TokenRefused as error:
            raise InvalidIssuer(f"verify distributed claim token: {error}") from None
        if self._claim not in claims:
            raise InvalidIssuer(
                f"jwt returned by distributed claim endpoint {quote(url)} did not contain claim: {self._claim}"
            )
        return claims[self._claim]


log = logging.getLogger("setpoint.apiserver")


class JwtIssuer:
    """One issuer of the configuration. It accepts no token until `initialize` has succeeded."""

    def __init__(
        self, authenticator: Mapping[str, Any], fetcher: Fetcher, clock: Clock, algorithms: Sequence[str] = ALGORITHMS
    ) -> None:
        issuer = authenticator["issuer"]
        self.url: str = issuer["url"]
        self.problem = f"oidc: authenticator for issuer {quote(self.url)} is not initialized"
        """Why the issuer is not ready; empty if it is."""
        self._discovery_url: str = issuer.get("discoveryURL") or ""
        self._audiences: list[str] = issuer["audiences"]
        self._algorithms = tuple(algorithms)
        self._fetcher = fetcher
        self._clock = clock
        self._mapping = ClaimMapping(authenticator)
        self._verifier: _TokenVerifier | None = None
        self._distributed = _DistributedClaims(self._mapping.groups_claim, fetcher, self._verifier_of)

    async def initialize(self) -> None:
        """Discover the issuer's keys; `problem` holds the outcome."""
        try:
            self._verifier = await self._verifier_of(self.url, self._discovery_url)
            self.problem = ""
        except InvalidIssuer as problem:
            log.error("oidc authenticator: initializing plugin: %s", problem)
            self.problem = f"oidc: authenticator for issuer {quote(self.url)} is not healthy: {problem}"

    async def _verifier_of(self, issuer: str, discovery_url: str = "") -> _TokenVerifier:
        keys = IssuerKeys(self._fetcher, await discover(self._fetcher, issuer, discovery_url), self._clock)
        return _TokenVerifier(issuer, keys, self._audiences, self._algorithms, self._clock)

    def verify(self, token: str) -> UserInfo | Awaitable[UserInfo]:
        """Return the user of a valid token, or an awaitable. Raises TokenRefused."""
        if self._verifier is None:
            raise TokenRefused("oidc: authenticator not initialized")
        try:
            claims = self._verifier.verify(token)
        except TokenRefused as error:
            raise TokenRefused(f"oidc: verify token: {error}") from None
        if not isinstance(claims, dict):
            return self._await_claims(claims)
        if self._distributed.needed(claims):
            return self._expanded(claims)
        return self._mapping.user(claims)

    async def _await_claims(self, verifying: Awaitable[Claims]) -> UserInfo:
        try:
            claims = await verifying
        except TokenRefused as error:
            raise TokenRefused(f"oidc: verify token: {error}") from None
        return await self._expanded(claims) if self._distributed.needed(claims) else self._mapping.user(claims)

    async def _expanded(self, claims: Claims) -> UserInfo:
        try:
            return self._mapping.user(await self._distributed.expanded(claims))
        except InvalidIssuer as problem:
            raise TokenRefused(f"oidc: could not expand distributed claims: {problem}") from None


class JwtTokens(AudienceAgnostic):
    """Authenticates the tokens of all issuers; verified tokens are cached for ten seconds."""

    def __init__(self, issuers: Sequence[JwtIssuer], clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._issuers = {issuer.url: issuer for issuer in issuers}
        self._cache: TtlCache[str, UserInfo] = TtlCache(_MAX_CACHED_TOKENS, clock)

    def verify(self, token: str, audiences: Sequence[str]) -> Verified | Awaitable[Verified | None] | None:
        cached = self._cache.get(token)
        if cached is None:
            return self._verify(token, audiences)
        matching = self.matching_audiences(audiences)
        return Verified(cached, matching) if matching is not None else None

    def _verify(self, token: str, audiences: Sequence[str]) -> Verified | Awaitable[Verified | None] | None:
        issuer, matching = self._issuers.get(_untrusted_issuer(token)), self.matching_audiences(audiences)
        if issuer is None or matching is None:
            return None
        found = issuer.verify(token)
        if not isinstance(found, UserInfo):
            return self._await(found, token, matching)
        self._cache.put(token, found, _CACHE_SECONDS)
        return Verified(found, matching)

    async def _await(self, pending: Awaitable[UserInfo], token: str, matching: tuple[str, ...]) -> Verified:
        found = await pending
        self._cache.put(token, found, _CACHE_SECONDS)
        return Verified(found, matching)

    async def run(self) -> None:
        """Initialize the issuers, with retries."""
        while True:
            await _initialize(self._issuers.values())
            await self._clock.sleep(_RETRY_SECONDS)

    async def replace(self, issuers: Sequence[JwtIssuer]) -> str:
        """Replace the issuers when all new ones are ready. After a minute without that nothing changes. Return what is
        wrong, or "" on success."""
        for attempt in range(7):
            if attempt:
                await self._clock.sleep(_RETRY_SECONDS)
            await _initialize(issuers)
            problems = [issuer.problem for issuer in issuers if issuer.problem]
            if not problems:
                self._issuers = {issuer.url: issuer for issuer in issuers}
                self._cache.clear()
                return ""
        return aggregate(problems)


async def _initialize(issuers: Iterable[JwtIssuer]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for issuer in issuers:
            if issuer.problem:
                tasks.create_task(issuer.initialize())
