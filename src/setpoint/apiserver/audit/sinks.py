"""Sinks of audit events: log lines, webhooks, batches, truncation, fan-out, and memory for in-process tests."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import orjson

from setpoint.apiserver.audit.auditor import Sink
from setpoint.apiserver.audit.event import AuditEvent, event_list
from setpoint.apiserver.kubeconfig_webhooks import backoff_delays
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.exposition import Family, counter
from setpoint.meta.goformat import aggregate
from setpoint.meta.token_bucket import TokenBucket

log = logging.getLogger("setpoint.apiserver")

_MAX_LOGGED_EVENTS = 20
_MAX_CONCURRENT_BATCHES = 50
"""Number of batches that are sent concurrently, if they need no order."""
_MAX_BATCHES_PER_ITERATION = 64
_MAX_EVENTS = 100_000


class AuditErrors:
    """Counts events that could not be written, by plugin, and logs them without their objects."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, plugin: str, why: str, events: Sequence[AuditEvent]) -> None:
        self._counts[plugin] = self._counts.get(plugin, 0) + len(events)
        shown = "\n".join(event.text for event in events[:_MAX_LOGGED_EVENTS])
        log.error(
            "Error in audit plugin '%s' affecting %d audit events: %s\nImpacted events:\n%s",
            plugin,
            len(events),
            why,
            shown,
        )

    def families(self) -> Iterable[Family]:
        yield counter(
            "apiserver_audit_error_total",
            "Counter of audit events that failed to be audited properly. "
            "Plugin identifies the plugin affected by the error.",
            [({"plugin": plugin}, count) for plugin, count in sorted(self._counts.items())],
        )


class LineWriter(Protocol):
    def write(self, data: bytes) -> None:
        """Write one or several complete lines. Raises OSError."""
        ...


class LogSink:
    """Writes each event as a line, which is in the kernel when `process` returns."""

    def __init__(self, out: LineWriter, legacy: bool, failures: AuditErrors) -> None:
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


class IgnoreErrorsSink:
    """Reports success even if the delegate fails, so that requests proceed."""

    def __init__(self, delegate: Sink) -> None:
        self._delegate = delegate

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        await self._delegate.process(events)
        return True


class TruncatingSink:
    """Removes the objects of events that are too large, drops events that are still too large, and splits batches."""

    def __init__(self, delegate: Sink, max_event_size: int, max_batch_size: int, failures: AuditErrors) -> None:
        self._delegate = delegate
        self._max_event_size, self._max_batch_size = max_event_size, max_batch_size
        self._failures = failures

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        batch: list[AuditEvent] = []
        oversized: list[AuditEvent] = []
        total, success = 0, True
        for event in events:
            if event.size > self._max_event_size and event.has_objects:
                event = event.truncated()
            if event.size > self._max_event_size:
                oversized.append(event)
                continue
            if batch and total + event.size > self._max_batch_size:
                success = await self._delegate.process(batch) and success
                batch, total = [], 0
            batch.append(event)
            total += event.size
        if batch:
            success = await self._delegate.process(batch) and success
        if oversized:
            self._failures.add(
                "truncate", aggregate(["event is too large even after truncating"] * len(oversized)), oversized
            )
        return success


class UnionSink:
    """Sends every event to several sinks."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        success = True
        for sink in self._sinks:
            success = await sink.process(events) and success
        return success


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """The options of batch mode; times are in seconds."""

    buffer_size: int = 10_000
    max_size: int = 1
    max_wait: float = 0.0
    throttle: bool = False
    qps: float = 10.0
    burst: int = 15
    concurrent: bool = False
    """Whether batches may be sent concurrently, and so out of order."""


class BufferedSink:
    """Buffers events and sends them in batches, so that requests do not wait. `run` sends until it is cancelled, and
    then sends the rest."""

    def __init__(self, delegate: Sink, options: BatchOptions, clock: Clock, failures: AuditErrors) -> None:
        self._delegate = delegate
        self._options = options
        self._clock = clock
        self._failures = failures
        self._buffer: deque[AuditEvent] = deque()
        self._available, self._full = asyncio.Event(), asyncio.Event()
        """`_available` is set while the buffer is not empty, `_full` while it holds a complete batch."""
        self._stopped = False
        self._bucket = TokenBucket(clock, options.qps, options.burst) if options.throttle else None

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        for at, event in enumerate(events):
            if self._stopped or len(self._buffer) >= self._options.buffer_size:
                why = "audit backend shut down" if self._stopped else "audit buffer queue blocked"
                self._failures.add("buffered", why, events[at:])
                break
            self._buffer.append(event)
        if self._buffer:
            self._available.set()
            if len(self._buffer) >= self._options.max_size:
                self._full.set()
        return True

    async def run(self) -> None:
        async with asyncio.TaskGroup() as sending:
            semaphore = asyncio.Semaphore(_MAX_CONCURRENT_BATCHES)
            try:
                while True:
                    await self._gather()
                    for batch_number in range(_MAX_BATCHES_PER_ITERATION):
                        if not self._due(first=batch_number == 0):
                            break
                        await self._throttle()
                        batch = self._next_batch()
                        if self._options.concurrent:
                            await semaphore.acquire()
                            sending.create_task(self._send(batch, semaphore))
                        else:
                            await self._delegate.process(batch)
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                # Send what was buffered before the end; the group waits for batches in progress.
                await self.finish()

    async def finish(self) -> None:
        """Accept no more events and send the buffered ones."""
        self._stopped = True
        while self._buffer:
            await self._delegate.process(self._next_batch())

    async def _gather(self) -> None:
        """Wait for a complete batch, or for `max_wait` seconds after the first event."""
        await self._available.wait()
        options = self._options
        if options.max_size > 1 and len(self._buffer) < options.max_size:
            with suppress(TimeoutError):
                async with asyncio.timeout(options.max_wait):
                    await self._full.wait()

    def _due(self, first: bool) -> bool:
        """Return whether to send a batch now; all batches after the first of an iteration must be complete."""
        return bool(self._buffer) and (first or len(self._buffer) >= self._options.max_size)

    def _next_batch(self) -> list[AuditEvent]:
        batch = [*islice(self._buffer, self._options.max_size)]
        for _ in batch:
            self._buffer.popleft()
        if len(self._buffer) < self._options.max_size:
            self._full.clear()
            if not self._buffer:
                self._available.clear()
        return batch

    async def _send(self, batch: list[AuditEvent], semaphore: asyncio.Semaphore) -> None:
        try:
            await self._delegate.process(batch)
        finally:
            semaphore.release()

    async def _throttle(self) -> None:
        wait = self._bucket.take() if self._bucket is not None else 0.0
        if wait > 0:
            await self._clock.sleep(wait)


Post = Callable[[bytes], Awaitable[None]]
"""Sends a body. Raises PostFailed."""


class PostFailed(Exception):
    """The webhook did not accept the events; the message says why."""


class WebhookSink:
    """Sends events to a webhook as EventLists, and retries any failure with exponential backoff."""

    def __init__(self, post: Post, initial_backoff: float, clock: Clock, ids: Ids, failures: AuditErrors) -> None:
        self._post = post
        self._initial_backoff = initial_backoff
        self._clock, self._ids = clock, ids
        self._failures = failures

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        body = event_list(list(events))
        for pause in (*backoff_delays(self._initial_backoff, self._ids), None):
            try:
                await self._post(body)
                return True
            except PostFailed as error:
                why = str(error)
            if pause is not None:
                await self._clock.sleep(pause)
        self._failures.add("webhook", why, events)
        return False


class MemorySink:
    """Retains the newest events."""

    def __init__(self) -> None:
        self._events: deque[AuditEvent] = deque(maxlen=_MAX_EVENTS)

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        self._events.extend(events)
        return True

    def events(self) -> list[dict[str, Any]]:
        """Return the retained events, oldest first."""
        return [orjson.loads(event.line) for event in self._events]
