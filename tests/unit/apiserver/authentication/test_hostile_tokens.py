"""Fuzzed tokens: the answer is always a user or a refusal."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Awaitable
from itertools import product
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server_harness import VirtualClock
from token_issuer import Issuer, Key, Network

from setpoint.apiserver.authentication.issuer_keys import Fetcher
from setpoint.apiserver.authentication.jwt_tokens import JwtIssuer, JwtTokens
from setpoint.apiserver.filters.authenticate import TokenRefused, Verified

KEY = Key("k")
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
CLAIMS = st.sampled_from(
    ["aud", "exp", "nbf", "iat", "sub", "groups", "jti", "email_verified", "a", "_claim_names", "_claim_sources"]
)
GOOD = {"iss": "https://issuer.example", "aud": "a", "sub": "jane", "exp": 4_000_000_000}
MAPPINGS = [
    {"username": {"claim": "sub", "prefix": ""}, "groups": {"claim": "groups", "prefix": "g:"}, "uid": {"claim": "a"}},
    {
        "username": {"expression": "claims.?sub.orValue('x') + string(claims.?a.orValue(''))"},
        "groups": {"expression": "claims.groups"},
        "extra": [{"key": "example.com/a", "valueExpression": "claims.a.b__dot__c"}],
    },
]


async def issuers() -> list[JwtTokens]:
    network, clock = Network(), VirtualClock()
    Issuer(network, "issuer.example", KEY)
    found = []
    for mappings in MAPPINGS:
        configuration = {"issuer": {"url": "https://issuer.example", "audiences": ["a"]}, "claimMappings": mappings}
        issuer = JwtIssuer(configuration, Fetcher(network), clock)
        await issuer.initialize()
        found.append(JwtTokens([issuer], clock))
    return found


async def verify_token(tokens: JwtTokens, token: str) -> Verified | None:
    try:
        found: Any = tokens.verify(token, ())
        verified: Verified | None = await found if isinstance(found, Awaitable) else found
        return verified
    except TokenRefused as error:
        assert str(error)
        return None


async def test_any_claims() -> None:
    first, second = await issuers()

    @settings(max_examples=50, deadline=None)
    @given(st.dictionaries(CLAIMS, JSON, max_size=5))
    def check(claims: dict[str, Any]) -> None:
        token = KEY.sign(GOOD | claims)
        for tokens in (first, second):
            running = verify_token(tokens, token)
            try:
                while True:
                    running.send(None)  # nothing in this network waits
            except StopIteration as end:
                # Null is an empty name, as upstream.
                assert end.value is None or end.value.user.name or not (GOOD | claims)["sub"]

    await verify_token(first, KEY.sign(GOOD))  # so that the keys are known
    await verify_token(second, KEY.sign(GOOD))
    check()


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "head",
    [
        b"{}",
        b"[]",
        b"7",
        b"",
        b"\xff",
        b'{"alg":7}',
        b'{"alg":["ES256"]}',
        b'{"alg":"ES256","kid":{}}',
        b'{"alg":"ES256","crit":["x"]}',
        b'{"alg":"ES256","b64":false,"crit":["b64"]}',
        b"[" * 3000,
        b'{"alg":"none"}',
    ],
)
async def test_any_header(head: bytes) -> None:
    tokens, _ = await issuers()
    for payload in (orjson.dumps(GOOD), b"{" * 3000):
        for signature in ("", "AA", "!"):
            assert await verify_token(tokens, f"{encoded(head)}.{encoded(payload)}.{signature}") is None


@pytest.mark.parametrize("token", ["", ".", "..", "...", "a.b.c.d", "\udcff.\udcff.\udcff", "é.é.é", " . . ", "=.=.="])
async def test_strings_that_are_no_token(token: str) -> None:
    tokens, _ = await issuers()
    assert await verify_token(tokens, token) is None


async def test_invalid_distributed_claims() -> None:
    tokens, _ = await issuers()
    all_names: list[Any] = [{"groups": [1]}, {"groups": {}}, {"groups": ""}, {"groups": 7}, [], "x"]
    all_sources: list[Any] = [{}, [], {"": {}}, {"x": 7}, None]
    for names, sources in product(all_names, all_sources):
        await verify_token(tokens, KEY.sign(GOOD | {"_claim_names": names, "_claim_sources": sources}))
