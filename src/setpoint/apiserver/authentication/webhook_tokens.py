"""Tokens that a webhook authenticates: it is sent a TokenReview, and its answers are cached."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from hashlib import sha256
from typing import Any

from setpoint.apiserver.filters.authenticate import TokenRefused, Verified, with_authenticated_group
from setpoint.apiserver.kubeconfig_webhooks import ReviewWebhook
from setpoint.apiserver.single_flight import SingleFlight
from setpoint.apiserver.webhook_client import WebhookError
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.caching import TtlCache
from setpoint.meta.clock import Clock

log = logging.getLogger("setpoint.apiserver")

_MAX_CACHED_TOKENS = 4096
_Key = tuple[bytes, tuple[str, ...]]


class WebhookTokens:
    """Authenticates tokens with a webhook."""

    def __init__(
        self, webhook: ReviewWebhook, version: str, audiences: Sequence[str], ttl: float, clock: Clock
    ) -> None:
        """`version` is that of the TokenReview, `v1` or `v1beta1`. `audiences` are the audiences of a token whose
        review names none. `ttl` is the time in seconds for which answers are cached."""
        self._webhook = webhook
        self._api_version = f"authentication.k8s.io/{version}"
        self._audiences = tuple(audiences)
        self._ttl = ttl
        self._cache: TtlCache[_Key, tuple[Verified | None]] = TtlCache(_MAX_CACHED_TOKENS, clock)
        """Answers by hash of the token and audiences; None in the tuple means that the token is unknown."""
        self._flights: SingleFlight[_Key, Verified | None] = SingleFlight()

    def verify(self, token: str, audiences: Sequence[str]) -> Verified | Awaitable[Verified | None] | None:
        # The cache holds hashes, so that no tokens can be read from memory.
        key = (sha256(token.encode("utf-8", "surrogateescape")).digest(), tuple(audiences))
        cached = self._cache.get(key)
        if cached is not None:
            return cached[0]
        return self._flights.run(key, lambda: self._ask(key, token, audiences))

    async def _ask(self, key: _Key, token: str, audiences: Sequence[str]) -> Verified | None:
        spec: dict[str, Any] = {"token": token}
        if audiences:
            spec["audiences"] = list(audiences)
        try:
            status = await self._webhook.request_status(self._api_version, "TokenReview", spec)
        except WebhookError as problem:
            log.error("Failed to make webhook authenticator request: %s", problem)
            raise TokenRefused(str(problem)) from None
        verified = self._verified(status, audiences)
        if self._ttl > 0:
            self._cache.put(key, (verified,), self._ttl)
        return verified

    def _verified(self, status: dict[str, Any], audiences: Sequence[str]) -> Verified | None:
        """Return the authenticated user, or None if the token is unknown. Raises TokenRefused if the webhook reports an
        error, which is not cached."""
        valid_for = _texts(status.get("audiences")) or self._audiences
        matching = tuple(audience for audience in audiences if audience in valid_for)
        if audiences and not matching:
            return None
        if status.get("authenticated") is not True:
            error = status.get("error")
            if error:
                raise TokenRefused(str(error))
            return None
        user = status.get("user")
        if not isinstance(user, dict):
            user = {}
        name, extra = str(user.get("username") or ""), user.get("extra")
        return Verified(
            UserInfo(
                name,
                str(user.get("uid") or ""),
                with_authenticated_group(name, _texts(user.get("groups"))),
                {str(key): tuple(_texts(values)) for key, values in (extra or {}).items()}
                if isinstance(extra, dict)
                else {},
            ),
            matching,
        )


def _texts(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []
