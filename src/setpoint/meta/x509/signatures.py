"""Signatures of certificates: which algorithms count, and who may have signed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from setpoint.meta.x509.errors import CANNOT_SIGN, UNIMPLEMENTED

if TYPE_CHECKING:
    from setpoint.meta.x509.certificate import Certificate

MIN_RSA_BITS: Final = 1024
_RSA = "1.2.840.113549.1.1"
_ECDSA = "1.2.840.10045.4"
_PSS = f"{_RSA}.10"
_RSA_FAMILY, _ECDSA_FAMILY, _ED25519_FAMILY = "RSA", "ECDSA", "Ed25519"
_ALGORITHMS = {
    **{f"{_RSA}.{number}": _RSA_FAMILY for number in (10, 11, 12, 13)},
    **{f"{_ECDSA}.3.{number}": _ECDSA_FAMILY for number in (2, 3, 4)},
    "1.3.101.112": _ED25519_FAMILY,
}
"""Key type that each accepted algorithm requires."""
_INSECURE = {
    f"{_RSA}.2": "MD2-RSA",
    f"{_RSA}.4": "MD5-RSA",
    f"{_RSA}.5": "SHA1-RSA",
    "1.3.14.3.2.29": "SHA1-RSA",
    f"{_ECDSA}.1": "ECDSA-SHA1",
    "1.2.840.10040.4.3": "DSA-SHA1",
}


def signature_problem(certificate: Certificate, issuer: Certificate) -> str:
    """Return why `issuer` has not signed `certificate`, or was not allowed to; empty if it has."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    if issuer.is_ca is False or (issuer.is_ca is None and issuer.is_version_3) or not issuer.may_sign:
        return CANNOT_SIGN
    algorithm = certificate.parsed.signature_algorithm_oid.dotted_string
    if algorithm in _INSECURE:
        return f"x509: cannot verify signature: insecure algorithm {_INSECURE[algorithm]}"
    wanted, (found, type_name) = _ALGORITHMS.get(algorithm), _key_of(issuer)
    if wanted is None or (algorithm == _PSS and not _is_usual_pss(certificate)):
        return UNIMPLEMENTED
    if wanted != found:
        return f"x509: signature algorithm specifies an {wanted} public key, but have public key of type {type_name}"
    if wanted == _RSA_FAMILY and issuer.key.key_size < MIN_RSA_BITS:
        return (
            f"crypto/rsa: {issuer.key.key_size}-bit keys are insecure "
            "(see https://go.dev/pkg/crypto/rsa#hdr-Minimum_key_size)"
        )
    try:
        certificate.parsed.verify_directly_issued_by(issuer.parsed)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return "crypto/rsa: verification error" if wanted == _RSA_FAMILY else f"x509: {wanted} verification failure"
    return ""


def _key_of(issuer: Certificate) -> tuple[str, str]:
    """Return the family of its key and what Go calls the type."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(issuer.key, rsa.RSAPublicKey):
        return _RSA_FAMILY, "*rsa.PublicKey"
    if isinstance(issuer.key, ec.EllipticCurvePublicKey):
        return _ECDSA_FAMILY, "*ecdsa.PublicKey"
    return _ED25519_FAMILY, "ed25519.PublicKey"


def _is_usual_pss(certificate: Certificate) -> bool:
    """Return whether hash, mask and salt are one of the three combinations of TLS 1.3."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    try:
        parameters, hash = (
            certificate.parsed.signature_algorithm_parameters,
            certificate.parsed.signature_hash_algorithm,
        )
    except (UnsupportedAlgorithm, ValueError):
        return False
    return (
        isinstance(parameters, padding.PSS)
        and isinstance(hash, hashes.SHA256 | hashes.SHA384 | hashes.SHA512)
        and parameters._salt_length == hash.digest_size
        and isinstance(parameters._mgf._algorithm, type(hash))
    )
