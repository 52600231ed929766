"""Creates an audit record for every request that the policy covers, and sends its events to the sink."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from setpoint.apiserver.audit.event import AuditEvent
from setpoint.apiserver.audit.policy import LEVELS, Policy
from setpoint.apiserver.audit.record import Record
from setpoint.apiserver.filters.authorize import access_of
from setpoint.apiserver.request_context import RequestContext
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import InternalError
from setpoint.meta.exposition import Family, counter

_UNKNOWN_USER = UserInfo()


class Sink(Protocol):
    """A destination of audit events."""

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        """Write the events. Return False if that failed; in strict modes the request must then be refused. Never
        raises."""
        ...


class Auditor:
    """Creates the audit records of requests."""

    def __init__(self, policy: Policy, sink: Sink, clock: Clock, ids: Ids) -> None:
        self._policy = policy
        self._sink = sink
        self._clock, self._ids = clock, ids
        self._levels = [0] * len(LEVELS)
        self._events = 0
        self._rejected = 0

    async def received(self, ctx: RequestContext, user: UserInfo) -> Record | None:
        """Create the record of an authenticated request, or return None if the policy does not cover it. Raises
        InternalError if the event could not be written in a strict mode."""
        record = self._create_record(ctx, user)
        if record is not None and not await record.received():
            self._rejected += 1
            raise InternalError.of("failed to store audit event")
        return record

    def unauthenticated(self, ctx: RequestContext) -> Record | None:
        """Create the record of a request that failed authentication."""
        record = self._create_record(ctx, _UNKNOWN_USER)
        if record is not None:
            record.failed_authentication()
        return record

    def _create_record(self, ctx: RequestContext, user: UserInfo) -> Record | None:
        ctx.user = user
        access = access_of(ctx)
        config = self._policy.config_for(access)
        self._levels[config.level if config is not None else 0] += 1
        ctx.audit_id = ctx.request.headers.get("audit-id") or self._ids.uid()
        return Record(ctx, access, config, self._clock, self._send) if config is not None else None

    async def _send(self, event: AuditEvent) -> bool:
        self._events += 1
        return await self._sink.process((event,))

    def families(self) -> Iterable[Family]:
        yield counter(
            "apiserver_audit_event_total",
            "Counter of audit events generated and sent to the audit backend.",
            [({}, self._events)],
        )
        yield counter(
            "apiserver_audit_level_total",
            "Counter of policy levels for audit events (1 per request).",
            [({"level": level}, count) for level, count in zip(LEVELS, self._levels, strict=True) if count],
        )
        yield counter(
            "apiserver_audit_requests_rejected_total",
            "Counter of apiserver requests rejected due to an error in audit logging backend.",
            [({}, self._rejected)],
        )
