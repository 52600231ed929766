"""The serving certificate of an operator's webhooks: read from files, or generated and shared by all replicas in a
Secret.

`cryptography` is imported inside the functions that need it: it is slow to load, and most operators have no webhooks.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.client import Client
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, Conflict, NotFound
from setpoint.wire.tls import load_certificate, server_tls_context

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

log = logging.getLogger("setpoint.operator.webhooks")

_AUTHORITY_LIFETIME = timedelta(days=3650)
_LIFETIME = timedelta(days=365)
_RENEW_BEFORE = timedelta(days=60)
_BACKDATED = timedelta(hours=1)
_SECRET = ("v1", "Secret")
_KEYS = ("ca.crt", "ca.key", "tls.crt", "tls.key")


class CertificateProblem(Exception):
    """A certificate cannot be read or used; the message is one sentence for users."""


class Pair(NamedTuple):
    """A serving certificate, its key and its authority, all as PEM."""

    authority: bytes
    certificate: bytes
    key: bytes
    authority_key: bytes = b""


def make_pair(names: Sequence[str], now: datetime, before: Pair | None = None) -> Pair:
    """Return a certificate for all these names, signed by the authority of `before` if that is valid long enough.

    Keeping the authority means that the webhook configurations need no update.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

    now = now.astimezone(UTC)
    authority, authority_key = None, None
    if before is not None:
        authority = x509.load_pem_x509_certificate(before.authority)
        authority_key = load_pem_private_key(before.authority_key, None)
    if (
        authority is None
        or not isinstance(authority_key, ec.EllipticCurvePrivateKey)
        or authority.not_valid_after_utc < now + _LIFETIME
    ):
        authority_key = ec.generate_private_key(ec.SECP256R1())
        authority = _signed(authority_key, authority_key, None, now, _AUTHORITY_LIFETIME, names)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _signed(key, authority_key, authority, now, _LIFETIME, names)

    def private(each: ec.EllipticCurvePrivateKey) -> bytes:
        return each.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    pem = [each.public_bytes(Encoding.PEM) for each in (authority, certificate)]
    return Pair(pem[0], pem[1], private(key), private(authority_key))


def _signed(
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate | None,
    now: datetime,
    lifetime: timedelta,
    names: Sequence[str],
) -> x509.Certificate:
    """Return a certificate signed by `authority`; without one, a self-signed authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    common = f"webhook-ca@{int(now.timestamp())}" if authority is None else "webhook"
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])
    is_authority = authority is None
    usage = x509.KeyUsage(True, False, not is_authority, False, False, is_authority, is_authority, False, False)
    builder = (
        x509.CertificateBuilder(authority.subject if authority is not None else subject, subject, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if not is_authority:
        builder = (
            builder.add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
    return builder.sign(signer, hashes.SHA256())


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def is_valid_for(pair: Pair, names: Sequence[str], now: datetime) -> bool:
    """Return whether the certificate covers all these names and does not expire soon."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        known = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    return all(_general_name(name) in known for name in names) and certificate.not_valid_after_utc - _RENEW_BEFORE > now


async def shared_pair(client: Client, clock: Clock, namespace: str, secret: str, names: Sequence[str]) -> Pair:
    """Return the certificate stored in the Secret; create or renew it if it is missing or expires soon.

    The first replica to write decides for all.
    """
    for _ in range(3):
        meta: dict[str, Any] = {"name": secret, "namespace": namespace}
        found, before = None, None
        try:
            found = await client.get(_SECRET, secret, namespace)
            before = _pair_of(found)
            if before is not None and is_valid_for(before, names, clock.now()):
                return before
        except NotFound:
            pass
        pair = make_pair(names, clock.now(), before)
        values = (pair.authority, pair.authority_key, pair.certificate, pair.key)
        data = {key: b64encode(value).decode() for key, value in zip(_KEYS, values)}
        wanted = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": meta, "data": data}
        try:
            if found is None:
                await client.create(wanted)
            else:
                await client.update({**found, "data": {**(found.get("data") or {}), **data}})
            log.info("created a certificate for the webhooks, stored in the Secret %s/%s", namespace, secret)
            return pair
        except (AlreadyExists, Conflict):
            continue  # another replica wrote first: read its certificate
    raise CertificateProblem(f"the Secret {namespace}/{secret} changes faster than it can be read")


def _pair_of(secret: dict[str, Any]) -> Pair | None:
    try:
        authority, authority_key, certificate, key = (b64decode(secret["data"][each]) for each in _KEYS)
    except (KeyError, TypeError, ValueError):
        return None
    return Pair(authority, certificate, key, authority_key)


def read_pair(directory: Path) -> Pair:
    """Read tls.crt, tls.key and, if it exists, ca.crt, as cert-manager and Secrets of type kubernetes.io/tls provide
    them.

    Raise CertificateProblem if they are missing or invalid.
    """
    try:
        authority = directory / "ca.crt"
        return Pair(
            authority.read_bytes() if authority.exists() else b"",
            (directory / "tls.crt").read_bytes(),
            (directory / "tls.key").read_bytes(),
        )
    except OSError as error:
        raise CertificateProblem(f"cannot read the certificate of the webhooks: {error}") from None


def server_context(pair: Pair) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and later, HTTP/1.1 only. Raise CertificateProblem if the certificate is invalid."""
    context = server_tls_context()
    load_pair(context, pair)
    return context


def load_pair(context: ssl.SSLContext, pair: Pair) -> None:
    """Use this certificate for new connections. Raise CertificateProblem if it is invalid."""
    try:
        load_certificate(context, pair.certificate, pair.key)
    except (ssl.SSLError, OSError) as error:
        raise CertificateProblem(f"the certificate and key of the webhooks cannot be used: {error}") from None
