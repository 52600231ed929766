"""Who asks a component that is no API server, and whether they may: the cluster's API server is asked in turn."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from setpoint.apiserver.authentication.client_certificates import CertificateAuthenticator
from setpoint.apiserver.filters.authenticate import ANONYMOUS, parse_bearer
from setpoint.apiserver.filters.authorize import Access, forbidden
from setpoint.apiserver.http.message import Request
from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Unauthorized
from setpoint.meta.ttl_cache import TtlCache

TOKEN_REVIEWS = builtin("tokenreviews", "authentication.k8s.io")
ACCESS_REVIEWS = builtin("subjectaccessreviews", "authorization.k8s.io")
_KEPT_FOR = 10.0
_REMEMBERED = 1024


class DelegatedAccess:
    """Answers are kept for ten seconds, as upstream does by default."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._certificates = CertificateAuthenticator(clock)
        self._users: TtlCache[bytes, UserInfo] = TtlCache(_REMEMBERED, clock)
        self._answers: TtlCache[tuple[object, ...], bool] = TtlCache(_REMEMBERED, clock)

    async def who(self, request: Request) -> UserInfo:
        """By a certificate that the TLS layer found good, or by a token. Raises Unauthorized, and what the API server
        answers."""
        user = self._certificates.authenticate(request)
        if user is not None:
            return user
        token, _ = parse_bearer(request.headers.get("authorization", ""))
        if not token:
            return ANONYMOUS
        key = sha256(token.encode("utf-8", "surrogateescape")).digest()
        found = self._users.get(key)
        if found is None:
            found = await self._review(token)
            self._users.keep(key, found, _KEPT_FOR)
        return found

    async def may(self, user: UserInfo, attributes: dict[str, Any]) -> bool:
        """`attributes` are those of a SubjectAccessReview."""
        key = (user.name, user.groups, str(attributes))
        allowed = self._answers.get(key)
        if allowed is None:
            allowed = await self._ask(user, attributes)
            self._answers.keep(key, allowed, _KEPT_FOR)
        return allowed

    async def check_path(self, user: UserInfo, request: Request) -> None:
        """Raises Forbidden."""
        verb = request.method.lower()
        if not await self.may(user, {"nonResourceAttributes": {"path": request.path, "verb": verb}}):
            raise forbidden(Access(user, verb, path=request.path))

    async def _review(self, token: str) -> UserInfo:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self._client.create(review, resource=TOKEN_REVIEWS)).get("status") or {}
        if not status.get("authenticated"):
            raise Unauthorized()
        user = status.get("user") or {}
        extra = {name: tuple(values) for name, values in (user.get("extra") or {}).items()}
        return UserInfo(user.get("username", ""), user.get("uid", ""), tuple(user.get("groups") or ()), extra)

    async def _ask(self, user: UserInfo, attributes: dict[str, Any]) -> bool:
        spec = {
            "user": user.name, "uid": user.uid, "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra.items()}, **attributes,
        }  # fmt: skip
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await self._client.create(review, resource=ACCESS_REVIEWS)
        return bool((answer.get("status") or {}).get("allowed"))
