"""Service account tokens with a good signature, and odd things in their head."""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from server_harness import ServerHarness

from setpoint.cluster.config import AccessConfig
from setpoint.meta.jose import BadJoseHeader, base64url_encode, read_jose_header

REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"
HERE = "/api/v1/namespaces/default"
HALF = "A" * 43
_NUMBERS = ec.derive_private_key(7, ec.SECP256R1()).public_key().public_numbers()
EC = {"kty": "EC", "crv": "P-256"} | {
    axis: base64url_encode(getattr(_NUMBERS, axis).to_bytes(32, "big")) for axis in ("x", "y")
}
RSA = {"kty": "RSA", "n": "AQAB", "e": "AQAB"}
ED = {"kty": "OKP", "crv": "Ed25519", "x": HALF}

GOOD: list[dict[str, Any]] = [
    {},
    {"x5u": 5, "jku": "https://elsewhere", "zip": [], "b64": "junk", "typ": {}, "cty": 1},
    {"nonce": "n"},
    {"jwk": None, "x5c": None},
    {"x5c": []},
    {"jwk": EC},
    {"jwk": RSA},
    {"jwk": ED},
    {"jwk": RSA | {"x5u": {"Scheme": "https"}, "x5t": ""}},
    {"crit": ["b64"], "b64": True},
]
BAD: list[dict[str, Any]] = [
    {"jwk": "junk"},
    {"jwk": {}},
    {"jwk": {"kty": "XYZ"}},
    {"jwk": {"kty": "oct", "k": "AQAB"}},
    {"jwk": {"kty": "RSA", "n": "AQAB"}},
    {"jwk": {"kty": "RSA", "n": "AQAB", "e": "AA"}},
    {"jwk": RSA | {"d": "AQAB"}},
    {"jwk": RSA | {"n": "not base64!"}},
    {"jwk": RSA | {"use": 5}},
    {"jwk": RSA | {"x5t": "AQAB"}},
    {"jwk": RSA | {"x5u": "https://elsewhere"}},
    {"jwk": RSA | {"x5c": ["junk"]}},
    {"jwk": EC | {"y": EC["x"]}},
    {"jwk": EC | {"y": "AQAB"}},
    {"jwk": EC | {"crv": "P-1"}},
    {"jwk": ED | {"crv": "X25519"}},
    {"x5c": "junk"},
    {"x5c": [5]},
    {"x5c": ["junk"]},
    {"x5c": [b64encode(b"junk").decode()]},
    {"nonce": 5},
    {"crit": "junk"},
    {"crit": ["exp"]},
    {"b64": False},
]


@pytest.mark.parametrize(("heads", "good"), [(GOOD, True), (BAD, False)])
async def test_what_a_token_brings_along_is_never_used_but_must_be_readable(
    tmp_path: Path, heads: list[dict[str, Any]], good: bool
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    file = tmp_path / "key"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    access = AccessConfig(service_account_signing_key_file=str(file))
    harness = await ServerHarness.open(access=access, service_account_issuer=["https://own"])
    await harness.make(f"{HERE}/serviceaccounts", {"metadata": {"name": "sa"}})
    own = (await harness.post(f"{HERE}/serviceaccounts/sa/token", {"spec": {}})).json["status"]["token"]
    claims = own.split(".")[1]
    for head in heads:
        signed = f"{base64url_encode(orjson.dumps({'alg': 'ES256'} | head))}.{claims}"
        r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(SHA256())))
        token = f"{signed}.{base64url_encode(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"
        status = (await harness.post(REVIEW, {"spec": {"token": token}})).json["status"]
        assert status.get("authenticated", False) is good, (head, status)
        if not good:
            why = "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]"
            assert status["error"] == (why if head.keys() & {"crit", "b64"} else "invalid bearer token")
    await harness.close()


@pytest.mark.parametrize("head", [b'{"alg":"ES256","alg":"ES256"}', b"[]", b"{", b'{"alg":NaN}', b"[" * 5000])
def test_heads_that_cannot_be_read(head: bytes) -> None:
    with pytest.raises(BadJoseHeader):
        read_jose_header(base64url_encode(head))


def test_a_key_with_its_certificate() -> None:
    key = ec.derive_private_key(7, ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "somebody")])
    start = datetime(2026, 1, 1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, start, start + timedelta(1))
    der = builder.sign(key, SHA256()).public_bytes(Encoding.DER)
    chain = [b64encode(der).decode()]
    digest = sha256(der)
    for thumbprint in (digest.digest(), digest.hexdigest().encode()):
        read_jose_header(_part({"jwk": EC | {"x5c": chain, "x5t#S256": base64url_encode(thumbprint)}, "x5c": chain}))
    with pytest.raises(BadJoseHeader, match="to not match"):
        read_jose_header(_part({"jwk": RSA | {"x5c": chain}}))
    with pytest.raises(BadJoseHeader, match="thumbprint does not match"):
        read_jose_header(_part({"jwk": EC | {"x5c": chain, "x5t#S256": base64url_encode(bytes(32))}}))


def _part(head: dict[str, Any]) -> str:
    return base64url_encode(orjson.dumps(head))
