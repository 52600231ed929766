"""Do a certificate and a key belong together? If not: the complaint that Go's TLS library makes about the pair."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_private_key

from setpoint.meta.x509.pem import blocks


def _listed(types: list[str]) -> str:
    return "[" + " ".join(types) + "]"


def pair_error(certificate: bytes, key: bytes) -> str:
    found = list(blocks(certificate))
    certificates = [block.data for block in found if block.type == "CERTIFICATE"]
    if not certificates:
        types = [block.type for block in found]
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
    skipped = []
    for block in blocks(key):
        if block.type == "PRIVATE KEY" or block.type.endswith(" PRIVATE KEY"):
            return _mismatch(certificates[0], block.data)
        skipped.append(block.type)
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
        public = x509.load_der_x509_certificate(certificate).public_key()
    except (ValueError, UnsupportedAlgorithm):
        return "x509: malformed certificate"
    try:
        private = load_der_private_key(key, password=None)
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
