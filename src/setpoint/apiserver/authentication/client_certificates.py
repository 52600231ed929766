"""Client certificates: who signed them, until when they are valid, and which user they identify.

The TLS layer only accepts certificates that a known authority has signed. Which authority it was, and whether it is
still trusted, is verified here: once for each connection, and again whenever the authorities change.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from setpoint.apiserver.filters.authenticate import CREDENTIAL, with_authenticated_group
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Unauthorized
from setpoint.meta.x509.pem import blocks
from setpoint.wire.message import Peer, Request

if TYPE_CHECKING:
    from cryptography import x509

    from setpoint.meta.x509.chains import CertificatePool

_UID_OID = "1.3.6.1.4.1.57683.2"
_MAX_CHAIN_LENGTH = 8


class Anchors:
    """Trusted certificate authorities, which may be replaced while they are in use."""

    def __init__(self, bundles: Sequence[bytes], clock: Clock) -> None:
        """`bundles` are PEM."""
        self.generation = 0
        self._clock = clock
        self._bundles = list(bundles)
        self._pool: CertificatePool | None = None

    def replace(self, bundles: Sequence[bytes]) -> None:
        """Raise ValueError, and change nothing, if one of the bundles contains no certificate."""
        for bundle in bundles:
            if not any(block.type == "CERTIFICATE" for block in blocks(bundle)):
                raise ValueError("the bundle contains no certificate")
        self._bundles, self._pool = list(bundles), None
        self.generation += 1

    def trusts(self, peer: Peer) -> bool:
        """Return whether a chain of the certificates that the peer has sent ends at one of the authorities."""
        known = peer.attributes.get(self)
        if isinstance(known, tuple) and known[0] == self.generation:
            return bool(known[1])
        found = peer.certificate is not None and self._verify(peer)
        peer.attributes[self] = (self.generation, found)
        return found

    def _verify(self, peer: Peer) -> bool:
        from setpoint.meta.x509.certificate import X509Error, parse
        from setpoint.meta.x509.chains import CLIENT_AUTH, CertificatePool, verify

        assert peer.certificate is not None
        if self._pool is None:
            self._pool = CertificatePool.from_pem(*self._bundles)
        try:
            sent = [parse(der) for der in (peer.certificate, *peer.intermediates()[:_MAX_CHAIN_LENGTH])]
            verify(sent, self._pool, self._clock.now(), usage=CLIENT_AUTH)
        except X509Error:
            return False
        return True


class _Inspected(NamedTuple):
    """The outcome of inspecting a connection's certificate."""

    generation: int
    expires: float
    """Monotonic time in seconds."""
    user: UserInfo | None
    is_valid: bool


class CertificateAuthenticator:
    """Authenticates the common name of a verified client certificate as the user, with its organizations as the
    groups."""

    def __init__(self, clock: Clock, anchors: Anchors | None = None) -> None:
        """Every authority that the TLS layer accepts is trusted if `anchors` is None."""
        self._clock = clock
        self._anchors = anchors

    def authenticate(self, request: Request) -> UserInfo | None:
        peer = request.peer
        if peer.certificate is None:
            return None
        known = peer.attributes.get(self)
        generation = 0 if self._anchors is None else self._anchors.generation
        if not isinstance(known, _Inspected) or known.generation != generation:
            known = peer.attributes[self] = self._inspect(peer, peer.certificate, generation)
        if not known.is_valid or self._clock.monotonic() > known.expires:
            raise Unauthorized()
        return known.user

    def _inspect(self, peer: Peer, der: bytes, generation: int) -> _Inspected:
        # Imported here: the library is slow to load and not needed at the start of a server.
        from cryptography import x509

        certificate = x509.load_der_x509_certificate(der)
        seconds_left = (certificate.not_valid_after_utc - self._clock.now()).total_seconds()
        expires = self._clock.monotonic() + seconds_left
        if self._anchors is not None and not self._anchors.trusts(peer):
            return _Inspected(generation, expires, None, False)
        try:
            return _Inspected(generation, expires, _user_of(certificate, der), True)
        except Unauthorized:
            return _Inspected(generation, expires, None, False)


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
    return UserInfo(name, "".join(uids), with_authenticated_group(name, groups), extra)
