"""The cluster's certificate authority, its serving and client certificates, and the TLS context.

`cryptography` is imported in the functions that need it: the import takes about 50 ms, and a start that finds valid
files does not need it. What such a start must know about a certificate is in a small JSON file beside it.
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

from setpoint.wire.tls import server_tls_context

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CA_LIFETIME: Final = timedelta(days=3650)
LIFETIME: Final = timedelta(days=365)
RENEW_BEFORE: Final = timedelta(days=30)
"""How long before its end a certificate is renewed, so that it does not expire while a server runs."""
BACKDATED: Final = timedelta(hours=1)
"""How long before its creation a certificate is valid, because clocks of other machines may be behind."""

_CHAIN_LENGTH: Final = 2
"""Certificates in the file of a serving certificate: its own and the authority's."""

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
    """The files of the authority and of a serving certificate."""

    ca: Path
    ca_key: Path
    certificate: Path
    key: Path

    @classmethod
    def within(cls, directory: Path) -> CertificateFiles:
        return cls(directory / "ca.crt", directory / "ca.key", directory / "apiserver.crt", directory / "apiserver.key")

    @property
    def metadata(self) -> Path:
        """Return the JSON file that describes the certificate."""
        return self.certificate.with_suffix(".json")


def ensure_certificates(
    directory: Path, now: datetime, *, service_ip: str | None = None, extra_names: Iterable[str] = ()
) -> CertificateFiles:
    """Return the authority and a serving certificate for all names, created or renewed if necessary.

    The authority is reused as long as it outlives a new certificate, so that clients' copies of it stay valid.
    """
    files = CertificateFiles.within(directory)
    names = sorted({*SERVING_NAMES, *extra_names, *((service_ip,) if service_ip else ())})
    if not _is_current(files, names, now):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _issue_serving(files, "kube-apiserver", names, now)
    return files


def ensure_etcd_certificates(directory: Path, now: datetime, names: Iterable[str]) -> CertificateFiles:
    """Return etcd's authority and the certificate of a member, created or renewed if necessary. The member presents it
    to clients and to other members, and the API server presents it to etcd."""
    files = CertificateFiles(*(directory / name for name in ("ca.crt", "ca.key", "member.crt", "member.key")))
    all_names = sorted({"localhost", "127.0.0.1", "::1", *names})
    if not _is_current(files, all_names, now):
        directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # `parents` ignores the mode
        directory.mkdir(exist_ok=True, mode=0o700)
        _issue_serving(files, "etcd-member", all_names, now, for_clients=True)
    return files


def issue_client_certificate(
    files: CertificateFiles,
    common_name: str,
    organizations: Iterable[str],
    now: datetime,
    lifetime: timedelta = LIFETIME,
) -> tuple[bytes, bytes]:
    """Return certificate and key, in PEM, for the user `common_name` in the groups `organizations`."""
    from cryptography import x509  # slow to import: see the top of this file

    authority, authority_key = _load_authority(files)
    usage = [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate, key = _issue(authority, authority_key, common_name, organizations, now, lifetime, usage)
    return _pem(certificate), key_pem(key)


def issue_serving_certificate(
    files: CertificateFiles, common_name: str, organizations: Iterable[str], names: Iterable[str], now: datetime
) -> tuple[bytes, bytes]:
    """Return certificate and key, in PEM, of a server with these DNS names and addresses."""
    from cryptography import x509  # slow to import: see the top of this file

    authority, authority_key = _load_authority(files)
    usage = [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]
    certificate, key = _issue(authority, authority_key, common_name, organizations, now, LIFETIME, usage, names)
    return _pem(certificate), key_pem(key)


def server_context(files: CertificateFiles, client_ca: Path | None = None) -> ssl.SSLContext:
    """Return the TLS context of a server with this certificate; see `server_tls_context`."""
    context = server_tls_context(client_ca)
    context.load_cert_chain(files.certificate, files.key)
    return context


def _is_current(files: CertificateFiles, names: list[str], now: datetime) -> bool:
    try:
        metadata = json.loads(files.metadata.read_bytes())
        return bool(
            metadata["names"] == names
            and metadata["chain"] == _CHAIN_LENGTH
            and metadata["fingerprint"] == _fingerprint(files)
            and datetime.fromisoformat(metadata["notAfter"]) - RENEW_BEFORE > now
            and files.key.exists()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _fingerprint(files: CertificateFiles) -> str:
    """Return a hash of the files that the metadata describes; it detects replaced files."""
    return hashlib.sha256(files.ca.read_bytes() + files.certificate.read_bytes()).hexdigest()


def _issue_serving(
    files: CertificateFiles, common_name: str, names: list[str], now: datetime, *, for_clients: bool = False
) -> None:
    from cryptography import x509

    try:
        authority, authority_key = _load_authority(files)
        usable = authority.not_valid_after_utc > now + LIFETIME
    except (OSError, ValueError):
        usable = False
    if not usable:
        authority, authority_key = _create_authority(now)
        _write(files.ca_key, key_pem(authority_key), 0o600)
        _write(files.ca, _pem(authority), 0o644)
    usage = [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]
    if for_clients:
        usage.append(x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH)
    certificate, key = _issue(authority, authority_key, common_name, (), now, LIFETIME, usage, names)
    _write(files.key, key_pem(key), 0o600)
    # The server sends the authority too: a machine that joins knows only its hash.
    _write(files.certificate, _pem(certificate) + _pem(authority), 0o644)
    metadata = {
        "names": names,
        "chain": _CHAIN_LENGTH,
        "notAfter": certificate.not_valid_after_utc.isoformat(),
        "fingerprint": _fingerprint(files),
    }
    _write(files.metadata, json.dumps(metadata, indent=2).encode(), 0o644)


def _create_authority(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    # Each authority has a unique name, because clients confuse two of the same name.
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
    usage: Iterable[x509.ObjectIdentifier],
    names: Iterable[str] = (),
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, group) for group in organizations]
    subject.append(x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name))
    # One attribute in each relative name, as Go expects.
    rdns = [x509.RelativeDistinguishedName([attribute]) for attribute in subject]
    issuer = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        x509.CertificateBuilder(authority.subject, x509.Name(rdns), key.public_key(), x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - BACKDATED)
        .not_valid_after(min(now.astimezone(UTC) + lifetime, authority.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(certificate_signing=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
    )
    alternatives = [general_name(name) for name in names]
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


def general_name(name: str) -> x509.GeneralName:
    """Return a DNS name or an IP address as a subject alternative name."""
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _load_authority(files: CertificateFiles) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the authority and its key. Raises OSError or ValueError if there is none or the key does not match."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    authority = x509.load_pem_x509_certificate(files.ca.read_bytes())
    key = load_pem_private_key(files.ca_key.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or authority.public_key() != key.public_key():
        raise ValueError(f"the key in {files.ca_key} does not match the certificate in {files.ca}")
    return authority, key


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key in PEM, without encryption."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write the file atomically, at no moment readable by others."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    temporary.replace(path)
