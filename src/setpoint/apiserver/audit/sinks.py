"""What lies between a record and the outside: writing lines, cutting what is too long, not minding failures."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from setpoint.apiserver.audit.auditor import Sink
from setpoint.apiserver.audit.event import AuditEvent
from setpoint.meta.exposition import Family, counter
from setpoint.meta.goformat import aggregate

log = logging.getLogger("setpoint.apiserver")

_MOST_SHOWN = 20


class Failures:
    """Events that did not get where they should, counted by the part that lost them, and told in the server's own
    log without their objects."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, part: str, why: str, events: Sequence[AuditEvent]) -> None:
        self._counts[part] = self._counts.get(part, 0) + len(events)
        shown = "\n".join(event.text for event in events[:_MOST_SHOWN])
        log.error(
            "Error in audit plugin '%s' affecting %d audit events: %s\nImpacted events:\n%s",
            part, len(events), why, shown,
        )  # fmt: skip

    def families(self) -> Iterable[Family]:
        yield counter(
            "apiserver_audit_error_total",
            "Counter of audit events that failed to be audited properly. "
            "Plugin identifies the plugin affected by the error.",
            [({"plugin": part}, count) for part, count in sorted(self._counts.items())],
        )


class Lines(Protocol):
    def write(self, data: bytes) -> None:
        """One or several whole lines. Raises OSError."""
        ...


class LogSink:
    """Each event is a line. It is with the kernel when `process` returns."""

    def __init__(self, out: Lines, legacy: bool, failures: Failures) -> None:
        self._out = out
        self._legacy = legacy
        self._failures = failures

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        success = True
        for event in events:
            try:
                self._out.write(event.text.encode() + b"\n" if self._legacy else event.line)
            except OSError as error:
                self._failures.add("log", str(error), [event])
                success = False
        return success


class IgnoringFailures:
    """Requests go on whatever becomes of the log."""

    def __init__(self, delegate: Sink) -> None:
        self._delegate = delegate

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        await self._delegate.process(events)
        return True


class Truncating:
    """An event that is too large goes without its objects, and not at all if that does not help. Batches are split."""

    def __init__(self, delegate: Sink, most_of_event: int, most_of_batch: int, failures: Failures) -> None:
        self._delegate = delegate
        self._most_of_event, self._most_of_batch = most_of_event, most_of_batch
        self._failures = failures

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        batch: list[AuditEvent] = []
        lost: list[AuditEvent] = []
        total, success = 0, True
        for event in events:
            if event.size > self._most_of_event and event.has_objects:
                event = event.truncated()
            if event.size > self._most_of_event:
                lost.append(event)
                continue
            if batch and total + event.size > self._most_of_batch:
                success = await self._delegate.process(batch) and success
                batch, total = [], 0
            batch.append(event)
            total += event.size
        if batch:
            success = await self._delegate.process(batch) and success
        if lost:
            self._failures.add("truncate", aggregate(["event is too large even after truncating"] * len(lost)), lost)
        return success


class Both:
    """Two backends at once: each gets everything."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        success = True
        for sink in self._sinks:
            success = await sink.process(events) and success
        return success
