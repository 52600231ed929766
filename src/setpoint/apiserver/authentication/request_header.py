"""Request header authentication: a proxy in front of the server identifies the user in headers.

The proxy is trusted by its client certificate alone, which must have one of the allowed names and be signed by an
authority that signs nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from setpoint.apiserver.authentication.client_certificates import Anchors, common_name
from setpoint.apiserver.filters.authenticate import with_authenticated_group
from setpoint.apiserver.request_context import percent_decoded
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Unauthorized
from setpoint.wire.message import Peer, Request


@dataclass(frozen=True, slots=True)
class HeaderNames:
    """Lower-case header names. The first name with a value counts; for groups and extra prefixes, all names do."""

    username: tuple[str, ...]
    uid: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    extra_prefix: tuple[str, ...] = ()


class RequestHeaderAuthenticator:
    """Authenticates users that a trusted proxy names."""

    def __init__(self, anchors: Anchors, allowed: Sequence[str], names: HeaderNames, clock: Clock) -> None:
        """`allowed` are the common names of proxies; empty means any."""
        self._anchors = anchors
        self._allowed = frozenset(allowed)
        self._names = names
        self._used = frozenset((*names.username, *names.uid, *names.group))
        self._clock = clock

    def authenticate(self, request: Request) -> UserInfo | None:
        try:
            return self._user(request)
        finally:
            self._strip(request)

    def _user(self, request: Request) -> UserInfo | None:
        if request.peer.certificate is None:
            return None
        if not self._anchors.trusts(request.peer) or not self._is_proxy(request.peer, request.peer.certificate):
            raise Unauthorized()
        names = self._names
        name = _first(request, names.username)
        if not name:
            return None
        groups = [group for header in names.group for group in request.header_values(header) if group]
        return UserInfo(name, _first(request, names.uid), with_authenticated_group(name, groups), self._extra(request))

    def _is_proxy(self, peer: Peer, der: bytes) -> bool:
        verified = peer.attributes.get(self)
        if not isinstance(verified, tuple):
            from cryptography import x509

            certificate = x509.load_der_x509_certificate(der)
            seconds_left = (certificate.not_valid_after_utc - self._clock.now()).total_seconds()
            allowed = not self._allowed or common_name(certificate) in self._allowed
            verified = peer.attributes[self] = (allowed, self._clock.monotonic() + seconds_left)
        return bool(verified[0]) and self._clock.monotonic() <= verified[1]

    def _extra(self, request: Request) -> dict[str, Sequence[str]]:
        extra: dict[str, Sequence[str]] = {}
        for prefix in self._names.extra_prefix:
            for header in request.headers:
                if header.startswith(prefix):
                    key = percent_decoded(header[len(prefix) :])
                    extra[key] = (*extra.get(key, ()), *request.header_values(header))
        return extra

    def _strip(self, request: Request) -> None:
        """Remove the headers from every request, so that nothing else trusts them."""
        extra = self._names.extra_prefix
        remaining = {
            header: value
            for header, value in request.headers.items()
            if header not in self._used and not (extra and header.startswith(extra))
        }
        if len(remaining) != len(request.headers):
            request.headers = remaining


def _first(request: Request, headers: Sequence[str]) -> str:
    for header in headers:
        values = request.header_values(header)
        if values and values[0]:
            return values[0]
    return ""
