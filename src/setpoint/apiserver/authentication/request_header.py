"""A proxy in front of the server says in headers who somebody is. It is believed by its certificate, and by that alone:
one of an authority that signs nothing else, with one of the names that proxies have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from setpoint.apiserver.authentication.client_certificates import Anchors, common_name
from setpoint.apiserver.filters.authenticate import with_everybody
from setpoint.apiserver.http.message import Peer, Request
from setpoint.apiserver.request import percent_decoded
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Unauthorized


@dataclass(frozen=True, slots=True)
class HeaderNames:
    """Lower-case. Of several, the first with a value counts; of those for groups, and of prefixes, all do."""

    username: tuple[str, ...]
    uid: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    extra_prefix: tuple[str, ...] = ()


class RequestHeaderAuthenticator:
    def __init__(self, anchors: Anchors, allowed: Sequence[str], names: HeaderNames, clock: Clock) -> None:
        """`allowed` are the common names that proxies may have; empty: any."""
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
        if not self._anchors.vouch_for(request.peer) or not self._is_proxy(request.peer, request.peer.certificate):
            raise Unauthorized()
        names = self._names
        name = _first(request, names.username)
        if not name:
            return None
        groups = [group for header in names.group for group in _values(request, header) if group]
        return UserInfo(name, _first(request, names.uid), with_everybody(name, groups), self._extra(request))

    def _is_proxy(self, peer: Peer, der: bytes) -> bool:
        known = peer.attributes.get(self)
        if not isinstance(known, tuple):
            from cryptography import x509

            certificate = x509.load_der_x509_certificate(der)
            left = (certificate.not_valid_after_utc - self._clock.now()).total_seconds()
            allowed = not self._allowed or common_name(certificate) in self._allowed
            known = peer.attributes[self] = (allowed, self._clock.monotonic() + left)
        return bool(known[0]) and self._clock.monotonic() <= known[1]

    def _extra(self, request: Request) -> dict[str, Sequence[str]]:
        extra: dict[str, Sequence[str]] = {}
        for prefix in self._names.extra_prefix:
            for header in request.headers:
                if header.startswith(prefix):
                    key = percent_decoded(header[len(prefix) :])
                    extra[key] = (*extra.get(key, ()), *_values(request, header))
        return extra

    def _strip(self, request: Request) -> None:
        """Nobody further on shall take them for the proxy's word, whoever sent them."""
        extra = self._names.extra_prefix
        kept = {
            header: value
            for header, value in request.headers.items()
            if header not in self._used and not (extra and header.startswith(extra))
        }
        if len(kept) != len(request.headers):
            request.headers = kept


def _values(request: Request, header: str) -> Sequence[str]:
    if header in request.repeated:
        return request.repeated[header]
    return [request.headers[header]] if header in request.headers else []


def _first(request: Request, headers: Sequence[str]) -> str:
    for header in headers:
        values = _values(request, header)
        if values and values[0]:
            return values[0]
    return ""
