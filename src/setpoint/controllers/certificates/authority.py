"""The cluster's certificate authority, which signs requests with the approved usages."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier

from setpoint.controllers.certificates.requests import ParsedRequest
from setpoint.kinds.certificates.requests import signature_error

_BACKDATE = timedelta(minutes=5)
"""Certificates are backdated by this much to tolerate clock skew."""
_SHORT = timedelta(hours=8)
"""Certificates with a validity shorter than this are not shortened by the backdating."""
_SHORTEST = timedelta(minutes=10)
_KEY_USAGES = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
_PURPOSES = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "s/mime": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "ipsec end system": ObjectIdentifier("1.3.6.1.5.5.7.3.5"),
    "ipsec tunnel": ObjectIdentifier("1.3.6.1.5.5.7.3.6"),
    "ipsec user": ObjectIdentifier("1.3.6.1.5.5.7.3.7"),
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
    "microsoft sgc": ObjectIdentifier("1.3.6.1.4.1.311.10.3.3"),
    "netscape sgc": ObjectIdentifier("2.16.840.1.113730.4.1"),
}
"""Extended key usages in the order in which they appear in a certificate."""


class CannotSign(Exception):
    pass


class Authority:
    def __init__(self, certificate: str, key: str, longest: timedelta) -> None:
        """Load certificate and key from PEM. Raise ValueError if they are invalid."""
        self._certificate = x509.load_pem_x509_certificate(certificate.encode())
        self._key = cast(CertificateIssuerPrivateKeyTypes, load_pem_private_key(key.encode(), None))
        if self._key.public_key() != self._certificate.public_key():
            raise ValueError("the cluster's signing certificate and key do not belong together")
        self._longest = longest

    def sign(
        self,
        parsed_request: ParsedRequest,
        usages: Collection[str],
        expiration_seconds: int | None,
        serial: int,
        now: datetime,
    ) -> bytes:
        """Return the signed certificate as PEM. Raise CannotSign."""
        request = parsed_request.request
        if wrong := signature_error(request):
            raise CannotSign(f"unable to verify certificate request signature: {wrong}")
        begin, end = self._life(expiration_seconds, now)
        made = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(self._certificate.subject)
            .public_key(request.public_key())
            .serial_number(serial)
            .not_valid_before(begin)
            .not_valid_after(end)
        )
        for extension, critical in _extensions(parsed_request, usages):
            made = made.add_extension(extension, critical)
        if (identifier := self._identifier()) is not None:
            made = made.add_extension(identifier, critical=False)
        return made.sign(self._key, self._hash()).public_bytes(Encoding.PEM)

    def _life(self, expiration_seconds: int | None, now: datetime) -> tuple[datetime, datetime]:
        life = self._longest
        if expiration_seconds is not None:
            life = min(self._longest, max(_SHORTEST, timedelta(seconds=expiration_seconds)))
        last = self._certificate.not_valid_after_utc
        if now >= last:
            raise CannotSign(f"refusing to sign a certificate that expired in the past: NotAfter={last}")
        now = now.astimezone(UTC).replace(microsecond=0)
        return now - _BACKDATE, min(last, now + life - (timedelta() if life < _SHORT else _BACKDATE))

    def _identifier(self) -> x509.AuthorityKeyIdentifier | None:
        try:
            own = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        except x509.ExtensionNotFound:
            return None
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own.value)

    def _hash(self) -> SHA256 | SHA384 | SHA512 | None:
        if isinstance(self._key, ed25519.Ed25519PrivateKey):
            return None
        bits = self._key.curve.key_size if isinstance(self._key, ec.EllipticCurvePrivateKey) else 0
        return SHA512() if bits > 384 else SHA384() if bits > 256 else SHA256()


def _extensions(parsed_request: ParsedRequest, usages: Collection[str]) -> list[tuple[x509.ExtensionType, bool]]:
    unknown = [usage for usage in usages if usage not in _KEY_USAGES and usage not in _PURPOSES]
    if unknown:
        quoted = " ".join(f'"{usage}"' for usage in unknown)
        raise CannotSign(f"unrecognized usage values: [{quoted}]")
    made: list[tuple[x509.ExtensionType, bool]] = []
    bits = {_KEY_USAGES[usage] for usage in usages if usage in _KEY_USAGES}
    if not bits & {"key_agreement"}:
        bits -= {"encipher_only", "decipher_only"}  # they qualify key agreement and mean nothing without it
    if bits:
        made.append((x509.KeyUsage(**{name: name in bits for name in dict.fromkeys(_KEY_USAGES.values())}), True))
    purposes = dict.fromkeys(oid for usage, oid in _PURPOSES.items() if usage in usages)
    if purposes:
        made.append((x509.ExtendedKeyUsage(purposes), False))
    made.append((x509.BasicConstraints(ca=False, path_length=None), True))
    if parsed_request.names:
        made.append((x509.SubjectAlternativeName(parsed_request.names), not list(parsed_request.request.subject)))
    return made
