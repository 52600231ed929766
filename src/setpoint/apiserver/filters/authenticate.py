"""Who is it? Static tokens, and whatever else is put into the chain.

No token is ever logged, and none travels further than this: once somebody is authenticated, the request has no
Authorization header any more.
"""

from __future__ import annotations

import csv
from collections.abc import Awaitable, Mapping, Sequence
from hmac import compare_digest
from string import ascii_letters, digits
from typing import NamedTuple, Protocol, runtime_checkable

from setpoint.apiserver.http.message import Request
from setpoint.apiserver.request import percent_decoded
from setpoint.kinds.strategy import UserInfo
from setpoint.meta import base64url
from setpoint.meta.errors import Unauthorized
from setpoint.meta.goformat import aggregate

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = UserInfo("system:anonymous", groups=(UNAUTHENTICATED,))
CREDENTIAL = "authentication.kubernetes.io/credential-id"
_INVALID = "invalid bearer token"
_SPACE = "the provided Authorization header contains extra space before the bearer token, and is ignored"
_SUBPROTOCOL = "base64url.bearer.authorization.k8s.io."
_BASE64URL = frozenset(ascii_letters + digits + "-_")
_LONGEST_TOKEN = 64 * 1024
"""Characters of a bearer token; no issuer makes longer ones. Upstream has no such bound."""
_MOST_PROTOCOLS = 100
"""Subprotocols that a WebSocket may offer. Upstream has no such bound."""


class TokenRefused(Exception):
    """The token is of a known make but not good (any more). The text does not hold the token."""


class Verified(NamedTuple):
    user: UserInfo
    audiences: tuple[str, ...]
    """Those that were asked for and that the token is meant for."""


@runtime_checkable
class TokenAuthenticator(Protocol):
    def verify(self, token: str, audiences: Sequence[str]) -> Verified | Awaitable[Verified | None] | None:
        """None: not a token of this make. To be awaited only where somebody else must be asked. Raises TokenRefused."""
        ...


class RequestAuthenticator(Protocol):
    def authenticate(self, request: Request) -> UserInfo | None:
        """The user, or None if this authenticator knows nothing of the request's credentials. Raises Unauthorized if
        they are not good; others may still know the request by something else."""
        ...


Authenticator = RequestAuthenticator | TokenAuthenticator


def parse_bearer(header: str) -> tuple[str, bool]:
    """The token (empty: the header holds none), and whether one is there but badly spaced."""
    parts = header.strip().split(" ", 2)
    if len(parts) < 2 or parts[0].lower() != "bearer":
        return "", False
    return parts[1], not parts[1] and len(parts) == 3


def with_everybody(name: str, groups: Sequence[str]) -> tuple[str, ...]:
    """The groups of whoever has shown who they are; also a proxy may have nobody to tell of."""
    if name == ANONYMOUS.name or AUTHENTICATED in groups or UNAUTHENTICATED in groups:
        return tuple(groups)
    return (*groups, AUTHENTICATED)


class AudienceAgnostic:
    """A TokenAuthenticator whose tokens do not say for whom they are: they are good for this server."""

    def __init__(self) -> None:
        self.audiences: Sequence[str] = ()
        """By which tokens may mean this server."""

    def fitting(self, audiences: Sequence[str]) -> tuple[str, ...] | None:
        """Those for which such a token is good; None: it is not good for what is asked."""
        if audiences is self.audiences:
            return tuple(audiences)
        fitting = tuple(audience for audience in audiences if audience in self.audiences)
        return fitting if fitting or not audiences else None


class TokenFileAuthenticator(AudienceAgnostic):
    """A CSV file: token, user, uid and, optionally, groups in one quoted column."""

    def __init__(self, users: dict[str, UserInfo]) -> None:
        super().__init__()
        self._users = users

    @classmethod
    def read(cls, path: str) -> TokenFileAuthenticator:
        """Raises ValueError with a sentence that names the line."""
        users: dict[str, UserInfo] = {}
        with open(path, newline="", encoding="utf-8") as lines:
            for number, row in enumerate(csv.reader(lines), 1):
                if not row or row[0].startswith("#"):
                    continue
                if len(row) < 3:
                    raise ValueError(f"{path}, line {number}: expected at least 3 columns: token, user name, user uid")
                token, name, uid = (cell.strip() for cell in row[:3])
                if not token:
                    raise ValueError(f"{path}, line {number}: the token is empty")
                groups = [group.strip() for group in row[3].split(",") if group.strip()] if len(row) > 3 else []
                users[token] = UserInfo(name, uid, with_everybody(name, groups))
        return cls(users)

    def verify(self, token: str, audiences: Sequence[str]) -> Verified | None:
        user = self._users.get(token)
        fitting = self.fitting(audiences) if user is not None else None
        return Verified(user, fitting) if user is not None and fitting is not None else None


class LoopbackAuthenticator:
    """One token, known to this process alone, for the components that run inside it."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._user = UserInfo("system:apiserver", groups=("system:masters", AUTHENTICATED))

    def verify(self, token: str, audiences: Sequence[str]) -> Verified | None:
        if compare_digest(token.encode("utf-8", "replace"), self._token):
            return Verified(self._user, tuple(audiences))
        return None


HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
"""Load balancers and process managers ask these, and have no credentials."""


class AuthenticatorChain:
    """The first that knows the user decides. Nobody: anonymous if allowed and no credentials were shown, else 401."""

    def __init__(
        self,
        authenticators: Sequence[Authenticator],
        anonymous: bool,
        audiences: Sequence[str] = (),
    ) -> None:
        self.anonymous_paths: frozenset[str] | None = None if anonymous else HEALTH
        """What may be asked without saying who one is; None: everything."""
        self._authenticators: list[RequestAuthenticator] = []
        self._tokens: list[TokenAuthenticator] = []
        self.audiences: Sequence[str] = tuple(audiences)
        for authenticator in authenticators:
            self.add(authenticator)

    def add(self, authenticator: Authenticator) -> None:
        """Asked after all of its sort that are there already."""
        if isinstance(authenticator, TokenAuthenticator):
            self._tokens.append(authenticator)
            if isinstance(authenticator, AudienceAgnostic):
                authenticator.audiences = self.audiences
        else:
            self._authenticators.append(authenticator)

    def serve(self, audiences: Sequence[str]) -> None:
        """The names by which tokens may mean this server."""
        self.audiences = tuple(audiences)
        for authenticator in self._tokens:
            if isinstance(authenticator, AudienceAgnostic):
                authenticator.audiences = self.audiences

    def authenticate(self, request: Request, warnings: list[str]) -> UserInfo | Awaitable[UserInfo]:
        """To be awaited only where an authenticator must ask somebody else first. Raises Unauthorized."""
        refused = False
        for authenticator in self._authenticators:
            try:
                user = authenticator.authenticate(request)
            except Unauthorized:
                refused = True
                continue
            if user is not None:
                return user
        headers = request.headers
        header = headers.get("authorization")
        if header is not None:
            # The caller may send the same headers again.
            request.headers = headers = headers.copy()
            del headers["authorization"]
            token, spaced = parse_bearer(request.repeated.pop("authorization", (header,))[0])
            if token:
                return self._bearer(token)
            if spaced:
                warnings.append(_SPACE)
        if _SUBPROTOCOL in headers.get("sec-websocket-protocol", ""):
            request.headers = headers = headers.copy()
            protocols = headers.pop("sec-websocket-protocol")
            request.repeated.pop("sec-websocket-protocol", None)
            if _opens_websocket(headers):
                token, headers["sec-websocket-protocol"] = _from_subprotocols(protocols)
                if token:
                    return self._bearer(token)
        if not refused and (self.anonymous_paths is None or percent_decoded(request.path) in self.anonymous_paths):
            return ANONYMOUS
        raise Unauthorized()

    def _bearer(self, token: str) -> UserInfo | Awaitable[UserInfo]:
        if len(token) > _LONGEST_TOKEN:
            raise Unauthorized()
        for at, authenticator in enumerate(self._tokens):
            try:
                verified = authenticator.verify(token, self.audiences)
            except TokenRefused:
                continue
            if verified is None:
                continue
            if not isinstance(verified, Verified):
                return self._await_bearer(verified, token, self._tokens[at + 1 :])
            return verified.user
        raise Unauthorized()

    async def _await_bearer(
        self, asked: Awaitable[Verified | None], token: str, others: Sequence[TokenAuthenticator]
    ) -> UserInfo:
        try:
            verified = await asked
        except TokenRefused:
            verified = None
        if verified is None:
            verified, _ = await _verify(others, token, self.audiences)
        if verified is None:
            raise Unauthorized()
        return verified.user

    async def review(self, token: str, audiences: Sequence[str]) -> tuple[Verified | None, str]:
        """Whose token it is, or what is wrong with it. The token is taken as if it came in a header."""
        audiences = audiences or self.audiences
        token, _ = parse_bearer(f"Bearer {token}")
        if not token:
            return (Verified(ANONYMOUS, tuple(audiences)) if self.anonymous_paths is None else None), ""
        if len(token) > _LONGEST_TOKEN:
            return None, _INVALID
        verified, errors = await _verify(self._tokens, token, audiences)
        return verified, "" if verified is not None else aggregate([_INVALID, *errors])


async def _verify(
    authenticators: Sequence[TokenAuthenticator], token: str, audiences: Sequence[str]
) -> tuple[Verified | None, list[str]]:
    """What the first says that knows the token; else what is wrong with it."""
    errors: list[str] = []
    for authenticator in authenticators:
        try:
            verified = authenticator.verify(token, audiences)
            if verified is not None and not isinstance(verified, Verified):
                verified = await verified
        except TokenRefused as error:
            errors.append(str(error))
            continue
        if verified is not None:
            return verified, []
    return None, errors or [_INVALID]


def _opens_websocket(headers: Mapping[str, str]) -> bool:
    offered = headers.get("connection", "").split(",", _MOST_PROTOCOLS)
    connection = (token.strip().lower() for token in offered)
    return headers.get("upgrade", "").lower() == "websocket" and "upgrade" in connection


def _from_subprotocols(header: str) -> tuple[str, str]:
    """Browsers cannot set an Authorization header on a WebSocket: the token, empty if there is none, and the other
    protocols."""
    protocols = [protocol.strip() for protocol in header.split(",", _MOST_PROTOCOLS)]
    if len(protocols) > _MOST_PROTOCOLS:
        raise Unauthorized()
    tokens = [protocol for protocol in protocols if protocol.startswith(_SUBPROTOCOL)]
    others = [protocol for protocol in protocols if not protocol.startswith(_SUBPROTOCOL)]
    encoded = tokens[0].removeprefix(_SUBPROTOCOL) if tokens else ""
    if len(tokens) > 1 or not _BASE64URL.issuperset(encoded):
        raise Unauthorized()
    try:
        token = base64url.decode(encoded).decode()
    except ValueError:
        raise Unauthorized() from None
    if token and not others:
        raise Unauthorized()
    return token, ",".join(others)
