"""Parsing and verification of signing requests, certificates, trust anchors and key pairs inside objects."""

from __future__ import annotations

from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_private_key
from cryptography.x509.oid import NameOID

from setpoint.meta.x509.pem import blocks

_OPTIONS = (
    "{optional:false explicit:false application:false private:false defaultValue:<nil> tag:<nil> stringType:0 "
    "timeType:0 set:false omitEmpty:false}"
)
_SEQUENCE = 16


def parse_request(der: bytes) -> x509.CertificateSigningRequest | None:
    try:
        request = x509.load_der_x509_csr(der)
        request.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return None
    return request


def parse_certificate(der: bytes) -> x509.Certificate | None:
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError:
        return None


def signature_error(request: x509.CertificateSigningRequest) -> str:
    """Return the error if the requester does not hold the private key; empty if the signature is valid."""
    key, algorithm = request.public_key(), request.signature_hash_algorithm
    signed = (request.signature, request.tbs_certrequest_bytes)
    try:
        if isinstance(key, rsa.RSAPublicKey):
            if algorithm is None:
                return "x509: cannot verify signature: algorithm unimplemented"
            scheme = request.signature_algorithm_parameters
            key.verify(*signed, scheme if isinstance(scheme, padding.PSS) else padding.PKCS1v15(), algorithm)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            if algorithm is None:
                return "x509: cannot verify signature: algorithm unimplemented"
            key.verify(*signed, ec.ECDSA(algorithm))
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(*signed)
        else:
            return "x509: cannot verify signature: algorithm unimplemented"
    except InvalidSignature:
        if isinstance(key, rsa.RSAPublicKey):
            return "crypto/rsa: verification error"
        return f"x509: {'ECDSA' if isinstance(key, ec.EllipticCurvePublicKey) else 'Ed25519'} verification failure"
    return ""


def _asn1_error(der: bytes) -> str:
    """Return the error in the outermost element; errors inside it are not distinguished."""
    if len(der) < 2:
        return "asn1: syntax error: sequence truncated"
    first, length, start = der[0], der[1], 2
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(der[2 : 2 + count], "big"), 2 + count
    tag, compound = first & 0x1F, bool(first & 0x20)
    if first >> 6 or tag != _SEQUENCE or not compound:
        found = f"{{class:{first >> 6} tag:{tag} length:{length} isCompound:{'true' if compound else 'false'}}}"
        return f"asn1: structure error: tags don't match (16 vs {found}) {_OPTIONS} certificateRequest @{start}"
    if start + length > len(der):
        return "asn1: syntax error: data truncated"
    return "asn1: structure error: malformed request"


def request_error(pem: bytes) -> str:
    """Return the error of a PEM signing request; empty if it is valid."""
    block = next(blocks(pem), None)
    if block is None or block.type != "CERTIFICATE REQUEST":
        return "PEM block type must be CERTIFICATE REQUEST"
    request = parse_request(block.data)
    if request is None:
        return _asn1_error(block.data)
    return signature_error(request)


def certificate_error(pem: bytes) -> str:
    """Return the error of an issued PEM certificate; empty if it is valid or absent."""
    if not pem:
        return ""
    found = False
    for block in blocks(pem):
        found = True
        if block.type != "CERTIFICATE":
            return f'only CERTIFICATE PEM blocks are allowed, found "{block.type}"'
        if block.headers:
            return "no PEM block headers are permitted"
        if not block.data:
            return "found CERTIFICATE PEM block containing 0 certificates"
        if parse_certificate(block.data) is None:
            return "x509: malformed certificate"
    return "" if found else "must contain at least one CERTIFICATE PEM block"


def anchor_error(type: str, headers: dict[str, str], data: bytes) -> str:
    """Return the error; empty if the block is valid."""
    if type != "CERTIFICATE":
        return f"has bad block type: {type}"
    if headers:
        return "has PEM block headers"
    certificate = parse_certificate(data)
    if certificate is None:
        return "does not parse as X.509"
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (x509.ExtensionNotFound, ValueError):
        return "does not have the CA bit set"
    return "" if constraints.ca else "does not have the CA bit set"


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


class Subject(NamedTuple):
    """The subject of a certificate signing request."""

    common_name: str
    organizations: tuple[str, ...]


def subject_of(pem: bytes) -> Subject:
    """Return the subject of a PEM-encoded request. Raises ValueError if it is none."""
    block = next(blocks(pem), None)
    if block is None or block.type != "CERTIFICATE REQUEST":
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    request = parse_request(block.data)
    if request is None:
        raise ValueError("asn1: structure error: malformed request")
    names = [str(name.value) for name in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [str(name.value) for name in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    # If there are several common names, the last one counts.
    return Subject(names[-1] if names else "", tuple(groups))
