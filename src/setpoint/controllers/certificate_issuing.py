"""Reads certificate requests, decides which of them may be signed, and issues certificates."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from setpoint.kinds.certificates.requests import parse_request, signature_error
from setpoint.meta.objects import Obj
from setpoint.meta.x509.pem import blocks

_CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"

_SIGNATURE, _ENCIPHERMENT, _CLIENT_AUTH, _SERVER_AUTH = (
    "digital signature",
    "key encipherment",
    "client auth",
    "server auth",
)
_NODES, _NODE = "system:nodes", "system:node:"
_KINDS = (x509.DNSName, x509.IPAddress, x509.RFC822Name, x509.UniformResourceIdentifier)
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


class Unreadable(Exception):
    """The request is not a valid certificate signing request."""


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    request: x509.CertificateSigningRequest
    common_name: str
    organizations: tuple[str, ...]
    names: tuple[x509.GeneralName, ...]
    """Subject alternative names of the supported types; others are dropped."""

    def has(self, kind: type[x509.GeneralName]) -> bool:
        return any(isinstance(name, kind) for name in self.names)


def parsed(csr: Obj) -> ParsedRequest:
    """Parse a request. Raise Unreadable."""
    block = next(blocks(b64decode(csr["spec"]["request"])), None)
    if block is None or block.type != "CERTIFICATE REQUEST":
        raise Unreadable("PEM block type must be CERTIFICATE REQUEST")
    request = parse_request(block.data)
    if request is None:
        raise Unreadable("the request cannot be parsed")

    def attribute(oid: x509.ObjectIdentifier) -> tuple[str, ...]:
        return tuple(str(found.value) for found in request.subject.get_attributes_for_oid(oid))

    try:
        extension = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = tuple(name for name in extension.value if isinstance(name, _KINDS))
    except x509.ExtensionNotFound:
        names = ()
    common = attribute(NameOID.COMMON_NAME)
    return ParsedRequest(request, common[-1] if common else "", attribute(NameOID.ORGANIZATION_NAME), names)


def refusal(signer: str, request: ParsedRequest, usages: Collection[str]) -> str:
    """Return why the signer rejects the request; empty means it accepts it."""
    if signer == KUBELET_CLIENT:
        return _kubelet_client(request, set(usages))
    if signer == KUBELET_SERVING:
        return _kubelet_serving(request, set(usages))
    if signer == _CLIENT:
        return _client(usages)
    return ""


def _kubelet_client(request: ParsedRequest, usages: set[str]) -> str:
    if request.organizations != (_NODES,):
        return f"subject organization is not {_NODES}"
    for kind, what in (
        (x509.DNSName, "DNS"),
        (x509.RFC822Name, "Email"),
        (x509.IPAddress, "IP"),
        (x509.UniformResourceIdentifier, "URI"),
    ):
        if request.has(kind):
            return f"{what} subjectAltNames are not allowed"
    if not request.common_name.startswith(_NODE):
        return f"subject common name does not begin with {_NODE}"
    return _usages(usages, _CLIENT_AUTH)


def _kubelet_serving(request: ParsedRequest, usages: set[str]) -> str:
    if request.organizations != (_NODES,):
        return f"subject organization is not {_NODES}"
    if not request.has(x509.DNSName) and not request.has(x509.IPAddress):
        return "DNS or IP subjectAltName is required"
    if request.has(x509.RFC822Name):
        return "Email subjectAltNames are not allowed"
    if request.has(x509.UniformResourceIdentifier):
        return "URI subjectAltNames are not allowed"
    if wrong := _usages(usages, _SERVER_AUTH):
        return wrong
    return "" if request.common_name.startswith(_NODE) else f"subject common name does not begin with {_NODE}"


def _usages(usages: set[str], purpose: str) -> str:
    """Check the usages. Key encipherment is optional, because only RSA keys support it."""
    wanted = {_SIGNATURE, _ENCIPHERMENT, purpose}
    if usages in (wanted, wanted - {_ENCIPHERMENT}):
        return ""
    return f"usages did not match [{' '.join(sorted(wanted))}]"


def _client(usages: Collection[str]) -> str:
    for usage in usages:
        if usage not in (_SIGNATURE, _ENCIPHERMENT, _CLIENT_AUTH):
            return f"invalid usage for client certificate: {usage}"
    return "" if _CLIENT_AUTH in usages else f"missing required usage for client certificate: {_CLIENT_AUTH}"


class CannotSign(Exception):
    pass


class Authority:
    """The cluster's certificate authority, which signs requests with the approved usages."""

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
