"""Tokens of OpenID Connect issuers, through the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from server_harness import ServerHarness
from token_issuer import Issuer, Key, Network

from setpoint.apiserver.authentication.claims import check_types
from setpoint.apiserver.filters.authenticate import TokenRefused
from setpoint.cluster.config import AccessConfig
from setpoint.meta.body import dump_yaml
from setpoint.meta.objects import Obj
from setpoint.wire.message import Response

REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"
KEY = Key("one")
AUDIENCE = "my-cluster"


def authenticator(url: str = "https://issuer.example", **more: Any) -> Obj:
    mappings = {"username": {"claim": "sub", "prefix": "oidc:"}, "groups": {"claim": "groups", "prefix": ""}}
    return {"issuer": {"url": url, "audiences": [AUDIENCE]}, "claimMappings": mappings} | more


def configuration(*authenticators: Obj, **more: Any) -> bytes:
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
    return dump_yaml({**head, "jwt": list(authenticators), **more})


class World:
    def __init__(self, harness: ServerHarness, network: Network, issuer: Issuer, path: Path) -> None:
        self.harness = harness
        self.network = network
        self.issuer = issuer
        self.path = path

    def claims(self, **claims: Any) -> Obj:
        now = int(self.harness.clock.now().timestamp())
        return {"iss": self.issuer.url, "aud": AUDIENCE, "sub": "jane", "exp": now + 600, "iat": now} | claims

    def token(self, key: Key = KEY, **claims: Any) -> str:
        return key.sign(self.claims(**claims))

    async def review(self, token: str, *audiences: str) -> Obj:
        reply = await self.harness.post(REVIEW, {"spec": {"token": token, "audiences": list(audiences)}})
        status: Obj = reply.json["status"]
        return status

    async def refusal(self, token: str) -> str:
        """Return why the token is invalid."""
        status = await self.review(token)
        assert "authenticated" not in status, status
        error: str = status["error"]
        return error.removeprefix("[invalid bearer token, ").removesuffix("]")


@asynccontextmanager
async def world(tmp_path: Path, config: bytes | None = None, **flags: Any) -> AsyncIterator[World]:
    network = Network()
    issuer = Issuer(network, "issuer.example", KEY)
    path = tmp_path / "authentication.yaml"
    if config is not None:
        path.write_bytes(config)
        flags["authentication_config"] = str(path)
    access = AccessConfig(**flags)
    async with ServerHarness.running(servers=network, access=access, service_account_issuer=["https://own"]) as harness:
        yield World(harness, network, issuer, path)


async def test_the_user_of_a_token(tmp_path: Path) -> None:
    async with world(tmp_path, configuration(authenticator())) as found:
        token = found.token(groups=["a", "b"], jti="7")
        assert await found.review(token) == {
            "authenticated": True,
            "user": {
                "username": "oidc:jane",
                "groups": ["a", "b", "system:authenticated"],
                "extra": {"authentication.kubernetes.io/credential-id": ["JTI=7"]},
            },
            "audiences": ["https://own"],
        }
        reply = await found.harness.get("/api/v1/pods", token=token)
        assert 'User "oidc:jane" cannot list' in reply.message
        assert await found.review(token, "somebody-else") == {"user": {}, "error": "invalid bearer token"}


@pytest.mark.parametrize("algorithm", ["ES384", "ES512", "RS256", "RS512", "PS256"])
async def test_all_asymmetric_algorithms(tmp_path: Path, algorithm: str) -> None:
    key = Key("k", algorithm)
    async with world(tmp_path, configuration(authenticator())) as found:
        found.issuer.keys = [KEY, key]
        assert (await found.review(found.token(key)))["authenticated"]


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (
            lambda w: w.token(exp=1767225600 - 1),
            "oidc: verify token: oidc: token is expired (Token Expiry: 2025-12-31 23:59:59 +0000 UTC)",
        ),
        (
            lambda w: KEY.sign({k: v for k, v in w.claims().items() if k != "exp"}),
            "oidc: verify token: oidc: token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)",
        ),
        (
            lambda w: w.token(exp="1767225599"),
            "oidc: verify token: oidc: token is expired (Token Expiry: 2025-12-31 23:59:59 +0000 UTC)",
        ),
        (lambda w: w.token(aud=None), 'oidc: verify token: oidc: expected audience "my-cluster" got [""]'),
        (lambda w: w.token(aud=[None]), 'oidc: verify token: oidc: expected audience "my-cluster" got [""]'),
        (lambda w: w.token(aud=[]), 'oidc: verify token: oidc: expected audience "my-cluster" got []'),
        (
            lambda w: w.token(nbf=1767225600 + 61),
            "oidc: verify token: oidc: current time 2026-01-01 00:00:00 +0000 UTC "
            "before the nbf (not before) time: 2026-01-01 00:01:01 +0000 UTC",
        ),
        (lambda w: w.token(aud=["x", "y"]), 'oidc: verify token: oidc: expected audience "my-cluster" got ["x" "y"]'),
        (
            lambda w: Key("other").sign(w.claims()),
            "oidc: verify token: failed to verify signature: failed to verify id token signature",
        ),
        (
            lambda w: Key("one").sign(w.claims()),
            "oidc: verify token: failed to verify signature: failed to verify id token signature",
        ),
        (
            lambda w: w.token(sub=7),
            "oidc: verify token: oidc: failed to unmarshal claims: json: cannot unmarshal "
            "number into Go struct field idToken.sub of type string",
        ),
        (
            lambda w: w.token(groups={"a": 1}),
            'oidc: parse groups claim "groups": json: cannot unmarshal object into Go value of type string',
        ),
    ],
)
async def test_refused_tokens(tmp_path: Path, token: Callable[[World], str], why: str) -> None:
    async with world(tmp_path, configuration(authenticator())) as found:
        bad = token(found)
        assert await found.refusal(bad) == why
        assert (await found.harness.get("/api", token=bad)).status == 401


async def test_symmetric_and_unsigned_tokens_are_refused(tmp_path: Path) -> None:
    import jwt

    async with world(tmp_path, configuration(authenticator())) as found:
        keys: dict[str, Any] = {"HS256": "x" * 32, "none": None}
        for algorithm, key in keys.items():
            why = await found.refusal(jwt.encode(found.claims(), key, algorithm))
            assert why.startswith("oidc: verify token: oidc: id token signed with unsupported algorithm, expected [")
            assert why.endswith(f'got "{algorithm}"')


async def test_tokens_of_unknown_issuers(tmp_path: Path) -> None:
    async with world(tmp_path, configuration(authenticator())) as found:
        for token in (found.token(iss="https://elsewhere"), "a.b.c", "x", "a.e30.c"):
            assert await found.refusal(token) == "invalid bearer token"


async def test_keys_are_rotated(tmp_path: Path) -> None:
    new = Key("two")
    async with world(tmp_path, configuration(authenticator())) as found:
        assert (await found.review(found.token()))["authenticated"]
        found.issuer.keys = [new]
        assert (await found.review(found.token(new)))["authenticated"]
        await found.harness.clock.advance(11)
        assert "failed to verify id token signature" in await found.refusal(found.token(jti="again"))


async def test_keys_are_cached_for_their_max_age(tmp_path: Path) -> None:
    async with world(tmp_path, configuration(authenticator())) as found:
        found.issuer.headers = [("Cache-Control", "max-age=60, public")]
        assert (await found.review(found.token()))["authenticated"]
        new, fetched = Key("two"), len(found.network.asked)
        found.issuer.keys = [new]
        assert "failed to verify id token signature" in await found.refusal(found.token(new))
        assert len(found.network.asked) == fetched
        await found.harness.clock.advance(60)
        assert (await found.review(found.token(new)))["authenticated"]


async def test_concurrent_requests_fetch_keys_once(tmp_path: Path) -> None:
    async with world(tmp_path, configuration(authenticator())) as found:
        await asyncio.gather(*(found.review(found.token(jti=str(at))) for at in range(20)))
        assert found.network.asked.count("issuer.example/keys") == 1


async def test_an_issuer_that_is_available_later(tmp_path: Path) -> None:
    config = configuration(authenticator("https://late.example"))
    async with world(tmp_path, config) as found:
        token = found.token(iss="https://late.example")
        assert await found.refusal(token) == "oidc: authenticator not initialized"
        Issuer(found.network, "late.example", KEY)
        await found.harness.clock.advance(10)
        assert (await found.review(token))["authenticated"]


async def test_the_discovery_document_must_name_the_issuer(tmp_path: Path) -> None:
    issuer = {
        "url": "https://other.example",
        "discoveryURL": "https://issuer.example/.well-known/openid-configuration",
        "audiences": [AUDIENCE],
    }
    async with world(tmp_path, configuration(authenticator(issuer=issuer))) as found:
        assert await found.refusal(found.token(iss="https://other.example")) == "oidc: authenticator not initialized"
        found.issuer.url = "https://other.example"
        found.network.hosts["other.example"] = found.network.hosts["issuer.example"]
        await found.harness.clock.advance(10)
        assert (await found.review(found.token()))["authenticated"]


async def test_redirects_are_not_followed(tmp_path: Path) -> None:
    async with world(tmp_path, configuration(authenticator("https://moved.example"))) as found:
        moved = Response(302, b"", [("Location", "https://issuer.example/.well-known/openid-configuration")])
        found.network.hosts["moved.example"] = lambda server, request: moved
        asked = len(found.network.asked)
        await found.harness.clock.advance(10)
        assert found.network.asked[asked:] == ["moved.example/.well-known/openid-configuration"]
        assert await found.refusal(found.token(iss="https://moved.example")) == "oidc: authenticator not initialized"


async def test_expressions_map_the_user(tmp_path: Path) -> None:
    mappings = {
        "username": {"expression": "claims.sub + ':' + claims.org__dot__name"},
        "groups": {"expression": "claims.roles.split(',')"},
        "uid": {"expression": "claims.?uid.orValue('none')"},
        "extra": [
            {"key": "example.com/team", "valueExpression": "claims.team"},
            {"key": "example.com/none", "valueExpression": "''"},
        ],
    }
    rules = [
        {"claim": "hd", "requiredValue": "example.com"},
        {"expression": "claims.exp - claims.iat <= 86400.0", "message": "too long a life"},
    ]
    user_rules = [{"expression": "!user.username.startsWith('system:')", "message": "not yours"}]
    config = configuration(
        authenticator(claimMappings=mappings, claimValidationRules=rules, userValidationRules=user_rules)
    )
    async with world(tmp_path, config) as found:
        claims: dict[str, Any] = {"org.name": "acme", "roles": "a,b", "team": ["x", "", "y"], "hd": "example.com"}
        assert (await found.review(found.token(**claims)))["user"] == {
            "username": "jane:acme",
            "uid": "none",
            "groups": ["a", "b", "system:authenticated"],
            "extra": {"example.com/team": ["x", "y"]},
        }
        for change, why in (
            ({"hd": "evil.com"}, "oidc: required claim hd value does not match. Got = evil.com, want = example.com"),
            (
                {"exp": 1767225600 + 90000},
                "oidc: error evaluating claim validation expression: validation expression "
                "'claims.exp - claims.iat <= 86400.0' failed: too long a life",
            ),
            (
                {"sub": "system"},
                "oidc: error evaluating user info validation rule: validation expression "
                "'!user.username.startsWith('system:')' failed: not yours",
            ),
            (
                {"team": 7},
                "oidc: error evaluating extra claim expression: claims.team: expression must return a string "
                "or a list of strings",
            ),
            (
                {"roles": 7},
                "oidc: error evaluating group claim expression: expression 'claims.roles.split(',')' "
                "resulted in error: no such overload: split(double, string)",
            ),
        ):
            assert await found.refusal(found.token(**claims | change)) == why


@pytest.mark.parametrize(("verified", "good"), [(True, True), (False, False), (None, False)])
async def test_an_email_must_be_verified(tmp_path: Path, verified: bool | None, good: bool) -> None:
    mappings = {"username": {"claim": "email", "prefix": ""}}
    async with world(tmp_path, configuration(authenticator(claimMappings=mappings))) as found:
        token = found.token(email="j@example.com", email_verified=verified)
        assert (await found.review(token)).get("authenticated", False) is good


async def test_distributed_groups(tmp_path: Path) -> None:
    async with world(tmp_path, configuration(authenticator())) as found:
        groups = found.token(groups=["from", "afar"])
        found.issuer.documents["/groups"] = Response(200, groups.encode())
        sources = {"src": {"endpoint": "https://issuer.example/groups", "access_token": "t"}}
        token = found.token(_claim_names={"groups": "src"}, _claim_sources=sources)
        assert (await found.review(token))["user"]["groups"] == ["from", "afar", "system:authenticated"]
        sources["src"]["endpoint"] = "https://nowhere.example/groups"
        why = await found.refusal(found.token(_claim_names={"groups": "src"}, _claim_sources=sources))
        assert why == (
            'oidc: could not expand distributed claims: while getting distributed claim "groups": '
            'Get "https://nowhere.example/groups": dial tcp nowhere.example:443: connect: connection refused'
        )


async def test_flags(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    from datetime import UTC, datetime

    from setpoint.cluster.certificates import ensure_certificates

    authority.write_bytes(ensure_certificates(tmp_path / "pki", datetime.now(UTC)).ca.read_bytes())
    flags: dict[str, Any] = {
        "oidc_issuer_url": "https://issuer.example",
        "oidc_client_id": AUDIENCE,
        "oidc_groups_claim": "groups",
        "oidc_groups_prefix": "g:",
        "oidc_signing_algs": ["ES256"],
        "oidc_required_claim": ["hd=x=y"],
        "oidc_ca_file": str(authority),
    }
    async with world(tmp_path, **flags) as found:
        user = (await found.review(found.token(groups="one", hd="x=y")))["user"]
        assert (user["username"], user["groups"]) == ("https://issuer.example#jane", ["g:one", "system:authenticated"])
        assert found.issuer.authority == authority.read_bytes()
        assert await found.refusal(found.token()) == "oidc: required claim hd not present in ID token"
        assert "unsupported algorithm" in await found.refusal(found.token(Key("r", "ES384")))


async def test_the_file_is_reloaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with world(tmp_path, configuration(authenticator())) as found:
        other = Issuer(found.network, "other.example", KEY)
        token = found.token(iss=other.url)
        assert await found.refusal(token) == "invalid bearer token"
        found.path.write_bytes(configuration(authenticator(other.url)))
        await found.harness.clock.advance(2)
        assert (await found.review(token))["authenticated"]
        assert await found.refusal(found.token()) == "invalid bearer token"
        # What is wrong changes nothing.
        for bad, said in (
            (b"jwt: [}", "failed to load authentication config: yaml: "),
            (configuration(authenticator("http://other.example")), 'Invalid value: "http://other.example": URL scheme'),
            (configuration(anonymous={"enabled": True}), "anonymous: Forbidden: changed from initial configuration"),
        ):
            found.path.write_bytes(bad)
            await found.harness.clock.advance(2)
            assert said in caplog.text
            assert (await found.review(token))["authenticated"]
        # An issuer that does not answer yet is waited for, and the others stay.
        found.path.write_bytes(configuration(authenticator("https://third.example")))
        await found.harness.clock.advance(5)
        assert (await found.review(token))["authenticated"]
        third = Issuer(found.network, "third.example", KEY)
        await found.harness.clock.advance(15)
        assert (await found.review(found.token(iss=third.url)))["authenticated"]


@pytest.mark.parametrize(
    ("anonymous", "allowed"),
    [
        ({"enabled": True}, {"/livez": 200, "/readyz": 200, "/api": 403}),
        ({"enabled": True, "conditions": [{"path": "/livez"}]}, {"/livez": 200, "/livez/": 401, "/api": 401}),
        ({"enabled": False}, {"/livez": 401, "/readyz": 401, "/api": 401}),
    ],
)
async def test_anonymous_paths(tmp_path: Path, anonymous: Obj, allowed: dict[str, int]) -> None:
    async with world(tmp_path, configuration(anonymous=anonymous)) as found:
        group = "/apis/rbac.authorization.k8s.io/v1"
        rules = [{"verbs": ["get"], "nonResourceURLs": ["/livez", "/readyz"]}]
        await found.harness.make(f"{group}/clusterroles", {"metadata": {"name": "health"}, "rules": rules})
        subject = {"kind": "Group", "name": "system:unauthenticated", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "ClusterRole", "name": "health", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": "health"}, "subjects": [subject], "roleRef": role}
        await found.harness.make(f"{group}/clusterrolebindings", binding)
        assert {path: (await found.harness.get(path, token="")).status for path in allowed} == allowed


async def test_no_token_is_ever_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with world(tmp_path, configuration(authenticator())) as found:
        token = found.token()
        await found.review(token)
        await found.refusal(found.token(aud="x"))
        assert orjson.dumps(found.claims()).decode() not in caplog.text
        assert token.split(".")[2] not in caplog.text


INVALID_PATH: list[tuple[bytes, str]] = [
    (b'{"exp":null}', 'strconv.ParseFloat: parsing "": invalid syntax'),
    (b'{"iat":null}', 'strconv.ParseFloat: parsing "": invalid syntax'),
    (b'{"exp":" 123"}', r'json: invalid number literal, trying to unmarshal "\" 123\"" into Number'),
    (b'{"nbf":""}', r'json: invalid number literal, trying to unmarshal "\"\"" into Number'),
    (b'{"exp":"0x10"}', r'json: invalid number literal, trying to unmarshal "\"0x10\"" into Number'),
    (b'{"exp":true}', "json: cannot unmarshal bool into Go struct field idToken.exp of type json.Number"),
    (b'{"exp":[1]}', "json: cannot unmarshal array into Go struct field idToken.exp of type json.Number"),
    (b'{"exp":"1e400"}', 'strconv.ParseFloat: parsing "1e400": value out of range'),
    (b'{"aud":5}', "json: cannot unmarshal number into Go struct field idToken.aud of type []string"),
    (b'{"aud":["a",5]}', "json: cannot unmarshal number into Go struct field idToken.aud of type string"),
    (
        b'{"_claim_names":5}',
        "json: cannot unmarshal number into Go struct field idToken._claim_names of type map[string]string",
    ),
    (
        b'{"_claim_names":{"a":5}}',
        "json: cannot unmarshal number into Go struct field idToken._claim_names of type string",
    ),
    (
        b'{"_claim_sources":{"a":5}}',
        "json: cannot unmarshal number into Go struct field idToken._claim_sources of type oidc.claimSource",
    ),
    (
        b'{"_claim_sources":{"a":{"endpoint":5}}}',
        "json: cannot unmarshal number into Go struct field claimSource._claim_sources.endpoint of type string",
    ),
    (b'{"sub":5,"exp":"x"}', r'json: invalid number literal, trying to unmarshal "\"x\"" into Number'),
    (b'{"sub":5,"iss":[]}', "json: cannot unmarshal number into Go struct field idToken.sub of type string"),
]


@pytest.mark.parametrize(("payload", "why"), INVALID_PATH)
def test_claims_of_the_wrong_type(payload: bytes, why: str) -> None:
    with pytest.raises(TokenRefused) as caught:
        check_types(orjson.loads(payload), payload)
    assert str(caught.value) == f"oidc: failed to unmarshal claims: {why}"


def test_claims_of_the_right_type() -> None:
    for payload in (b'{"nbf":null,"iss":null,"aud":null}', b'{"exp":"1.5e3","iat":-1,"_claim_sources":{"a":null}}'):
        check_types(orjson.loads(payload), payload)


async def test_a_token_without_algorithm(tmp_path: Path) -> None:
    async with world(tmp_path, configuration(authenticator())) as found:
        _, claims, signature = found.token().split(".")
        assert (await found.refusal(f"e30.{claims}.{signature}")).endswith('got ""')
