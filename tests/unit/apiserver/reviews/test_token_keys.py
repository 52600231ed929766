"""Keys of service account tokens: several, rotated, published; and how long a token may be good."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from front_door import FrontDoor

from setpoint.apiserver.http.certificates import ensure_certificates
from setpoint.cluster.access_config import AccessConfig
from setpoint.cluster.config import ConfigError
from setpoint.meta.token_key import verifying_keys

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
        self.door: FrontDoor | None = None

    async def open(self, issuers: list[str] | None = None, **access: Any) -> FrontDoor:
        store = self.door.store if self.door is not None else None
        if self.door is not None:
            await self.door.api.stop()
        issuers = issuers or ["https://own"]
        self.door = await FrontDoor.open(store, access=AccessConfig(**access), service_account_issuer=issuers)
        if store is None:
            await self.door.make(f"{HERE}/serviceaccounts", {"metadata": {"name": "sa"}})
        return self.door


async def ask(door: FrontDoor, **spec: Any) -> str:
    reply = await door.post(TOKEN, {"spec": spec})
    assert reply.status == 201, reply.body
    token: str = reply.json["status"]["token"]
    return token


async def error(door: FrontDoor, token: str) -> str:
    """Empty: it is good."""
    status = (await door.post(REVIEW, {"spec": {"token": token}})).json["status"]
    return "" if status.get("authenticated") else status["error"]


async def test_keys_are_rotated(tmp_path: Path) -> None:
    old, new = tmp_path / "old.key", tmp_path / "new.key"
    private(old), private(new)
    servers = Servers()
    door = await servers.open(service_account_signing_key_file=str(old))
    before = await ask(door)
    assert await error(door, before) == ""
    door = await servers.open(
        service_account_signing_key_file=str(new), service_account_key_file=[str(new), public(old)]
    )
    after = await ask(door)
    assert [await error(door, token) for token in (before, after)] == ["", ""]
    kids = [key["kid"] for key in (await door.get("/openid/v1/jwks")).json["keys"]]
    assert kids == [verifying_keys(path.read_bytes())[0].id for path in (new, old)]
    door = await servers.open(service_account_signing_key_file=str(new))
    assert await error(door, after) == ""
    assert await error(door, before) == "[invalid bearer token, invalid signature, no keys found]"
    await door.close()


async def test_several_issuers(tmp_path: Path) -> None:
    key = private(tmp_path / "key")
    servers = Servers()
    door = await servers.open(["https://old"], service_account_signing_key_file=key)
    before = await ask(door)
    door = await servers.open(["https://new", "https://old"], service_account_signing_key_file=key)
    assert await error(door, before) == ""
    document = (await door.get("/.well-known/openid-configuration")).json
    assert (document["issuer"], document["id_token_signing_alg_values_supported"]) == ("https://new", ["ES256"])
    door = await servers.open(["https://new"], service_account_signing_key_file=key)
    assert await error(door, before) == "invalid bearer token"
    await door.close()


async def test_where_others_find_the_keys(tmp_path: Path) -> None:
    key = private(tmp_path / "key")
    door = await Servers().open(service_account_jwks_uri="https://elsewhere/keys", service_account_signing_key_file=key)
    assert (await door.get("/.well-known/openid-configuration")).json["jwks_uri"] == "https://elsewhere/keys"
    await door.close()
    named = await FrontDoor.open(advertise_address="192.0.2.7", cert_dir=tmp_path)
    document = (await named.get("/.well-known/openid-configuration")).json
    assert document["jwks_uri"] == "https://192.0.2.7:6443/openid/v1/jwks"
    await named.close()


async def test_no_token_is_good_for_longer_than_allowed(tmp_path: Path) -> None:
    key = private(tmp_path / "key")
    door = await Servers().open(service_account_max_token_expiration=7200.0, service_account_signing_key_file=key)
    reply = await door.post(TOKEN, {"spec": {"expirationSeconds": 86400}})
    assert reply.warnings == ['299 - "requested expiration of 86400 seconds shortened to 7200 seconds"']
    assert reply.json["spec"]["expirationSeconds"] == 7200
    assert reply.json["status"]["expirationTimestamp"] == "2026-01-01T02:00:00Z"
    assert (await door.post(TOKEN, {"spec": {"expirationSeconds": 7200}})).warnings == []
    await door.close()


@pytest.mark.parametrize(("extends", "life"), [(True, 365 * 24 * 3600), (False, 3607)])
async def test_what_kubelets_ask_for_may_be_extended(tmp_path: Path, extends: bool, life: int) -> None:
    key = private(tmp_path / "key")
    door = await Servers().open(service_account_extend_token_expiration=extends, service_account_signing_key_file=key)
    spec = {"serviceAccountName": "sa", "containers": [{"name": "c", "image": "i"}]}
    await door.make(f"{HERE}/pods", {"metadata": {"name": "p"}, "spec": spec})
    token = await ask(door, expirationSeconds=3607, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p"})
    await door.clock.advance(life - 1)
    assert await error(door, token) == ""
    await door.clock.advance(62)
    assert await error(door, token) == "[invalid bearer token, service account token has expired]"
    await door.close()


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
    assert [key.algorithm for key in keys] == ["RS256"] * 4 + ["ES256"]
    assert len({key.id for key in keys}) == 2
    for nothing in (b"", b"x", b"-----BEGIN X-----\nx\n-----END Y-----\n"):
        with pytest.raises(ValueError, match="does not contain any valid RSA or ECDSA public keys"):
            verifying_keys(nothing)


@pytest.mark.parametrize(
    ("flag", "said"),
    [("service_account_signing_key_file", "failed to parse service-account-issuer-key-file: "),
     ("service_account_key_file", "error reading public key file |failed to parse service-account-key-file: open ")],
)  # fmt: skip
async def test_files_that_hold_no_key(tmp_path: Path, flag: str, said: str) -> None:
    (tmp_path / "x").write_text("x")
    path = str(tmp_path / "x")
    for given in (path, str(tmp_path / "not-there")):
        with pytest.raises(ConfigError, match=said):
            await Servers().open(**{flag: given if flag.endswith("signing_key_file") else [given]})
    assert not (tmp_path / "not-there").exists()
