"""Tokens that somebody else knows: a webhook is asked with a TokenReview, and its answers are kept for a while."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from hashlib import sha256
from typing import Any

from setpoint.apiserver.filters.authenticate import TokenRefused, Verified, with_everybody
from setpoint.apiserver.review_webhook import ReviewWebhook
from setpoint.apiserver.single_flight import SingleFlight
from setpoint.apiserver.webhook_client import WebhookProblem
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.ttl_cache import TtlCache

log = logging.getLogger("setpoint.apiserver")

_REMEMBERED = 4096
_Key = tuple[bytes, tuple[str, ...]]


class WebhookTokens:
    def __init__(
        self, webhook: ReviewWebhook, version: str, audiences: Sequence[str], kept_for: float, clock: Clock
    ) -> None:
        """`version`: of the TokenReview, `v1` or `v1beta1`. `audiences`: what a token is good for whose review does
        not say it."""
        self._webhook = webhook
        self._api_version = f"authentication.k8s.io/{version}"
        self._audiences = tuple(audiences)
        self._kept_for = kept_for
        self._known: TtlCache[_Key, tuple[Verified | None]] = TtlCache(_REMEMBERED, clock)
        """That a token is nobody's is an answer too."""
        self._flights: SingleFlight[_Key, Verified | None] = SingleFlight()

    def verify(self, token: str, audiences: Sequence[str]) -> Verified | Awaitable[Verified | None] | None:
        # Tokens are not kept: who could read the memory should not find them here.
        key = (sha256(token.encode("utf-8", "surrogateescape")).digest(), tuple(audiences))
        known = self._known.get(key)
        if known is not None:
            return known[0]
        return self._flights.run(key, lambda: self._ask(key, token, audiences))

    async def _ask(self, key: _Key, token: str, audiences: Sequence[str]) -> Verified | None:
        spec: dict[str, Any] = {"token": token}
        if audiences:
            spec["audiences"] = list(audiences)
        try:
            status = await self._webhook.ask(self._api_version, "TokenReview", spec)
        except WebhookProblem as problem:
            log.error("Failed to make webhook authenticator request: %s", problem)
            raise TokenRefused(str(problem)) from None
        verified = self._verified(status, audiences)
        if self._kept_for > 0:
            self._known.keep(key, (verified,), self._kept_for)
        return verified

    def _verified(self, status: dict[str, Any], audiences: Sequence[str]) -> Verified | None:
        """Raises TokenRefused: the webhook says why, which is not kept."""
        good_for = _texts(status.get("audiences")) or self._audiences
        fitting = tuple(audience for audience in audiences if audience in good_for)
        if audiences and not fitting:
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
                with_everybody(name, _texts(user.get("groups"))),
                {str(key): tuple(_texts(values)) for key, values in (extra or {}).items()}
                if isinstance(extra, dict)
                else {},
            ),
            fitting,
        )


def _texts(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []
