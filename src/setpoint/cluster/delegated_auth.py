"""Delegated authentication and authorization: a component asks the cluster's API server who a client is and what it may
do, with TokenReviews and SubjectAccessReviews.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from setpoint.apiserver.authentication.client_certificates import CertificateAuthenticator
from setpoint.apiserver.filters.authenticate import ANONYMOUS, parse_bearer
from setpoint.apiserver.filters.authorize import Access, forbidden
from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.caching import TtlCache
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Unauthorized
from setpoint.wire.message import Request

_TOKEN_REVIEWS = builtin("tokenreviews", "authentication.k8s.io")
_ACCESS_REVIEWS = builtin("subjectaccessreviews", "authorization.k8s.io")
_CACHE_SECONDS = 10.0
_CACHE_SIZE = 1024


class DelegatedAuth:
    """Asks the API server, and caches its answers for ten seconds, as upstream does by default."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._certificates = CertificateAuthenticator(clock)
        self._users: TtlCache[bytes, UserInfo] = TtlCache(_CACHE_SIZE, clock)
        self._answers: TtlCache[tuple[object, ...], bool] = TtlCache(_CACHE_SIZE, clock)

    async def authenticate(self, request: Request) -> UserInfo:
        """Return the user of a client certificate that TLS has verified, or of a token. Raises Unauthorized, and errors
        of the API server."""
        user = self._certificates.authenticate(request)
        if user is not None:
            return user
        token, _ = parse_bearer(request.headers.get("authorization", ""))
        if not token:
            return ANONYMOUS
        key = sha256(token.encode("utf-8", "surrogateescape")).digest()
        found = self._users.get(key)
        if found is None:
            found = await self._review_token(token)
            self._users.put(key, found, _CACHE_SECONDS)
        return found

    async def is_allowed(self, user: UserInfo, attributes: dict[str, Any]) -> bool:
        """Return whether the API server allows the access. `attributes` are those of a SubjectAccessReview."""
        key = (user.name, user.groups, str(attributes))
        allowed = self._answers.get(key)
        if allowed is None:
            allowed = await self._review_access(user, attributes)
            self._answers.put(key, allowed, _CACHE_SECONDS)
        return allowed

    async def check_path(self, user: UserInfo, request: Request) -> None:
        """Raises Forbidden."""
        verb = request.method.lower()
        if not await self.is_allowed(user, {"nonResourceAttributes": {"path": request.path, "verb": verb}}):
            raise forbidden(Access(user, verb, path=request.path))

    async def _review_token(self, token: str) -> UserInfo:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self._client.create(review, resource=_TOKEN_REVIEWS)).get("status") or {}
        if not status.get("authenticated"):
            raise Unauthorized()
        user = status.get("user") or {}
        extra = {name: tuple(values) for name, values in (user.get("extra") or {}).items()}
        return UserInfo(user.get("username", ""), user.get("uid", ""), tuple(user.get("groups") or ()), extra)

    async def _review_access(self, user: UserInfo, attributes: dict[str, Any]) -> bool:
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra.items()},
            **attributes,
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await self._client.create(review, resource=_ACCESS_REVIEWS)
        return bool((answer.get("status") or {}).get("allowed"))
