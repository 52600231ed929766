"""Parsed certificates with the fields that verification needs, their host names, and verification errors."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from setpoint.meta.goformat import quote
from setpoint.meta.times import format_time

if TYPE_CHECKING:
    from cryptography import x509


UNKNOWN_AUTHORITY = "x509: certificate signed by unknown authority"
CANNOT_SIGN = "x509: invalid signature: parent certificate cannot sign this kind of certificate"
UNIMPLEMENTED = "x509: cannot verify signature: algorithm unimplemented"
INCOMPATIBLE_USAGE = "x509: certificate specifies an incompatible key usage"
TOO_MANY_INTERMEDIATES = "x509: too many intermediates for path length constraint"
NOT_AUTHORIZED_TO_SIGN = "x509: certificate is not authorized to sign other certificates"
UNHANDLED_CRITICAL = "x509: unhandled critical extension"
SIGNATURE_LIMIT = "x509: signature check attempts limit reached while verifying certificate chain"


class X509Error(ValueError):
    """A certificate or a chain is rejected; the message is that of Go's `crypto/x509`."""


def unknown_authority(hint: str = "", candidate: str = "") -> str:
    """Return the text for a chain that does not end at a trusted certificate.

    `hint` says why the first `candidate` of the right name was not accepted as the issuer."""
    if not hint:
        return UNKNOWN_AUTHORITY
    because = f"possibly because of {quote(hint)} while trying to verify candidate authority certificate"
    return f"{UNKNOWN_AUTHORITY} ({because} {quote(candidate)})"


def expired(now: datetime, limit: datetime) -> str:
    relation = "before" if now < limit else "after"
    detail = f"current time {format_time(now)} is {relation} {format_time(limit)}"
    return f"x509: certificate has expired or is not yet valid: {detail}"


def not_authorized_for_name(detail: str) -> str:
    return f"x509: a root or intermediate certificate is not authorized to sign for this name: {detail}"


_DOMAIN = re.compile(r"[!-\-/-~]+(?:\.[!-\-/-~]+)*")
_HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_][A-Za-z0-9_-]*)*")
_LEGACY = "x509: certificate relies on legacy Common Name field, use SANs instead"
_MAX_NAMES_SHOWN = 100


def is_domain(text: str) -> bool:
    """Return whether `text` can be compared with domains: labels of printable ASCII, none of them empty. The empty text
    stands for the root of all domains."""
    return not text or _DOMAIN.fullmatch(text) is not None


def verify_host_name(certificate: Certificate, host: str) -> None:
    """Raise X509Error unless the certificate's subjectAltName contains `host`, a name or an address."""
    address = as_address(host)
    if address is not None:
        if address not in certificate.addresses:
            raise X509Error(_mismatch(certificate, str(address)))
        return
    lowered = _lower(host)
    is_host_name = _HOST_NAME.fullmatch(lowered.removesuffix(".")) is not None
    parts = lowered.removesuffix(".").split(".")
    for pattern in certificate.dns_names:
        if is_host_name and _is_pattern(pattern):
            if _matches(pattern, parts):
                return
        elif _lower(pattern) == lowered and lowered not in ("", "."):
            return
    raise X509Error(_mismatch(certificate, host))


def as_address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that `host` is, without its zone; None if it is a name. IPv4 within IPv6 becomes IPv4."""
    if len(host) >= 3 and host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        address = ip_address(host.partition("%")[0] if ":" in host else host)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _mismatch(certificate: Certificate, host: str) -> str:
    if not certificate.has_names and _matches(certificate.common_name, _lower(host).removesuffix(".").split(".")):
        return _LEGACY
    names: Sequence[object] = certificate.dns_names
    counted = "names"
    if as_address(host) is not None:
        names, counted = certificate.addresses, "IP SANs"
        if not names:
            return f"x509: cannot validate certificate for {host} because it doesn't contain any IP SANs"
    if len(names) >= _MAX_NAMES_SHOWN:
        return f"x509: certificate is valid for {len(names)} {counted}, but none matched {host}"
    shown = ", ".join(map(str, names))
    if not shown:
        return f"x509: certificate is not valid for any names, but wanted to match {host}"
    return f"x509: certificate is valid for {shown}, not {host}"


def _is_pattern(text: str) -> bool:
    """Return whether wildcard rules apply: a host name, whose first label may be `*`."""
    return _HOST_NAME.fullmatch(text.removeprefix("*.") if text != "*" else text) is not None


def _matches(pattern: str, parts: list[str]) -> bool:
    labels = _lower(pattern).split(".")
    if not pattern or len(labels) != len(parts):
        return False
    return labels[1:] == parts[1:] and labels[0] in ("*", parts[0])


def _lower(text: str) -> str:
    """Return `text` with its ASCII letters in lower case, and no others changed."""
    return text.lower() if text.isascii() else "".join(char.lower() if char.isascii() else char for char in text)


_NEVER_CRITICAL = frozenset(("2.5.29.14", "2.5.29.35", "1.3.6.1.5.5.7.1.1"))
"""Key identifiers and authority information access: a certificate that marks them critical is malformed."""
_KNOWN = frozenset(f"2.5.29.{number}" for number in (15, 17, 19, 30, 31, 32, 33, 36, 37, 54))
"""Extensions that may be critical: all that verification takes into account."""
_POLICY_MAPPINGS = "2.5.29.33"
_ANY_POLICY = bytes.fromhex("0604551d2000")


@dataclass(slots=True)
class NameConstraints:
    """Permitted or excluded subtrees, by type of name."""

    dns: list[str] = field(default_factory=list)
    emails: list[str] = field(default_factory=list)
    uris: list[str] = field(default_factory=list)
    addresses: list[IPv4Network | IPv6Network] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Certificate:
    """A parsed certificate; `parse` creates one."""

    der: bytes
    parsed: x509.Certificate
    subject: bytes
    """Encoded subject: names are compared byte by byte."""
    issuer: bytes
    key: Any
    """Public key; None if its type is not supported."""
    key_der: bytes
    not_before: datetime
    not_after: datetime
    is_version_3: bool
    is_ca: bool | None = None
    """Value of `cA` in basicConstraints; None without that extension."""
    max_path_length: int | None = None
    may_sign: bool = True
    """Whether keyUsage allows signing certificates; True without that extension."""
    usages: frozenset[str] = frozenset()
    """Object identifiers of extKeyUsage; empty means any usage."""
    has_names: bool = False
    """Whether there is a subjectAltName extension."""
    dns_names: list[str] = field(default_factory=list)
    emails: list[str] = field(default_factory=list)
    uris: list[str] = field(default_factory=list)
    addresses: list[IPv4Address | IPv6Address] = field(default_factory=list)
    names_der: bytes = b""
    permitted: NameConstraints | None = None
    """The name constraints; None for both sides without that extension."""
    excluded: NameConstraints | None = None
    key_id: bytes = b""
    authority_key_id: bytes = b""
    has_unknown_critical: bool = False
    has_policy_rules: bool = False
    """Whether it requires the evaluation of certificate policies, which is not implemented."""

    @property
    def common_name(self) -> str:
        return self._last("2.5.4.3")

    @property
    def display_name(self) -> str:
        """Return the name by which messages refer to an authority."""
        return self.common_name or self._last("2.5.4.10") or f"serial:{self.parsed.serial_number}"

    def _last(self, oid: str) -> str:
        found = [str(one.value) for one in self.parsed.subject if one.oid.dotted_string == oid]
        return found[-1] if found else ""


def parse(der: bytes) -> Certificate:
    """Raise X509Error if it is not a well-formed certificate."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Warnings about certificates that newer versions of the library reject.
            parsed = x509.load_der_x509_certificate(der)
            certificate = Certificate(
                der,
                parsed,
                parsed.subject.public_bytes(),
                parsed.issuer.public_bytes(),
                _key(parsed),
                _key_der(parsed),
                parsed.not_valid_before_utc,
                parsed.not_valid_after_utc,
                parsed.version is x509.Version.v3,
            )
            for extension in parsed.extensions:
                _read(certificate, extension)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        raise X509Error("x509: malformed certificate") from None
    return certificate


def encoded_subject(der: bytes) -> bytes:
    """Return the subject alone, which takes a tenth of the time of `parse`. Raises X509Error."""
    from cryptography import x509

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return x509.load_der_x509_certificate(der).subject.public_bytes()
    except ValueError:
        raise X509Error("x509: malformed certificate") from None


def _key(parsed: x509.Certificate) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    try:
        key = parsed.public_key()
    except UnsupportedAlgorithm:
        return None
    if isinstance(key, ec.EllipticCurvePublicKey):
        if not isinstance(key.curve, ec.SECP224R1 | ec.SECP256R1 | ec.SECP384R1 | ec.SECP521R1):
            raise ValueError("unsupported elliptic curve")
        return key
    return key if isinstance(key, rsa.RSAPublicKey | ed25519.Ed25519PublicKey) else None


def _key_der(parsed: x509.Certificate) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    try:
        return parsed.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except UnsupportedAlgorithm:
        return b""


def _read(certificate: Certificate, extension: x509.Extension[Any]) -> None:
    """Copy the content of one extension into `certificate`. Raises ValueError."""
    from cryptography import x509

    oid, value = extension.oid.dotted_string, extension.value
    unknown = oid not in _KNOWN
    if oid in _NEVER_CRITICAL:
        if extension.critical:
            raise ValueError("incorrectly marked critical")
        unknown = False
    match value:
        case x509.BasicConstraints():
            certificate.is_ca, certificate.max_path_length = value.ca, value.path_length
        case x509.KeyUsage():
            certificate.may_sign = value.key_cert_sign or not any(value.public_bytes()[3:])  # a BIT STRING
        case x509.ExtendedKeyUsage():
            certificate.usages = frozenset(usage.dotted_string for usage in value)
        case x509.SubjectAlternativeName():
            unknown = not _read_names(certificate, value)
        case x509.NameConstraints():
            unknown = not _read_constraints(certificate, value)
        case x509.SubjectKeyIdentifier():
            certificate.key_id = value.key_identifier
        case x509.AuthorityKeyIdentifier():
            certificate.authority_key_id = value.key_identifier or b""
        case x509.PolicyConstraints():
            certificate.has_policy_rules |= value.require_explicit_policy is not None
        case x509.UnrecognizedExtension() if oid == _POLICY_MAPPINGS:
            certificate.has_policy_rules |= _ANY_POLICY in value.value
    certificate.has_unknown_critical |= unknown and extension.critical


def _read_names(certificate: Certificate, names: x509.SubjectAlternativeName) -> bool:
    """Return whether there is a name of a type that verification knows."""
    from cryptography import x509

    certificate.has_names = True
    certificate.names_der = names.public_bytes()
    certificate.dns_names = names.get_values_for_type(x509.DNSName)
    certificate.emails = names.get_values_for_type(x509.RFC822Name)
    certificate.uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    for uri in certificate.uris:
        if not is_domain(urlsplit(uri).netloc.rpartition("@")[2]):
            raise ValueError("a URI with a malformed host")
    for address in names.get_values_for_type(x509.IPAddress):
        if not isinstance(address, IPv4Address | IPv6Address):
            raise ValueError("an address with a mask")
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            raise ValueError("a mapped address")
        certificate.addresses.append(address)
    return bool(certificate.dns_names or certificate.emails or certificate.uris or certificate.addresses)


def _read_constraints(certificate: Certificate, constraints: x509.NameConstraints) -> bool:
    """Return whether all of them are of a type that verification knows."""
    permitted, all_permitted = _subtrees(constraints.permitted_subtrees or ())
    excluded, all_excluded = _subtrees(constraints.excluded_subtrees or ())
    certificate.permitted, certificate.excluded = permitted, excluded
    return all_permitted and all_excluded


def _subtrees(subtrees: Iterable[x509.GeneralName]) -> tuple[NameConstraints, bool]:
    from cryptography import x509

    found, known = NameConstraints(), True
    for subtree in subtrees:
        match subtree:
            case x509.DNSName():
                found.dns.append(_domain(subtree.value))
            case x509.RFC822Name():
                found.emails.append(subtree.value if "@" in subtree.value else _domain(subtree.value))
            case x509.UniformResourceIdentifier():
                found.uris.append(_domain(subtree.value))
                if _is_address(subtree.value):
                    raise ValueError("an address as a constraint for URIs")
            case x509.IPAddress() if isinstance(subtree.value, IPv4Network | IPv6Network):
                network = subtree.value
                if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped is not None:
                    raise ValueError("a mapped address as a constraint")
                found.addresses.append(network)
            case _:
                known = False
    return found, known


def _domain(text: str) -> str:
    if not is_domain(text.removeprefix(".")):
        raise ValueError("a malformed domain as a constraint")
    return text


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
