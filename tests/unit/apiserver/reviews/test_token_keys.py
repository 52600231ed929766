"""Keys of service account tokens: several, rotated, published; and how long a token may be good."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from server_harness import ServerHarness

from setpoint.cluster.certificates import ensure_certificates
from setpoint.cluster.config import AccessConfig, ConfigError
from setpoint.meta.jose import verifying_keys

HERE = "/api/v1/namespaces/default"
TOKEN = f"{HERE}/serviceaccounts/sa/token"
REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"


def private(path: Path) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    return str(path)


def public(path: Path) -> str:
    (key,) = verifying_keys(path.read_bytes())
    found = path.with_suffix(".pub")
    found.write_bytes(key._public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return str(found)


class Servers:
    """One after the other, of one cluster: the objects stay, and with them the uids."""

    def __init__(self) -> None:
        self.harness: ServerHarness | None = None

    async def open(self, issuers: list[str] | None = None, **access: Any) -> ServerHarness:
        store = self.harness.store if self.harness is not None else None
        if self.harness is not None:
            await self.harness.api.stop()
        issuers = issuers or ["https://own"]
        self.harness = await ServerHarness.open(store, access=AccessConfig(**access), service_account_issuer=issuers)
        if store is None:
            await self.harness.make(f"{HERE}/serviceaccounts", {"metadata": {"name": "sa"}})
        return self.harness


async def ask(harness: ServerHarness, **spec: Any) -> str:
    reply = await harness.post(TOKEN, {"spec": spec})
    assert reply.status == 201, reply.body
    token: str = reply.json["status"]["token"]
    return token


async def error(harness: ServerHarness, token: str) -> str:
    """Empty: it is good."""
    status = (await harness.post(REVIEW, {"spec": {"token": token}})).json["status"]
    return "" if status.get("authenticated") else status["error"]


async def test_keys_are_rotated(tmp_path: Path) -> None:
    old, new = tmp_path / "old.key", tmp_path / "new.key"
    private(old), private(new)
    servers = Servers()
    harness = await servers.open(service_account_signing_key_file=str(old))
    before = await ask(harness)
    assert await error(harness, before) == ""
    harness = await servers.open(
        service_account_signing_key_file=str(new), service_account_key_file=[str(new), public(old)]
    )
    after = await ask(harness)
    assert [await error(harness, token) for token in (before, after)] == ["", ""]
    kids = [key["kid"] for key in (await harness.get("/openid/v1/jwks")).json["keys"]]
    assert kids == [verifying_keys(path.read_bytes())[0].id for path in (new, old)]
    harness = await servers.open(service_account_signing_key_file=str(new))
    assert await error(harness, after) == ""
    assert await error(harness, before) == "[invalid bearer token, invalid signature, no keys found]"
    await harness.close()


async def test_several_issuers(tmp_path: Path) -> None:
    key = private(tmp_path / "key")
    servers = Servers()
    harness = await servers.open(["https://old"], service_account_signing_key_file=key)
    before = await ask(harness)
    harness = await servers.open(["https://new", "https://old"], service_account_signing_key_file=key)
    assert await error(harness, before) == ""
    document = (await harness.get("/.well-known/openid-configuration")).json
    assert (document["issuer"], document["id_token_signing_alg_values_supported"]) == ("https://new", ["ES256"])
    harness = await servers.open(["https://new"], service_account_signing_key_file=key)
    assert await error(harness, before) == "invalid bearer token"
    await harness.close()


async def test_where_others_find_the_keys(tmp_path: Path) -> None:
    key = private(tmp_path / "key")
    harness = await Servers().open(
        service_account_jwks_uri="https://elsewhere/keys", service_account_signing_key_file=key
    )
    assert (await harness.get("/.well-known/openid-configuration")).json["jwks_uri"] == "https://elsewhere/keys"
    await harness.close()
    named = await ServerHarness.open(advertise_address="192.0.2.7", cert_dir=tmp_path)
    document = (await named.get("/.well-known/openid-configuration")).json
    assert document["jwks_uri"] == "https://192.0.2.7:6443/openid/v1/jwks"
    await named.close()


async def test_no_token_is_good_for_longer_than_allowed(tmp_path: Path) -> None:
    key = private(tmp_path / "key")
    harness = await Servers().open(service_account_max_token_expiration=7200.0, service_account_signing_key_file=key)
    reply = await harness.post(TOKEN, {"spec": {"expirationSeconds": 86400}})
    assert reply.warnings == ['299 - "requested expiration of 86400 seconds shortened to 7200 seconds"']
    assert reply.json["spec"]["expirationSeconds"] == 7200
    assert reply.json["status"]["expirationTimestamp"] == "2026-01-01T02:00:00Z"
    assert (await harness.post(TOKEN, {"spec": {"expirationSeconds": 7200}})).warnings == []
    await harness.close()


@pytest.mark.parametrize(("extends", "life"), [(True, 365 * 24 * 3600), (False, 3607)])
async def test_what_kubelets_ask_for_may_be_extended(tmp_path: Path, extends: bool, life: int) -> None:
    key = private(tmp_path / "key")
    harness = await Servers().open(
        service_account_extend_token_expiration=extends, service_account_signing_key_file=key
    )
    spec = {"serviceAccountName": "sa", "containers": [{"name": "c", "image": "i"}]}
    await harness.make(f"{HERE}/pods", {"metadata": {"name": "p"}, "spec": spec})
    token = await ask(harness, expirationSeconds=3607, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p"})
    await harness.clock.advance(life - 1)
    assert await error(harness, token) == ""
    await harness.clock.advance(62)
    assert await error(harness, token) == "[invalid bearer token, service account token has expired]"
    await harness.close()


def test_keys_of_every_make(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path / "pki", datetime.now(UTC))
    secret = rsa.generate_private_key(65537, 2048)
    texts = [
        secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        secret.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
        secret.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        secret.public_key().public_bytes(Encoding.PEM, PublicFormat.PKCS1),
        files.certificate.read_bytes(),
    ]
    keys = verifying_keys(b"# a comment\n".join(texts))
    # The file of the serving certificate also holds its issuer.
    assert [key.algorithm for key in keys] == ["RS256"] * 4 + ["ES256"] * 2
    assert len({key.id for key in keys}) == 3
    for nothing in (b"", b"x", b"-----BEGIN X-----\nx\n-----END Y-----\n"):
        with pytest.raises(ValueError, match="does not contain any valid RSA or ECDSA public keys"):
            verifying_keys(nothing)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("service_account_signing_key_file", "failed to parse service-account-issuer-key-file: "),
        ("service_account_key_file", "error reading public key file |failed to parse service-account-key-file: open "),
    ],
)
async def test_files_that_hold_no_key(tmp_path: Path, flag: str, said: str) -> None:
    (tmp_path / "x").write_text("x")
    path = str(tmp_path / "x")
    for given in (path, str(tmp_path / "not-there")):
        with pytest.raises(ConfigError, match=said):
            flags: dict[str, Any] = {flag: given if flag.endswith("signing_key_file") else [given]}
            await Servers().open(**flags)
    assert not (tmp_path / "not-there").exists()
