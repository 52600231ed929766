"""Tokens of OpenID Connect issuers: the issuers of the configuration, each with its keys and its mapping of claims."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any

from setpoint.apiserver.authentication.claims import ClaimMapping, Claims
from setpoint.apiserver.authentication.distributed_claims import DistributedClaims
from setpoint.apiserver.authentication.fetching import Fetcher
from setpoint.apiserver.authentication.issuer_keys import BadIssuer, IssuerKeys, discover
from setpoint.apiserver.authentication.token_verifier import ALGORITHMS, TokenVerifier, untrusted_issuer
from setpoint.apiserver.filters.authenticate import AudienceAgnostic, TokenRefused, Verified
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.goformat import aggregate, quote
from setpoint.meta.ttl_cache import TtlCache

log = logging.getLogger("setpoint.apiserver")

_RETRY = 10.0
_KEPT_FOR = 10.0
_REMEMBERED = 4096


class JwtIssuer:
    """One entry of the configuration. It knows nobody until `begin` has succeeded."""

    def __init__(self, authenticator: Mapping[str, Any], fetcher: Fetcher, clock: Clock,
                 algorithms: Sequence[str] = ALGORITHMS) -> None:  # fmt: skip
        issuer = authenticator["issuer"]
        self.url: str = issuer["url"]
        self.problem = f"oidc: authenticator for issuer {quote(self.url)} is not initialized"
        """Why it is not ready; empty: it is."""
        self._discovery_url: str = issuer.get("discoveryURL") or ""
        self._audiences: list[str] = issuer["audiences"]
        self._algorithms = tuple(algorithms)
        self._fetcher = fetcher
        self._clock = clock
        self._mapping = ClaimMapping(authenticator)
        self._verifier: TokenVerifier | None = None
        self._distributed = DistributedClaims(self._mapping.groups_claim, fetcher, self._verifier_of)

    async def begin(self) -> None:
        """Ask the issuer where its keys are; `problem` says how that went."""
        try:
            self._verifier = await self._verifier_of(self.url, self._discovery_url)
            self.problem = ""
        except BadIssuer as problem:
            log.error("oidc authenticator: initializing plugin: %s", problem)
            self.problem = f"oidc: authenticator for issuer {quote(self.url)} is not healthy: {problem}"

    async def _verifier_of(self, issuer: str, discovery_url: str = "") -> TokenVerifier:
        keys = IssuerKeys(self._fetcher, await discover(self._fetcher, issuer, discovery_url), self._clock)
        return TokenVerifier(issuer, keys, self._audiences, self._algorithms, self._clock)

    def verify(self, token: str) -> UserInfo | Awaitable[UserInfo]:
        """Raises TokenRefused."""
        if self._verifier is None:
            raise TokenRefused("oidc: authenticator not initialized")
        try:
            claims = self._verifier.verify(token)
        except TokenRefused as error:
            raise TokenRefused(f"oidc: verify token: {error}") from None
        if not isinstance(claims, dict):
            return self._later(claims)
        if self._distributed.needed(claims):
            return self._expanded(claims)
        return self._mapping.user(claims)

    async def _later(self, verifying: Awaitable[Claims]) -> UserInfo:
        try:
            claims = await verifying
        except TokenRefused as error:
            raise TokenRefused(f"oidc: verify token: {error}") from None
        return await self._expanded(claims) if self._distributed.needed(claims) else self._mapping.user(claims)

    async def _expanded(self, claims: Claims) -> UserInfo:
        try:
            return self._mapping.user(await self._distributed.expanded(claims))
        except BadIssuer as problem:
            raise TokenRefused(f"oidc: could not expand distributed claims: {problem}") from None


class JwtTokens(AudienceAgnostic):
    """All issuers. Who was found good is known for ten seconds."""

    def __init__(self, issuers: Sequence[JwtIssuer], clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._issuers = {issuer.url: issuer for issuer in issuers}
        self._known: TtlCache[str, UserInfo] = TtlCache(_REMEMBERED, clock)

    def verify(self, token: str, audiences: Sequence[str]) -> Verified | Awaitable[Verified | None] | None:
        known = self._known.get(token)
        if known is None:
            return self._look(token, audiences)
        fitting = self.fitting(audiences)
        return Verified(known, fitting) if fitting is not None else None

    def _look(self, token: str, audiences: Sequence[str]) -> Verified | Awaitable[Verified | None] | None:
        issuer, fitting = self._issuers.get(untrusted_issuer(token)), self.fitting(audiences)
        if issuer is None or fitting is None:
            return None
        found = issuer.verify(token)
        if not isinstance(found, UserInfo):
            return self._await(found, token, fitting)
        self._known.keep(token, found, _KEPT_FOR)
        return Verified(found, fitting)

    async def _await(self, asked: Awaitable[UserInfo], token: str, fitting: tuple[str, ...]) -> Verified:
        found = await asked
        self._known.keep(token, found, _KEPT_FOR)
        return Verified(found, fitting)

    async def run(self) -> None:
        """Begins with the issuers, as often as it takes."""
        while True:
            await _begin(self._issuers.values())
            await self._clock.sleep(_RETRY)

    async def replace(self, issuers: Sequence[JwtIssuer]) -> str:
        """Others instead, as soon as all of them are ready; after a minute without that everything stays as it is.
        Why, is returned; empty: done."""
        for attempt in range(7):
            if attempt:
                await self._clock.sleep(_RETRY)
            await _begin(issuers)
            problems = [issuer.problem for issuer in issuers if issuer.problem]
            if not problems:
                self._issuers = {issuer.url: issuer for issuer in issuers}
                self._known.clear()
                return ""
        return aggregate(problems)


async def _begin(issuers: Iterable[JwtIssuer]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for issuer in issuers:
            if issuer.problem:
                tasks.create_task(issuer.begin())
