"""Events to a server elsewhere, as EventLists. Whatever goes wrong, it is tried again a few times, ever later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from setpoint.apiserver.audit.event import AuditEvent, event_list
from setpoint.apiserver.audit.sinks import Failures
from setpoint.apiserver.webhook_endpoint import pauses
from setpoint.meta.clock import Clock, Ids

Post = Callable[[bytes], Awaitable[None]]
"""Sends a body; raises PostFailed."""


class PostFailed(Exception):
    """The other server did not take it; the text says why."""


class WebhookSink:
    def __init__(self, post: Post, initial_backoff: float, clock: Clock, ids: Ids, failures: Failures) -> None:
        self._post = post
        self._initial_backoff = initial_backoff
        self._clock, self._ids = clock, ids
        self._failures = failures

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        body = event_list(list(events))
        for pause in (*pauses(self._initial_backoff, self._ids), None):
            try:
                await self._post(body)
                return True
            except PostFailed as error:
                why = str(error)
            if pause is not None:
                await self._clock.sleep(pause)
        self._failures.add("webhook", why, events)
        return False
