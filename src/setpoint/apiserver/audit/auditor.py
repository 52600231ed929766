"""Opens a record for every request that the policy speaks of, and hands on what the records tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from setpoint.apiserver.audit.event import AuditEvent
from setpoint.apiserver.audit.policy import LEVELS, Policy
from setpoint.apiserver.audit.record import Record
from setpoint.apiserver.call import Call
from setpoint.apiserver.filters.authorize import access_of
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import InternalError
from setpoint.meta.exposition import Family, counter


class Sink(Protocol):
    """Where events go."""

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        """False: it failed, and whoever insists on the log being complete must not go on. Never raises."""
        ...


class Auditor:
    def __init__(self, policy: Policy, sink: Sink, clock: Clock, ids: Ids) -> None:
        self._policy = policy
        self._sink = sink
        self._clock, self._ids = clock, ids
        self._levels = [0] * len(LEVELS)
        self._events = 0
        self._rejected = 0

    async def received(self, call: Call, user: UserInfo) -> Record | None:
        """At the coming in of a request whose sender is known; None: nothing is told of it. Raises InternalError where
        that it came in could not be told, and may not go on untold."""
        record = self._open(call, user)
        if record is not None and not await record.received():
            self._rejected += 1
            raise InternalError.of("failed to store audit event")
        return record

    def unauthenticated(self, call: Call) -> Record | None:
        """The same for one whose sender is not known and whom nobody is going to serve."""
        record = self._open(call, _NOBODY)
        if record is not None:
            record.failed_authentication()
        return record

    def _open(self, call: Call, user: UserInfo) -> Record | None:
        call.user = user
        access = access_of(call)
        applied = self._policy.applied(access)
        self._levels[applied.level if applied is not None else 0] += 1
        call.audit_id = call.request.headers.get("audit-id") or self._ids.uid()
        return Record(call, access, applied, self._clock, self._send) if applied is not None else None

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


_NOBODY = UserInfo()
