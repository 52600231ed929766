"""Validation of one block of a trust bundle."""

from __future__ import annotations

from cryptography import x509

from setpoint.kinds.certificates.requests import parse_certificate


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
