"""Bootstrap tokens: how a new node authenticates before it has a certificate."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from hmac import compare_digest

from setpoint.apiserver.filters.authenticate import (
    AudienceAgnostic,
    Verified,
    with_authenticated_group,
)
from setpoint.apiserver.tokens import Lookup
from setpoint.kinds.core.secret import (
    NAMESPACE,
    PREFIX,
    TOKEN,
    TYPE,
    groups,
    seconds_until_expiry,
    text_value,
)
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.objects import ObjView

log = logging.getLogger("setpoint.apiserver")


class BootstrapTokens(AudienceAgnostic):
    """Authenticates bootstrap tokens. The Secret is read each time: a deleted token is invalid at once."""

    def __init__(self, lookup: Lookup, clock: Clock) -> None:
        super().__init__()
        self._lookup = lookup
        self._clock = clock

    def verify(self, token: str, audiences: Sequence[str]) -> Verified | None:
        parts = TOKEN.fullmatch(token)
        fitting = self.matching_audiences(audiences) if parts is not None else None
        if parts is None or fitting is None:
            return None
        entry = self._lookup("secrets", NAMESPACE, PREFIX + parts[1])
        if entry is None:
            return None
        problem = self._problem(entry.obj, parts[1], parts[2])
        named = groups(entry.obj)
        if problem or named is None:
            why = problem or "has invalid value for key auth-extra-groups"
            log.debug("Bootstrap secret %s/%s%s matching bearer token %s", NAMESPACE, PREFIX, parts[1], why)
            return None
        name = f"system:bootstrap:{parts[1]}"
        return Verified(UserInfo(name, groups=with_authenticated_group(name, named)), fitting)

    def _problem(self, secret: ObjView, token: str, key: str) -> str:
        """Return what is wrong with the token, or "" if it is valid."""
        if "deletionTimestamp" in secret["metadata"]:
            return "is deleted and awaiting removal"
        if secret.get("type") != TYPE or not secret.get("data"):
            return f"has invalid type, expected {TYPE}"
        if not compare_digest(text_value(secret, "token-secret").encode(), key.encode()):
            return "has invalid value for key token-secret"
        if text_value(secret, "token-id") != token:
            return "has invalid value for key token-id"
        if seconds_until_expiry(secret, self._clock.now()) == 0.0:
            return "has expired"
        usage = "usage-bootstrap-authentication"
        return "" if text_value(secret, usage) == "true" else f"not marked {usage}=true"
