"""Serving and client certificates, and the TLS context. A certificate authority of our own, kept in a directory.

`cryptography` is imported inside the functions that need it: it costs some 50 ms, and a start that finds valid files
needs none of it. What such a start must know of a certificate is kept in a small JSON file beside it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CA_LIFETIME: Final = timedelta(days=3650)
LIFETIME: Final = timedelta(days=365)
# Renewed this long before the end, so that a server that runs for weeks does not run into it.
RENEW_BEFORE: Final = timedelta(days=30)
# Clocks of other machines may be behind.
BACKDATED: Final = timedelta(hours=1)

SERVING_NAMES: Final = (
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


class CertificateFiles(NamedTuple):
    ca: Path
    ca_key: Path
    certificate: Path
    key: Path

    @classmethod
    def within(cls, directory: Path) -> CertificateFiles:
        return cls(directory / "ca.crt", directory / "ca.key", directory / "apiserver.crt", directory / "apiserver.key")

    @property
    def notes(self) -> Path:
        return self.certificate.with_suffix(".json")


def ensure_certificates(
    directory: Path, now: datetime, *, service_ip: str | None = None, extra_names: Iterable[str] = ()
) -> CertificateFiles:
    """The authority and a serving certificate for all names, made or renewed where needed.

    The authority is kept as long as it outlives a new certificate, so that clients' copies of it stay good.
    """
    files = CertificateFiles.within(directory)
    names = sorted({*SERVING_NAMES, *extra_names, *((service_ip,) if service_ip else ())})
    if not _still_good(files, names, now):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _issue_serving(files, names, now)
    return files


def issue_client_certificate(
    files: CertificateFiles,
    common_name: str,
    organizations: Iterable[str],
    now: datetime,
    lifetime: timedelta = LIFETIME,
) -> tuple[bytes, bytes]:
    """Certificate and key, PEM, for the user `common_name` in the groups `organizations`."""
    from cryptography import x509  # slow to import: see the top of this file

    authority, authority_key = _load_authority(files)
    certificate, key = _issue(
        authority, authority_key, common_name, organizations, now, lifetime, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH
    )
    return _pem(certificate), _key_pem(key)


_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Suites of TLS 1.2: those of Go's default that authenticate what they encrypt, so none with CBC."""


def server_context(files: CertificateFiles, client_ca: Path | None = None) -> ssl.SSLContext:
    """TLS 1.2 and up, HTTP/1.1 only. With `client_ca`, clients may show a certificate, and one shown must be good."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.load_cert_chain(files.certificate, files.key)
    context.set_alpn_protocols(["http/1.1"])
    # The usual clients never resume a session: tickets would only cost every connection time and memory.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
        # An authority is trusted although the one that signed it is not known, as by Go.
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context


def _still_good(files: CertificateFiles, names: list[str], now: datetime) -> bool:
    try:
        notes = json.loads(files.notes.read_bytes())
        return bool(
            notes["names"] == names
            and notes["fingerprint"] == _fingerprint(files)
            and datetime.fromisoformat(notes["notAfter"]) - RENEW_BEFORE > now
            and files.key.exists()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _fingerprint(files: CertificateFiles) -> str:
    """Of what the notes were taken from: they say nothing about files someone else put in place."""
    return hashlib.sha256(files.ca.read_bytes() + files.certificate.read_bytes()).hexdigest()


def _issue_serving(files: CertificateFiles, names: list[str], now: datetime) -> None:
    from cryptography import x509

    try:
        authority, authority_key = _load_authority(files)
        usable = authority.not_valid_after_utc > now + LIFETIME
    except (OSError, ValueError):
        usable = False
    if not usable:
        authority, authority_key = _make_authority(now)
        _write(files.ca_key, _key_pem(authority_key), 0o600)
        _write(files.ca, _pem(authority), 0o644)
    certificate, key = _issue(
        authority,
        authority_key,
        "kube-apiserver",
        (),
        now,
        LIFETIME,
        x509.oid.ExtendedKeyUsageOID.SERVER_AUTH,
        names,
    )
    _write(files.key, _key_pem(key), 0o600)
    _write(files.certificate, _pem(certificate), 0o644)
    notes = {
        "names": names,
        "notAfter": certificate.not_valid_after_utc.isoformat(),
        "fingerprint": _fingerprint(files),
    }
    _write(files.notes, json.dumps(notes, indent=2).encode(), 0o644)


def _make_authority(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own for each authority: two of the same name confuse whoever holds both.
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"setpoint-ca@{int(now.timestamp())}")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - BACKDATED)
        .not_valid_after(now.astimezone(UTC) + CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(certificate_signing=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _issue(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    common_name: str,
    organizations: Iterable[str],
    now: datetime,
    lifetime: timedelta,
    purpose: x509.ObjectIdentifier,
    names: Iterable[str] = (),
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, group) for group in organizations]
    subject.append(x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name))
    # Each in a set of its own, as Go reads them: one set of several values would be one relative name.
    rdns = [x509.RelativeDistinguishedName([attribute]) for attribute in subject]
    issuer = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        x509.CertificateBuilder(authority.subject, x509.Name(rdns), key.public_key(), x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - BACKDATED)
        .not_valid_after(min(now.astimezone(UTC) + lifetime, authority.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(certificate_signing=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
    )
    alternatives = [_general_name(name) for name in names]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(authority_key, hashes.SHA256()), key


def _usage(*, certificate_signing: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not certificate_signing,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificate_signing,
        crl_sign=certificate_signing,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _load_authority(files: CertificateFiles) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Raises OSError or ValueError when there is none, or its two files are not a pair."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    authority = x509.load_pem_x509_certificate(files.ca.read_bytes())
    key = load_pem_private_key(files.ca_key.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or authority.public_key() != key.public_key():
        raise ValueError(f"{files.ca} and {files.ca_key} do not belong together")
    return authority, key


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, data: bytes, mode: int) -> None:
    """Whole or not at all, and never readable to others in between."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    temporary.replace(path)
