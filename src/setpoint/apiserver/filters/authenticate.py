"""Authentication: static tokens, the identities of in-process components, and the chain of all authenticators.

Tokens are never logged, and go no further than this module: an authenticated request has no Authorization header.
"""

from __future__ import annotations

import csv
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hmac import compare_digest
from string import ascii_letters, digits
from typing import NamedTuple, Protocol, runtime_checkable

from setpoint.apiserver.request_context import percent_decoded
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import Unauthorized
from setpoint.meta.goformat import aggregate
from setpoint.meta.jose import base64url_decode
from setpoint.wire.message import Peer, Request

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = UserInfo("system:anonymous", groups=(UNAUTHENTICATED,))
CREDENTIAL = "authentication.kubernetes.io/credential-id"
_INVALID = "invalid bearer token"
_SPACE = "the provided Authorization header contains extra space before the bearer token, and is ignored"
_SUBPROTOCOL = "base64url.bearer.authorization.k8s.io."
_BASE64URL = frozenset(ascii_letters + digits + "-_")
_MAX_TOKEN_LENGTH = 64 * 1024
"""Maximum length of a bearer token; upstream has no limit."""
_MAX_SUBPROTOCOLS = 100
"""Maximum number of WebSocket subprotocols of a request; upstream has no limit."""
_HEALTH_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
"""Paths for load balancers and process managers, which have no credentials."""
_IN_PROCESS_USER = "user within the process"


class TokenRefused(Exception):
    """The token belongs to this authenticator but is invalid. The message does not contain the token."""


class Verified(NamedTuple):
    """An authenticated token."""

    user: UserInfo
    audiences: tuple[str, ...]
    """The requested audiences that the token is valid for."""


@runtime_checkable
class TokenAuthenticator(Protocol):
    """Authenticates bearer tokens."""

    def verify(self, token: str, audiences: Sequence[str]) -> Verified | Awaitable[Verified | None] | None:
        """Return the user, an awaitable if a remote server must be asked, or None if the token is not of this
        authenticator. Raises TokenRefused."""
        ...


class RequestAuthenticator(Protocol):
    """Authenticates requests by other means than bearer tokens."""

    def authenticate(self, request: Request) -> UserInfo | None:
        """Return the user, or None if the request has no credentials for this authenticator. Raises Unauthorized if
        they are invalid; another authenticator may still accept the request."""
        ...


Authenticator = RequestAuthenticator | TokenAuthenticator


def parse_bearer(header: str) -> tuple[str, bool]:
    """Return the token, or "" if the header has none, and whether a token follows extra spaces."""
    parts = header.strip().split(" ", 2)
    if len(parts) < 2 or parts[0].lower() != "bearer":
        return "", False
    return parts[1], not parts[1] and len(parts) == 3


def with_authenticated_group(name: str, groups: Sequence[str]) -> tuple[str, ...]:
    """Return the groups of an authenticated user, unless a proxy names an anonymous one."""
    if name == ANONYMOUS.name or AUTHENTICATED in groups or UNAUTHENTICATED in groups:
        return tuple(groups)
    return (*groups, AUTHENTICATED)


class AudienceAgnostic:
    """A TokenAuthenticator whose tokens name no audience: they are valid for this server."""

    def __init__(self) -> None:
        self.audiences: Sequence[str] = ()
        """The audiences of this server."""

    def matching_audiences(self, audiences: Sequence[str]) -> tuple[str, ...] | None:
        """Return the audiences that such a token is valid for, or None if it is valid for none of those requested."""
        if audiences is self.audiences:
            return tuple(audiences)
        matching_audiences = tuple(audience for audience in audiences if audience in self.audiences)
        return matching_audiences if matching_audiences or not audiences else None


class TokenFileAuthenticator(AudienceAgnostic):
    """A CSV file with token, user, uid and, optionally, groups in one quoted column."""

    def __init__(self, users: dict[str, UserInfo]) -> None:
        super().__init__()
        self._users = users

    @classmethod
    def read(cls, path: str) -> TokenFileAuthenticator:
        """Read a token file. Raises ValueError with a message that names the line."""
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
                users[token] = UserInfo(name, uid, with_authenticated_group(name, groups))
        return cls(users)

    def verify(self, token: str, audiences: Sequence[str]) -> Verified | None:
        user = self._users.get(token)
        matching_audiences = self.matching_audiences(audiences) if user is not None else None
        return Verified(user, matching_audiences) if user is not None and matching_audiences is not None else None


class LoopbackAuthenticator:
    """Authenticates one token that only this process knows, for the components inside it."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._user = UserInfo("system:apiserver", groups=("system:masters", AUTHENTICATED))

    def verify(self, token: str, audiences: Sequence[str]) -> Verified | None:
        if compare_digest(token.encode("utf-8", "replace"), self._token):
            return Verified(self._user, tuple(audiences))
        return None


class AuthenticatorChain:
    """Asks the authenticators in order; the first that knows the user decides.

    A request without credentials is anonymous where that is allowed. Everything else is Unauthorized.
    """

    def __init__(
        self,
        authenticators: Sequence[Authenticator],
        anonymous: bool,
        audiences: Sequence[str] = (),
    ) -> None:
        self.anonymous_paths: frozenset[str] | None = None if anonymous else _HEALTH_PATHS
        """Paths that anonymous users may request; None means all."""
        self._authenticators: list[RequestAuthenticator] = []
        self._tokens: list[TokenAuthenticator] = []
        self.audiences: Sequence[str] = tuple(audiences)
        for authenticator in authenticators:
            self.add(authenticator)

    def add(self, authenticator: Authenticator) -> None:
        """Add an authenticator, after those of its kind."""
        if isinstance(authenticator, TokenAuthenticator):
            self._tokens.append(authenticator)
            if isinstance(authenticator, AudienceAgnostic):
                authenticator.audiences = self.audiences
        else:
            self._authenticators.append(authenticator)

    def set_audiences(self, audiences: Sequence[str]) -> None:
        """Set the audiences of this server."""
        self.audiences = tuple(audiences)
        for authenticator in self._tokens:
            if isinstance(authenticator, AudienceAgnostic):
                authenticator.audiences = self.audiences

    def authenticate(self, request: Request, warn: Callable[[str], None]) -> UserInfo | Awaitable[UserInfo]:
        """Return the user, or an awaitable if a remote server must be asked. Raises Unauthorized."""
        rejected = False
        for authenticator in self._authenticators:
            try:
                user = authenticator.authenticate(request)
            except Unauthorized:
                rejected = True
                continue
            if user is not None:
                return user
        headers = request.headers
        header = headers.get("authorization")
        if header is not None:
            # The caller may use the same headers for another request.
            request.headers = headers = headers.copy()
            del headers["authorization"]
            token, malformed = parse_bearer(request.repeated.pop("authorization", (header,))[0])
            if token:
                return self._bearer(token)
            if malformed:
                warn(_SPACE)
        if _SUBPROTOCOL in headers.get("sec-websocket-protocol", ""):
            request.headers = headers = headers.copy()
            protocols = headers.pop("sec-websocket-protocol")
            request.repeated.pop("sec-websocket-protocol", None)
            if _opens_websocket(headers):
                token, headers["sec-websocket-protocol"] = _from_subprotocols(protocols)
                if token:
                    return self._bearer(token)
        if not rejected and (self.anonymous_paths is None or percent_decoded(request.path) in self.anonymous_paths):
            return ANONYMOUS
        raise Unauthorized()

    def _bearer(self, token: str) -> UserInfo | Awaitable[UserInfo]:
        if len(token) > _MAX_TOKEN_LENGTH:
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
        self, pending: Awaitable[Verified | None], token: str, remaining: Sequence[TokenAuthenticator]
    ) -> UserInfo:
        try:
            verified = await pending
        except TokenRefused:
            verified = None
        if verified is None:
            verified, _ = await _verify(remaining, token, self.audiences)
        if verified is None:
            raise Unauthorized()
        return verified.user

    async def review(self, token: str, audiences: Sequence[str]) -> tuple[Verified | None, str]:
        """Authenticate the token of a TokenReview as if it were in a header. Return the user, or None and an error."""
        audiences = audiences or self.audiences
        token, _ = parse_bearer(f"Bearer {token}")
        if not token:
            return (Verified(ANONYMOUS, tuple(audiences)) if self.anonymous_paths is None else None), ""
        if len(token) > _MAX_TOKEN_LENGTH:
            return None, _INVALID
        verified, errors = await _verify(self._tokens, token, audiences)
        return verified, "" if verified is not None else aggregate([_INVALID, *errors])


async def _verify(
    authenticators: Sequence[TokenAuthenticator], token: str, audiences: Sequence[str]
) -> tuple[Verified | None, list[str]]:
    """Return the answer of the first authenticator that knows the token, or None and the errors."""
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
    offered = headers.get("connection", "").split(",", _MAX_SUBPROTOCOLS)
    connection = (token.strip().lower() for token in offered)
    return headers.get("upgrade", "").lower() == "websocket" and "upgrade" in connection


def _from_subprotocols(header: str) -> tuple[str, str]:
    """Return the token, or "" if there is none, and the other subprotocols. Browsers cannot set an Authorization header
    on a WebSocket."""
    protocols = [protocol.strip() for protocol in header.split(",", _MAX_SUBPROTOCOLS)]
    if len(protocols) > _MAX_SUBPROTOCOLS:
        raise Unauthorized()
    tokens = [protocol for protocol in protocols if protocol.startswith(_SUBPROTOCOL)]
    others = [protocol for protocol in protocols if not protocol.startswith(_SUBPROTOCOL)]
    encoded = tokens[0].removeprefix(_SUBPROTOCOL) if tokens else ""
    if len(tokens) > 1 or not _BASE64URL.issuperset(encoded):
        raise Unauthorized()
    try:
        token = base64url_decode(encoded).decode()
    except ValueError:
        raise Unauthorized() from None
    if token and not others:
        raise Unauthorized()
    return token, ",".join(others)


def in_process_peer(user: str, groups: tuple[str, ...]) -> Peer:
    """Return the peer of an in-process connection, which acts as this user."""
    return authenticated_peer(UserInfo(user, groups=with_authenticated_group(user, groups)))


def authenticated_peer(user: UserInfo, address: str = "127.0.0.1", remote: str = "") -> Peer:
    """Return the peer of an in-process connection for a user that was authenticated already. `address` and `remote` are
    those of the connection whose requests are passed on, if there is one."""
    return Peer(address, attributes={_IN_PROCESS_USER: user}, remote=remote)


class InProcessAuthenticator:
    """Authenticates in-process components by an attribute of their peer.

    Requests from the network cannot have it: the server creates the peer of each connection and never sets this
    attribute.
    """

    def authenticate(self, request: Request) -> UserInfo | None:
        user = request.peer.attributes.get(_IN_PROCESS_USER)
        return user if isinstance(user, UserInfo) else None
