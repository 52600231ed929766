"""Signing requests and certificates inside objects: do they parse, does the signature hold."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

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
