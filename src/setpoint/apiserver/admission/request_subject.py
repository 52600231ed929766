"""For whom a signing request asks a certificate."""

from __future__ import annotations

from typing import NamedTuple

from cryptography.x509.oid import NameOID

from setpoint.kinds.certificates.requests import parse_request
from setpoint.meta.x509.pem import blocks


class Subject(NamedTuple):
    common_name: str
    organizations: tuple[str, ...]


def subject_of(pem: bytes) -> Subject:
    """Raises ValueError."""
    block = next(blocks(pem), None)
    if block is None or block.type != "CERTIFICATE REQUEST":
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    request = parse_request(block.data)
    if request is None:
        raise ValueError("asn1: structure error: malformed request")
    names = [str(name.value) for name in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [str(name.value) for name in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    # Of several common names the last is the one that counts.
    return Subject(names[-1] if names else "", tuple(groups))
