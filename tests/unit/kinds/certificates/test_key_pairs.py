from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from setpoint.kinds.certificates.requests import pair_error


def make_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def certificate_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + timedelta(days=1))
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


KEY = make_key()
CERTIFICATE = certificate_pem(KEY)
OTHER = b"-----BEGIN FOO-----\nAAAA\n-----END FOO-----\n"


@pytest.mark.parametrize(
    ("certificate", "key", "expected"),
    [
        (CERTIFICATE, key_pem(KEY), ""),
        (OTHER + CERTIFICATE, OTHER + key_pem(KEY), ""),
        (CERTIFICATE, key_pem(make_key()), "tls: private key does not match public key"),
        (
            CERTIFICATE,
            key_pem(ed25519.Ed25519PrivateKey.generate()),
            "tls: private key type does not match public key type",
        ),
        (b"", b"", "tls: failed to find any PEM data in certificate input"),
        (CERTIFICATE, b"", "tls: failed to find any PEM data in key input"),
        (CERTIFICATE, CERTIFICATE, "tls: found a certificate rather than a key in the PEM for the private key"),
        (
            key_pem(KEY),
            key_pem(KEY),
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; "
            "PEM inputs may have been switched",
        ),
        (
            OTHER,
            b"",
            'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping PEM blocks '
            "of the following types: [FOO]",
        ),
        (
            CERTIFICATE,
            OTHER + OTHER,
            'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input '
            "after skipping PEM blocks of the following types: [FOO FOO]",
        ),
        (OTHER.replace(b"FOO", b"CERTIFICATE"), key_pem(KEY), "x509: malformed certificate"),
    ],
)
def test_pairs(certificate: bytes, key: bytes, expected: str) -> None:
    assert pair_error(certificate, key) == expected
