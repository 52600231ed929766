"""Certificates of clients: who signed them, until when they are good, and whom they name.

The TLS layer has let nobody in whose certificate no known authority signed. Which authority it was, and whether it is
still one of ours, is looked at here: once for each connection, and again whenever the authorities change.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from setpoint.apiserver.filters.authenticate import CREDENTIAL, with_everybody
from setpoint.apiserver.http.message import Peer, Request
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Unauthorized

if TYPE_CHECKING:
    from cryptography import x509

_UID_OID = "1.3.6.1.4.1.57683.2"
_LONGEST_CHAIN = 8


class Anchors:
    """Authorities, which may be replaced while they are in use."""

    def __init__(self, bundles: Sequence[bytes]) -> None:
        """PEM. Raises ValueError."""
        self.generation = 0
        self._bundles = list(bundles)
        self._authorities: list[x509.Certificate] | None = None

    def replace(self, bundles: Sequence[bytes]) -> None:
        """Raises ValueError, and then all stays as it is."""
        authorities = _read(bundles)
        self._bundles, self._authorities = list(bundles), authorities
        self.generation += 1

    def vouch_for(self, peer: Peer) -> bool:
        """Whether one of them signed the certificate that the peer has shown, or somebody in between whom the peer
        has shown too."""
        known = peer.attributes.get(self)
        if isinstance(known, tuple) and known[0] == self.generation:
            return bool(known[1])
        found = peer.certificate is not None and self._signed(peer)
        peer.attributes[self] = (self.generation, found)
        return found

    def _signed(self, peer: Peer) -> bool:
        from cryptography import x509

        assert peer.certificate is not None
        if self._authorities is None:
            self._authorities = _read(self._bundles)
        certificate = x509.load_der_x509_certificate(peer.certificate)
        shown = (x509.load_der_x509_certificate(der) for der in peer.intermediates()[:_LONGEST_CHAIN])
        between = [certificate for certificate in shown if _is_authority(certificate)]
        for _ in range(_LONGEST_CHAIN):
            if any(certificate == authority or _issued(certificate, authority) for authority in self._authorities):
                return True
            above = next((one for one in between if one != certificate and _issued(certificate, one)), None)
            if above is None:
                return False
            certificate = above
        return False


def _read(bundles: Sequence[bytes]) -> list[x509.Certificate]:
    from cryptography import x509

    return [certificate for bundle in bundles for certificate in x509.load_pem_x509_certificates(bundle)]


def _is_authority(certificate: x509.Certificate) -> bool:
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


class _Known(NamedTuple):
    """What a connection's certificate says."""

    generation: int
    expires: float
    """By the monotonic clock."""
    user: UserInfo | None
    is_good: bool


class CertificateAuthenticator:
    """The common name of a verified client certificate is the user, its organizations are the groups."""

    def __init__(self, clock: Clock, anchors: Anchors | None = None) -> None:
        """Without `anchors`, whoever signed it for the TLS layer will do."""
        self._clock = clock
        self._anchors = anchors

    def authenticate(self, request: Request) -> UserInfo | None:
        peer = request.peer
        if peer.certificate is None:
            return None
        known = peer.attributes.get(self)
        generation = 0 if self._anchors is None else self._anchors.generation
        if not isinstance(known, _Known) or known.generation != generation:
            known = peer.attributes[self] = self._look(peer, peer.certificate, generation)
        if not known.is_good or self._clock.monotonic() > known.expires:
            raise Unauthorized()
        return known.user

    def _look(self, peer: Peer, der: bytes, generation: int) -> _Known:
        # Here, because the library is slow to load and most servers start before anybody shows a certificate.
        from cryptography import x509

        certificate = x509.load_der_x509_certificate(der)
        left = (certificate.not_valid_after_utc - self._clock.now()).total_seconds()
        expires = self._clock.monotonic() + left
        if self._anchors is not None and not self._anchors.vouch_for(peer):
            return _Known(generation, expires, None, False)
        try:
            return _Known(generation, expires, _user_of(certificate, der), True)
        except Unauthorized:
            return _Known(generation, expires, None, False)


def common_name(certificate: x509.Certificate) -> str:
    from cryptography.x509.oid import NameOID

    names = [str(name.value) for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return names[-1] if names else ""


def _user_of(certificate: x509.Certificate, der: bytes) -> UserInfo | None:
    from cryptography.x509.oid import NameOID, ObjectIdentifier

    name, subject = common_name(certificate), certificate.subject
    groups = [str(group.value) for group in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    uids = [str(uid.value) for uid in subject.get_attributes_for_oid(ObjectIdentifier(_UID_OID))]
    if not name:
        return None
    if len(uids) > 1 or uids == [""]:
        raise Unauthorized()
    extra = {CREDENTIAL: (f"X509SHA256={sha256(der).hexdigest()}",)}
    return UserInfo(name, "".join(uids), with_everybody(name, groups), extra)
