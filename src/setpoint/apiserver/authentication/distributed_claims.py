"""Claims that a token does not hold but says where to get: OpenID Connect Core 1.0, section 5.6.2. Groups, mostly."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from setpoint.apiserver.authentication.claims import Claims
from setpoint.apiserver.authentication.fetching import Fetcher, FetchProblem
from setpoint.apiserver.authentication.issuer_keys import BadIssuer
from setpoint.apiserver.authentication.token_verifier import TokenVerifier, untrusted_issuer
from setpoint.apiserver.filters.authenticate import TokenRefused
from setpoint.meta.goformat import quote

_NAMES, _SOURCES = "_claim_names", "_claim_sources"
_MOST_ISSUERS = 16


class DistributedClaims:
    def __init__(self, claim: str, fetcher: Fetcher, verifier_of: Callable[[str], Awaitable[TokenVerifier]]) -> None:
        """`claim`: the one that is looked for elsewhere; empty: none is."""
        self._claim = claim
        self._fetcher = fetcher
        self._verifier_of = verifier_of
        self._verifiers: OrderedDict[str, TokenVerifier] = OrderedDict()

    def needed(self, claims: Claims) -> bool:
        return bool(self._claim) and self._claim not in claims and _NAMES in claims

    async def expanded(self, claims: Claims) -> Claims:
        """The claims with the one that was to be got. Raises BadIssuer."""
        names, sources = claims[_NAMES], claims.get(_SOURCES)
        if not isinstance(names, dict):
            raise BadIssuer("oidc: error parsing distributed claim names: it is not an object")
        source = names.get(self._claim)
        endpoint = sources.get(source) if isinstance(sources, dict) else None
        if not isinstance(endpoint, dict) or not endpoint.get("endpoint"):
            return claims
        return claims | {self._claim: await self._resolved(str(endpoint["endpoint"]), endpoint.get("access_token"))}

    async def _resolved(self, url: str, access_token: Any) -> Any:
        about = f"while getting distributed claim {quote(self._claim)}"
        try:
            answer = await self._fetcher.get(url, str(access_token or ""))
        except FetchProblem as problem:
            raise BadIssuer(f"{about}: {problem}") from None
        if not 200 <= answer.status <= 226:
            raise BadIssuer(f"{about}: error while getting distributed claim JWT: {answer.phrase}")
        token = answer.body.decode("utf-8", "replace").strip()
        issuer = untrusted_issuer(token)
        if not issuer:
            raise BadIssuer(f"getting untrusted issuer from endpoint {url} failed for claim {quote(self._claim)}")
        verifier = self._verifiers.get(issuer)
        if verifier is None:
            try:
                verifier = self._verifiers[issuer] = await self._verifier_of(issuer)
            except BadIssuer as problem:
                raise BadIssuer(f"verifying untrusted issuer {issuer} failed: {problem}") from None
            if len(self._verifiers) > _MOST_ISSUERS:
                self._verifiers.popitem(last=False)
        try:
            found = verifier.verify(token)
            claims = found if isinstance(found, dict) else await found
        except TokenRefused as error:
            raise BadIssuer(f"verify distributed claim token: {error}") from None
        if self._claim not in claims:
            raise BadIssuer(
                f"jwt returned by distributed claim endpoint {quote(url)} did not contain claim: {self._claim}"
            )
        return claims[self._claim]
