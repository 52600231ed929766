"""Check that a certificate and a key match."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from setpoint.cli.failures import Failed


def check_key_pair(certificate: bytes, key: bytes) -> None:
    """Raise Failed with the message of Go's library if they do not match."""
    if b"-----BEGIN" not in certificate:
        raise Failed("tls: failed to find any PEM data in certificate input")
    if b"-----BEGIN" not in key:
        raise Failed("tls: failed to find any PEM data in key input")
    if b"-----BEGIN CERTIFICATE-----" not in certificate:
        raise Failed(
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may "
            "have been switched"
            if b"PRIVATE KEY-----" in certificate
            else "tls: failed to find certificate PEM data in certificate input"
        )
    if b"PRIVATE KEY-----" not in key:
        raise Failed(
            "tls: found a certificate rather than a key in the PEM for the private key"
            if b"-----BEGIN CERTIFICATE-----" in key
            else 'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input'
        )
    try:
        public = x509.load_pem_x509_certificate(certificate).public_key()
    except ValueError as error:
        raise Failed(f"tls: failed to parse certificate: {error}") from None
    try:
        private = load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Failed("tls: failed to parse private key") from None
    of_certificate = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) != of_certificate:
        same = type(private.public_key()) is type(public)
        raise Failed(
            "tls: private key does not match public key"
            if same
            else "tls: private key type does not match public key type"
        )
