"""Do a certificate and a key belong together? If not: the complaint that Go's TLS library makes about the pair."""

from __future__ import annotations

import re

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

_BLOCK = re.compile(
    rb"^-----BEGIN ([^\r\n]*?)-----[ \t]*\r?\n(.*?)^-----END \1-----[ \t]*\r?$", re.MULTILINE | re.DOTALL
)


def _blocks(pem: bytes) -> list[tuple[str, bytes]]:
    """Type and whole text of each PEM block."""
    return [(match[1].decode(errors="replace"), match[0] + b"\n") for match in _BLOCK.finditer(pem)]


def _listed(types: list[str]) -> str:
    return "[" + " ".join(types) + "]"


def pair_error(certificate: bytes, key: bytes) -> str:
    blocks = _blocks(certificate)
    certificates = [text for kind, text in blocks if kind == "CERTIFICATE"]
    if not certificates:
        types = [kind for kind, _ in blocks]
        if not types:
            return "tls: failed to find any PEM data in certificate input"
        if len(types) == 1 and types[0].endswith("PRIVATE KEY"):
            return (
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; "
                "PEM inputs may have been switched"
            )
        return (
            'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping PEM blocks '
            f"of the following types: {_listed(types)}"
        )
    blocks = _blocks(key)
    skipped = []
    for kind, text in blocks:
        if kind == "PRIVATE KEY" or kind.endswith(" PRIVATE KEY"):
            return _mismatch(certificates[0], text)
        skipped.append(kind)
    if not skipped:
        return "tls: failed to find any PEM data in key input"
    if skipped == ["CERTIFICATE"]:
        return "tls: found a certificate rather than a key in the PEM for the private key"
    return (
        'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input after skipping PEM blocks '
        f"of the following types: {_listed(skipped)}"
    )


def _mismatch(certificate: bytes, key: bytes) -> str:
    try:
        public = x509.load_pem_x509_certificate(certificate).public_key()
    except (ValueError, UnsupportedAlgorithm):
        return "x509: malformed certificate"
    try:
        private = load_pem_private_key(key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "tls: failed to parse private key"
    for family, private_family in (
        (rsa.RSAPublicKey, rsa.RSAPrivateKey),
        (ec.EllipticCurvePublicKey, ec.EllipticCurvePrivateKey),
        (ed25519.Ed25519PublicKey, ed25519.Ed25519PrivateKey),
    ):
        if isinstance(public, family):
            if not isinstance(private, private_family):
                return "tls: private key type does not match public key type"
            encoding, form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
            if private.public_key().public_bytes(encoding, form) != public.public_bytes(encoding, form):
                return "tls: private key does not match public key"
            return ""
    return "tls: unknown public key algorithm"
