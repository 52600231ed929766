"""Batch mode: nobody waits for the log. Events gather in a bounded buffer, and go on in batches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from setpoint.apiserver.audit.auditor import Sink
from setpoint.apiserver.audit.event import AuditEvent
from setpoint.apiserver.audit.sinks import Failures
from setpoint.meta.clock import Clock
from setpoint.meta.token_bucket import TokenBucket

_AT_ONCE = 50
"""Batches under way at the same time, where they need not be one after the other."""
_IN_A_TURN = 64


@dataclass(frozen=True, slots=True)
class BatchOptions:
    buffer_size: int = 10_000
    max_size: int = 1
    max_wait: float = 0.0
    throttle: bool = False
    qps: float = 10.0
    burst: int = 15
    concurrent: bool = False
    """Whether batches may overtake each other."""


class Buffered:
    """Takes events from its making on; `run` passes them on until it is cancelled, and then all that are left."""

    def __init__(self, delegate: Sink, options: BatchOptions, clock: Clock, failures: Failures) -> None:
        self._delegate = delegate
        self._options = options
        self._clock = clock
        self._failures = failures
        self._buffer: deque[AuditEvent] = deque()
        self._news, self._full = asyncio.Event(), asyncio.Event()
        """There is something to pass on; there is a whole batch."""
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
            self._news.set()
            if len(self._buffer) >= self._options.max_size:
                self._full.set()
        return True

    async def run(self) -> None:
        async with asyncio.TaskGroup() as sending:
            places = asyncio.Semaphore(_AT_ONCE)
            try:
                while True:
                    await self._gather()
                    for turn in range(_IN_A_TURN):
                        if not self._due(first=turn == 0):
                            break
                        await self._throttle()
                        batch = self._take()
                        if self._options.concurrent:
                            await places.acquire()
                            sending.create_task(self._send(batch, places))
                        else:
                            await self._delegate.process(batch)
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                # What came in before the end is passed on; the group waits for those that are under way.
                await self.finish()

    async def finish(self) -> None:
        """Takes no more, and passes on what is left."""
        self._stopped = True
        while self._buffer:
            await self._delegate.process(self._take())

    async def _gather(self) -> None:
        """Until there is a whole batch, or a part of one has waited long enough."""
        await self._news.wait()
        options = self._options
        if options.max_size > 1 and len(self._buffer) < options.max_size:
            with suppress(TimeoutError):
                async with asyncio.timeout(options.max_wait):
                    await self._full.wait()

    def _due(self, first: bool) -> bool:
        """Whether a batch goes now; all after the first of a turn must be whole."""
        return bool(self._buffer) and (first or len(self._buffer) >= self._options.max_size)

    def _take(self) -> list[AuditEvent]:
        batch = [*islice(self._buffer, self._options.max_size)]
        for _ in batch:
            self._buffer.popleft()
        if len(self._buffer) < self._options.max_size:
            self._full.clear()
            if not self._buffer:
                self._news.clear()
        return batch

    async def _send(self, batch: list[AuditEvent], places: asyncio.Semaphore) -> None:
        try:
            await self._delegate.process(batch)
        finally:
            places.release()

    async def _throttle(self) -> None:
        wait = self._bucket.take() if self._bucket is not None else 0.0
        if wait > 0:
            await self._clock.sleep(wait)
