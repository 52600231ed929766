"""Disturbs requests on purpose: users inject delays and refusals to see how clients cope with them."""

from __future__ import annotations

from setpoint.apiserver.request_context import RequestContext
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import TooManyRequests

_SPARED = ("/setpoint/", "/healthz", "/livez", "/readyz", "/metrics")
"""Prefixes of paths that are never disturbed, so that a user can look at the cluster and end the disturbance."""


class Disturbance:
    """Delays and refuses requests. It applies to all clients, also to those in the server's process."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self.delay = 0.0
        """Seconds that each request waits."""
        self.refused_percent = 0
        """The percentage of requests that are refused with 429; requests for Leases never are."""
        self._clock = clock
        self._ids = ids

    @property
    def is_active(self) -> bool:
        return bool(self.delay or self.refused_percent)

    async def apply(self, ctx: RequestContext) -> None:
        """Delay a request. Raises TooManyRequests if it is refused."""
        if ctx.target.path.startswith(_SPARED):
            return
        if self.delay:
            await self._clock.sleep(self.delay)
        if self.refused_percent and ctx.target.resource != "leases" and self._ids.below(100) < self.refused_percent:
            raise TooManyRequests.of("the server refuses requests because of an injected fault", 1)
