"""Service account tokens of Pods: requested once, cached, and renewed before they expire, as the kubelet does."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import parse_time
from setpoint.node.host.volumes.interface import SetUpError
from setpoint.node.projection import token_request

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

TokenRequester = Callable[[str, str, Obj], Awaitable[ObjView]]
"""Creates a TokenRequest for a service account, given its namespace and name; returns the answer or raises ApiError."""

_MAX_AGE = 24 * 3600.0
_RENEWAL = 0.2
"""The share of the lifetime that is left when a token is renewed."""
_MAX_JITTER = 10.0
log = logging.getLogger("setpoint.node")


class _Token(NamedTuple):
    text: str
    renew_at: float
    """Seconds since the epoch from which on the token is to be renewed."""
    expires_at: float


class TokenCache:
    """The tokens of all Pods on the node. They are requested again after a restart of the agent."""

    def __init__(self, request: TokenRequester, clock: Clock) -> None:
        self._request = request
        self._clock = clock
        self._tokens: dict[str, dict[str, _Token]] = {}
        """Tokens by uid of the Pod and by a key that contains all properties of the request."""

    async def token(self, pod: Pod, source: ObjView) -> str:
        """Return a valid token for a source of a projected volume. Raise SetUpError if there is none."""
        meta, account = pod["metadata"], pod["spec"].get("serviceAccountName") or "default"
        request = token_request(pod, source)
        key = _key(meta["namespace"], account, request["spec"])
        known = self._tokens.get(meta["uid"], {}).get(key)
        if known is not None and self._now() < known.renew_at:
            return known.text
        try:
            answer = await self._request(meta["namespace"], account, request)
        except (ApiError, OSError, TimeoutError) as error:
            if known is None:
                raise SetUpError(f"failed to fetch token: {error}") from error
            if self._now() > known.expires_at:
                raise SetUpError(f"token {key} expired and refresh failed: {error}") from error
            log.warning("Couldn't update token %s: %s", key, error)
            return known.text
        token = _parsed(answer, request["spec"]["expirationSeconds"], crc32(f"{meta['uid']}{key}".encode()))
        self._tokens.setdefault(meta["uid"], {})[key] = token
        return token.text

    def next_renewal(self, uid: str) -> float | None:
        """Return when a token of the Pod has to be renewed, in seconds since the epoch; None if it has no token."""
        return min((each.renew_at for each in self._tokens.get(uid, {}).values()), default=None)

    def forget(self, uid: str) -> None:
        self._tokens.pop(uid, None)

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _parsed(answer: ObjView, requested: int, seed: int) -> _Token:
    seconds = (answer.get("spec") or {}).get("expirationSeconds") or requested
    expires_at = parse_time(answer["status"]["expirationTimestamp"]).timestamp()
    jitter = seed % 1000 / 1000 * _MAX_JITTER
    # Tokens that were requested at the same time are renewed at different times.
    renew_at = min(expires_at - seconds * _RENEWAL, expires_at - seconds + _MAX_AGE) - jitter
    return _Token(answer["status"]["token"], renew_at, expires_at)


def _key(namespace: str, account: str, spec: ObjView) -> str:
    """Return a key that contains no secret, in the form in which the kubelet shows it."""
    audiences = ", ".join(quote(each) for each in spec["audiences"])
    bound = spec["boundObjectRef"]
    reference = f'Kind:"Pod", APIVersion:"v1", Name:{quote(bound["name"])}, UID:{quote(bound["uid"])}'
    return (
        f"{quote(account)}/{quote(namespace)}/[]string{f'{{{audiences}}}' if audiences else '(nil)'}"
        f'/{spec["expirationSeconds"]}/v1.BoundObjectReference{{{reference}}}/""'
    )
