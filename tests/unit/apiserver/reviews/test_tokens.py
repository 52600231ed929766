"""Service account tokens from their making to their end."""

from __future__ import annotations

import asyncio
import stat
from base64 import b64encode, urlsafe_b64decode
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.api_jws import encode
from server_harness import LIMITED_TOKEN, ServerHarness, settle

from setpoint.apiserver.tokens import LEGACY_ISSUER, ServiceAccountTokens, SigningKey
from setpoint.meta.jose import BadSignature, UnknownKey
from setpoint.meta.objects import Obj

HERE = "/api/v1/namespaces/default"
TOKEN = f"{HERE}/serviceaccounts/sa/token"
REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
POD: Obj = {
    "metadata": {"name": "p"},
    "spec": {"serviceAccountName": "sa", "nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
}


async def ask(harness: ServerHarness, **spec: Any) -> str:
    reply = await harness.post(TOKEN, {"spec": spec})
    assert reply.status == 201, reply.body
    token: str = reply.json["status"]["token"]
    return token


def claims_of(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    claims: dict[str, Any] = orjson.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return claims


async def review(harness: ServerHarness, token: str, *audiences: str) -> dict[str, Any]:
    reply = await harness.post(REVIEW, {"spec": {"token": token, "audiences": list(audiences)}})
    assert reply.status == 201, reply.body
    found: dict[str, Any] = reply.json["status"]
    return found


def bound(kind: str, name: str, **more: str) -> dict[str, str]:
    return {"kind": kind, "apiVersion": "v1", "name": name} | more


async def test_what_a_token_says(issuer: ServerHarness) -> None:
    reply = await issuer.post(TOKEN, {})
    made = reply.json
    account = (await issuer.get(f"{HERE}/serviceaccounts/sa")).json["metadata"]
    assert made["spec"] == {"audiences": ["https://issuer"], "expirationSeconds": 3600, "boundObjectRef": None}
    assert made["metadata"]["uid"] == account["uid"]
    claims = claims_of(made["status"]["token"])
    now = int(issuer.clock.now().timestamp())
    assert claims.pop("jti")
    assert claims == {
        "aud": ["https://issuer"],
        "iss": "https://issuer",
        "sub": "system:serviceaccount:default:sa",
        "iat": now,
        "nbf": now,
        "exp": now + 3600,
        "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "sa", "uid": account["uid"]}},
    }


async def test_who_a_token_is(issuer: ServerHarness) -> None:
    token = await ask(issuer)
    expected = {
        "username": "system:serviceaccount:default:sa",
        "uid": (await issuer.get(f"{HERE}/serviceaccounts/sa")).json["metadata"]["uid"],
        "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": [f"JTI={claims_of(token)['jti']}"]},
    }
    assert await review(issuer, token) == {"authenticated": True, "user": expected, "audiences": ["https://issuer"]}
    reply = await issuer.get("/api/v1/pods", token=token)
    assert 'User "system:serviceaccount:default:sa" cannot list' in reply.message


async def test_a_token_is_for_its_audience(issuer: ServerHarness) -> None:
    token = await ask(issuer, audiences=["a", "b"])
    assert (await review(issuer, token, "x", "b"))["audiences"] == ["b"]
    assert await review(issuer, token) == {
        "user": {},
        "error": '[invalid bearer token, token audiences ["a" "b"] is invalid for the target audiences ["https://issuer"]]',
    }
    assert (await issuer.get("/api", token=token)).status == 401


async def test_a_token_ends_a_minute_after_its_time(issuer: ServerHarness) -> None:
    token = await ask(issuer, expirationSeconds=600)
    await issuer.clock.advance(660)
    assert (await review(issuer, token))["authenticated"]
    await issuer.clock.advance(1)
    assert (await review(issuer, token))["error"] == "[invalid bearer token, service account token has expired]"


async def test_a_token_ends_with_its_account(issuer: ServerHarness) -> None:
    token = await ask(issuer)
    assert (await issuer.post(WHO, {}, token=token)).status == 403
    await issuer.delete(f"{HERE}/serviceaccounts/sa")
    assert (await issuer.post(WHO, {}, token=token)).status == 401
    assert (await review(issuer, token))["error"] == '[invalid bearer token, serviceaccounts "sa" not found]'
    await issuer.make(f"{HERE}/serviceaccounts", {"metadata": {"name": "sa"}})
    assert "does not match claim" in (await review(issuer, token))["error"]


async def test_a_token_ends_with_what_it_is_bound_to(issuer: ServerHarness) -> None:
    await issuer.make("/api/v1/nodes", {"metadata": {"name": "n1"}})
    await issuer.make(f"{HERE}/pods", POD)
    await issuer.make(f"{HERE}/secrets", {"metadata": {"name": "s"}})
    gone = "[invalid bearer token, service account token has been invalidated]"
    for kind, name, path in (
        ("Pod", "p", f"{HERE}/pods/p?gracePeriodSeconds=0"),
        ("Secret", "s", f"{HERE}/secrets/s"),
        ("Node", "n1", "/api/v1/nodes/n1"),
    ):
        token = await ask(issuer, boundObjectRef=bound(kind, name))
        assert (await review(issuer, token))["authenticated"]
        await issuer.delete(path)
        assert (await review(issuer, token))["error"] == gone


async def test_a_pod_that_comes_again_is_another(issuer: ServerHarness) -> None:
    await issuer.make(f"{HERE}/pods", POD)
    token = await ask(issuer, boundObjectRef=bound("Pod", "p"))
    await issuer.delete(f"{HERE}/pods/p?gracePeriodSeconds=0")
    await issuer.make(f"{HERE}/pods", POD)
    assert "does not match service account pod ref claim" in (await review(issuer, token))["error"]


async def test_a_deleted_pod_keeps_its_token_while_it_shuts_down(issuer: ServerHarness) -> None:
    await issuer.make(f"{HERE}/pods", POD)
    token = await ask(issuer, boundObjectRef=bound("Pod", "p"))
    await issuer.delete(f"{HERE}/pods/p?gracePeriodSeconds=30")
    await issuer.clock.advance(90)
    assert (await review(issuer, token))["authenticated"]
    await issuer.clock.advance(1)
    assert "error" in await review(issuer, token)


async def test_a_pods_token_tells_its_node(issuer: ServerHarness) -> None:
    await issuer.make(f"{HERE}/pods", POD)
    claims = claims_of(await ask(issuer, boundObjectRef=bound("Pod", "p")))
    assert claims["kubernetes.io"]["node"] == {"name": "n1"}
    node = await issuer.make("/api/v1/nodes", {"metadata": {"name": "n1"}})
    token = await ask(issuer, boundObjectRef=bound("Pod", "p"))
    extra = (await review(issuer, token))["user"]["extra"]
    assert extra["authentication.kubernetes.io/node-name"] == ["n1"]
    assert extra["authentication.kubernetes.io/node-uid"] == [node["metadata"]["uid"]]
    assert extra["authentication.kubernetes.io/pod-name"] == ["p"]


async def test_what_kubelets_ask_for_lasts_a_year(issuer: ServerHarness) -> None:
    await issuer.make(f"{HERE}/pods", POD)
    reference = bound("Pod", "p")
    claims = claims_of(await ask(issuer, expirationSeconds=3607, boundObjectRef=reference))
    assert claims["exp"] - claims["iat"] == 365 * 24 * 3600
    assert claims["kubernetes.io"]["warnafter"] == claims["iat"] + 3607
    for spec in ({"audiences": ["vault"], "boundObjectRef": reference}, {}):
        claims = claims_of(await ask(issuer, expirationSeconds=3607, **spec))
        assert claims["exp"] - claims["iat"] == 3607


@pytest.mark.parametrize(
    ("reference", "status", "message"),
    [
        (bound("Pod", ""), 400, "Name parameter required."),
        (bound("Pod", "nosuch"), 404, 'pods "nosuch" not found'),
        (bound("Pod", "q"), 400, 'cannot bind token for serviceaccount "sa" to pod running with different'),
        (bound("Bogus", "n"), 400, "cannot bind token to object of type /v1, Kind=Bogus"),
        (bound("Pod", "p", apiVersion="apps/v1"), 400, "cannot bind token to object of type apps/v1, Kind=Pod"),
        (bound("Pod", "p", uid="u"), 409, 'Operation cannot be fulfilled on Pod "p": the UID in the bound'),
    ],
)
async def test_what_cannot_be_bound_to(
    issuer: ServerHarness, reference: dict[str, str], status: int, message: str
) -> None:
    await issuer.make(f"{HERE}/pods", POD)
    await issuer.make(f"{HERE}/serviceaccounts", {"metadata": {"name": "other"}})
    await issuer.make(
        f"{HERE}/pods", {"metadata": {"name": "q"}, "spec": POD["spec"] | {"serviceAccountName": "other"}}
    )
    reply = await issuer.post(TOKEN, {"spec": {"boundObjectRef": reference}})
    assert reply.status == status
    assert reply.message.startswith(message)


async def test_the_request_must_mean_this_account(issuer: ServerHarness) -> None:
    assert (await issuer.post(TOKEN, {"metadata": {"name": "other"}})).status == 422
    assert (await issuer.post(TOKEN, {"metadata": {"namespace": "other"}})).status == 400
    assert (await issuer.post(TOKEN, {"metadata": {"uid": "other"}})).status == 409
    assert (await issuer.post(f"{HERE}/serviceaccounts/nosuch/token", {})).status == 404


async def test_forged_tokens(issuer: ServerHarness) -> None:
    token = await ask(issuer)
    head, payload, signature = token.split(".")
    for forged in (
        f"{head}.{payload}.{signature[:-6]}AAAAAA",
        f"eyJhbGciOiJub25lIn0.{payload}.",
        f"eyJhbGciOiJIUzI1NiJ9.{payload}.{signature}",
    ):
        assert (await review(issuer, forged))["error"].startswith("[invalid bearer token, ")
        assert (await issuer.get("/api", token=forged)).status == 401


NUMERIC, STRING = "go-jose/go-jose/jwt: expected number value to unmarshal NumericDate", "Go value of type string"


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"aud": [1]}, "go-jose/go-jose/jwt: expected string or array value to unmarshal to Audience"),
        ({"aud": None}, "go-jose/go-jose/jwt: expected string or array value to unmarshal to Audience"),
        ({"aud": ""}, 'token audiences [""] is invalid for the target audiences ["https://issuer"]'),
        ({"exp": "1"}, NUMERIC),
        ({"nbf": True}, NUMERIC),
        ({"iat": []}, NUMERIC),
        ({"exp": 1e30}, "service account token has expired"),
        ({"sub": 1}, f"json: cannot unmarshal number into {STRING}"),
        ({"jti": {}}, f"json: cannot unmarshal object into {STRING}"),
        ({"kubernetes.io": "x"}, "json: cannot unmarshal string into Go value of type serviceaccount.kubernetes"),
        ({"kubernetes.io": None}, "resource name may not be empty"),
        ({"kubernetes.io": {"pod": True}}, "json: cannot unmarshal bool into Go value of type serviceaccount.ref"),
        ({"kubernetes.io": {"serviceaccount": {"uid": 1}}}, f"json: cannot unmarshal number into {STRING}"),
        ({"kubernetes.io": {"serviceaccount": {"name": "sa"}}}, "the server could not find the requested resource"),
    ],
)
async def test_nonsense_with_a_good_signature(issuer: ServerHarness, claims: dict[str, Any], said: str) -> None:
    tokens = next(one for one in issuer.api.parts.authenticator._tokens if isinstance(one, ServiceAccountTokens))
    good = claims_of(await ask(issuer))
    token = tokens.sign(good | claims)
    assert (await review(issuer, token))["error"] == f"[invalid bearer token, {said}]"
    assert (await issuer.get("/api", token=token)).status == 401


async def test_a_claim_that_stands_twice(issuer: ServerHarness) -> None:
    tokens = next(one for one in issuer.api.parts.authenticator._tokens if isinstance(one, ServiceAccountTokens))
    good = orjson.dumps(claims_of(await ask(issuer)))
    token = tokens.keys.signing.sign(good[:-1] + b',"sub":"system:serviceaccount:kube-system:default"}')
    assert (await review(issuer, token))["error"] == "[invalid bearer token, json: duplicate key 'sub' in object]"


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256"])
async def test_what_others_sign_with(issuer: ServerHarness, algorithm: str) -> None:
    tokens = next(one for one in issuer.api.parts.authenticator._tokens if isinstance(one, ServiceAccountTokens))
    key = tokens.keys.signing
    token = encode(orjson.dumps(claims_of(await ask(issuer))), key._key, algorithm, {"kid": key.id})
    assert (await review(issuer, token)).get("authenticated") is True


def legacy_claims(uid: str) -> dict[str, str]:
    prefix = "kubernetes.io/serviceaccount/"
    return {
        "iss": LEGACY_ISSUER,
        "sub": "system:serviceaccount:default:sa",
        f"{prefix}namespace": "default",
        f"{prefix}secret.name": "t",
        f"{prefix}service-account.name": "sa",
        f"{prefix}service-account.uid": uid,
    }


async def test_a_token_kept_in_a_secret_is_good_while_it_is_kept(issuer: ServerHarness) -> None:
    uid = (await issuer.get(f"{HERE}/serviceaccounts/sa")).json["metadata"]["uid"]
    tokens = next(one for one in issuer.api.parts.authenticator._tokens if isinstance(one, ServiceAccountTokens))
    token = tokens.sign(legacy_claims(uid))
    assert (await review(issuer, token))["error"] == "[invalid bearer token, Token has been invalidated]"
    wrong = tokens.sign(legacy_claims(uid) | {"sub": "system:serviceaccount:default:other"})
    assert (await review(issuer, wrong))["error"] == "[invalid bearer token, sub claim is invalid]"
    assert "audiences" in (await review(issuer, wrong, "others"))["error"], "it is not even for them"
    await issuer.make(
        f"{HERE}/secrets",
        {
            "metadata": {"name": "t", "annotations": {"kubernetes.io/service-account.name": "sa"}},
            "type": "kubernetes.io/service-account-token",
            "data": {"token": b64encode(token.encode()).decode()},
        },
    )
    using = asyncio.ensure_future(issuer.api.parts.token_use.run())
    assert (await review(issuer, token))["user"]["username"] == "system:serviceaccount:default:sa"
    await settle()
    kept = (await issuer.get(f"{HERE}/secrets/t")).json
    today = issuer.clock.now().strftime("%Y-%m-%d")
    assert kept["metadata"]["labels"] == {"kubernetes.io/legacy-token-last-used": today}
    await review(issuer, token)
    await settle()
    assert (await issuer.get(f"{HERE}/secrets/t")).json == kept, "once a day"
    using.cancel()
    await issuer.patch(f"{HERE}/secrets/t", {"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "x"}}})
    assert "has been marked invalid" in (await review(issuer, token))["error"]
    await issuer.patch(f"{HERE}/secrets/t", {"data": {"token": "AAAA"}})
    assert "does not match server's copy" in (await review(issuer, token))["error"]


async def test_the_documents_of_the_issuer(issuer: ServerHarness) -> None:
    found = await issuer.get("/.well-known/openid-configuration")
    assert found.json["issuer"] == "https://issuer"
    assert found.json["jwks_uri"].endswith("/openid/v1/jwks")
    assert found.header("cache-control") == "public, max-age=3600"
    keys = await issuer.get("/openid/v1/jwks")
    assert keys.header("content-type") == "application/jwk-set+json"
    assert keys.json["keys"][0]["alg"] in found.json["id_token_signing_alg_values_supported"]
    assert (await issuer.get("/openid/v1/jwks", headers={"accept": "application/json"})).status == 406
    assert (await issuer.post("/openid/v1/jwks", {})).status == 405


async def test_only_service_accounts_read_the_issuer_discovery_documents(tmp_path: Path) -> None:
    """By the role system:service-account-issuer-discovery, until an administrator binds it to others."""
    harness = await ServerHarness.open(full=True, cert_dir=tmp_path)
    account = {"impersonate-user": "system:serviceaccount:x:y", "impersonate-group": "system:serviceaccounts"}
    paths = ("/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks")
    for path in paths:
        assert (await harness.get(path, headers=account)).status == 200
        for token, user in (("", "system:anonymous"), (LIMITED_TOKEN, "limited")):
            reply = await harness.get(path, token=token)
            assert (reply.status, reply.message) == (403, f'forbidden: User "{user}" cannot get path "{path}"')
    group = "rbac.authorization.k8s.io"
    role = {"kind": "ClusterRole", "name": "system:service-account-issuer-discovery", "apiGroup": group}
    everybody = {"kind": "Group", "name": "system:unauthenticated", "apiGroup": group}
    bound = {"metadata": {"name": "all"}, "roleRef": role, "subjects": [everybody]}
    await harness.make(f"/apis/{group}/v1/clusterrolebindings", bound)
    assert [(await harness.get(path, token="")).status for path in paths] == [200] * 3
    assert (await harness.get(paths[0], token=LIMITED_TOKEN)).status == 403
    await harness.close()


# -- the key ----------------------------------------------------------------------------------------------------------


def test_the_key_is_made_once_and_is_nobody_elses_to_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "sa.key"
    key = SigningKey(path)
    assert not path.exists()
    token = key.sign(b'{"a":1}')
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["sa.key"]
    assert SigningKey(path).open(token) == b'{"a":1}'
    with pytest.raises(UnknownKey):
        SigningKey(tmp_path / "other.key").open(token)


def test_an_elliptic_key_will_do(tmp_path: Path) -> None:
    path = tmp_path / "sa.key"
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(pem)
    key = SigningKey(path)
    assert (key.algorithm, key.published["crv"], key.published["kty"]) == ("ES256", "P-256", "EC")
    token = key.sign(b"{}")
    assert key.open(token) == b"{}"
    head, payload, signature = token.split(".")
    with pytest.raises(BadSignature):
        key.open(f"{head}.{payload}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}")
    assert key.open("no.token") is None
