"""Who is it? Client certificates, static tokens, and whatever else is put into the chain."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from hmac import compare_digest
from typing import Protocol

from setpoint.apiserver.http.message import Request
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import Unauthorized

AUTHENTICATED = "system:authenticated"
ANONYMOUS = UserInfo("system:anonymous", groups=("system:unauthenticated",))


class Authenticator(Protocol):
    def authenticate(self, request: Request) -> UserInfo | None:
        """The user, or None if this authenticator knows nothing of the request's credentials."""
        ...


def bearer_token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


class CertificateAuthenticator:
    """The common name of a verified client certificate is the user, its organizations are the groups."""

    def authenticate(self, request: Request) -> UserInfo | None:
        peer = request.peer
        if peer.certificate is None:
            return None
        user = peer.attributes.get("user")
        if not isinstance(user, UserInfo):
            user = peer.attributes["user"] = _user_of(peer.certificate)
        return user


def _user_of(der: bytes) -> UserInfo:
    # Here, because the library is slow to load and most servers start before anybody shows a certificate.
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    certificate = x509.load_der_x509_certificate(der)
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    groups = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    if not names:
        raise Unauthorized()
    extra = {"authentication.kubernetes.io/credential-id": (f"X509SHA256={certificate.fingerprint(_sha256()).hex()}",)}
    return UserInfo(str(names[0].value), groups=(*(str(g.value) for g in groups), AUTHENTICATED), extra=extra)


def _sha256() -> object:
    from cryptography.hazmat.primitives.hashes import SHA256

    return SHA256()


class TokenFileAuthenticator:
    """A CSV file: token, user, uid and, optionally, groups in one quoted column."""

    def __init__(self, users: dict[str, UserInfo]) -> None:
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
                groups = tuple(group.strip() for group in row[3].split(",") if group.strip()) if len(row) > 3 else ()
                users[token] = UserInfo(name, uid, (*groups, AUTHENTICATED))
        return cls(users)

    def authenticate(self, request: Request) -> UserInfo | None:
        token = bearer_token(request)
        return self._users.get(token) if token else None


class LoopbackAuthenticator:
    """One token, known to this process alone, for the components that run inside it."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._user = UserInfo("system:apiserver", groups=("system:masters", AUTHENTICATED))

    def authenticate(self, request: Request) -> UserInfo | None:
        token = bearer_token(request)
        return self._user if token and compare_digest(token, self._token) else None


class AuthenticatorChain:
    """The first that knows the user decides. Nobody does: anonymous if allowed and no credentials were shown, else 401."""

    def __init__(self, authenticators: Sequence[Authenticator], anonymous: bool) -> None:
        self._authenticators = tuple(authenticators)
        self._anonymous = anonymous

    def authenticate(self, request: Request) -> UserInfo:
        for authenticator in self._authenticators:
            user = authenticator.authenticate(request)
            if user is not None:
                return user
        if self._anonymous and "authorization" not in request.headers:
            return ANONYMOUS
        raise Unauthorized()
