"""Records Events of `events.k8s.io`, where one object represents a series of repeated Events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from setpoint.client import Writer
from setpoint.client.current_run import current_run
from setpoint.client.run import Run
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, NotFound
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_micro
from setpoint.reconcile.events import NORMAL, WARNING, EventNames, EventWriteQueue, event_log, log_event, reference

_EVENTS = ("events.k8s.io/v1", "Event")
_MAX_NOTE_LENGTH = 1024
_SERIES_TIMEOUT = 360.0
"""Seconds without a repetition after which a series is over."""
_REFRESH_EVERY = 1800.0
_MAX_SERIES = 4096


@dataclass(slots=True)
class _Series:
    event: Obj
    at: float
    count: int = 1
    last: str = ""
    reported: int = 1
    """The count that was last written."""


class SeriesRecorder:
    """Records Events of `events.k8s.io` without blocking and without raising, as EventRecorder does.

    The second occurrence of an Event is written at once, as the start of a series. Later occurrences are written when
    the series is over, and every half hour.
    """

    def __init__(self, writer: Writer, clock: Clock, controller: str, instance: str) -> None:
        self._writer = writer
        self._clock = clock
        self._controller = controller
        self._instance = instance
        self.write_queue = EventWriteQueue(controller, clock)
        self._names = EventNames()
        self._log = event_log(controller)
        self._series: dict[tuple[object, ...], _Series] = {}

    def normal(
        self,
        about: Mapping[str, Any],
        reason: str,
        message: str,
        *,
        action: str,
        related: Mapping[str, Any] | None = None,
    ) -> None:
        self._record(about, NORMAL, reason, message, action, related)

    def warning(
        self,
        about: Mapping[str, Any],
        reason: str,
        message: str,
        *,
        action: str,
        related: Mapping[str, Any] | None = None,
    ) -> None:
        self._record(about, WARNING, reason, message, action, related)

    def _record(
        self,
        about: Mapping[str, Any],
        kind: str,
        reason: str,
        message: str,
        action: str,
        related: Mapping[str, Any] | None,
    ) -> None:
        now = self._clock.now()
        stamp = format_micro(now)
        log_event(self._log, about, kind, reason, message)
        regarding = reference(about)
        other = reference(related) if related is not None else {}
        key = (kind, action, reason, tuple(regarding.items()), tuple(other.items()))
        series = self._series.get(key)
        if series is not None:
            series.count, series.last, series.at = series.count + 1, stamp, self._clock.monotonic()
            if series.count == 2:
                self._put(series)
            return
        event: Obj = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": self._names.next(regarding["name"], int(now.timestamp() * 1e6) * 1000),
                "namespace": regarding.get("namespace") or "default",
            },
            "eventTime": stamp,
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": action,
            "reason": reason,
            "regarding": regarding,
            "note": message[:_MAX_NOTE_LENGTH],
            "type": kind,
        }
        if other:
            event["related"] = other
        if len(self._series) >= _MAX_SERIES:
            del self._series[next(iter(self._series))]
        self._series[key] = _Series(event, self._clock.monotonic())
        self._put(self._series[key])

    def _put(self, series: _Series) -> None:
        async def write() -> None:
            await self._write(series)

        self.write_queue.put(series.event["metadata"]["name"], write)

    async def run(self) -> None:
        """Write queued Events and refresh the series until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.write_queue.run())
            tasks.create_task(self._refresh())

    async def _refresh(self) -> None:
        refreshed = self._clock.monotonic()
        current_run.set(Run(self._controller, "events", 0, "", besides=f"timer:{_SERIES_TIMEOUT:g}"))
        while True:
            await self._clock.sleep(_SERIES_TIMEOUT)
            now = self._clock.monotonic()
            refresh = now - refreshed >= _REFRESH_EVERY
            refreshed = now if refresh else refreshed
            for key, series in list(self._series.items()):
                over = now - series.at >= _SERIES_TIMEOUT
                if over:
                    del self._series[key]
                if (over or refresh) and series.reported < series.count:
                    self._put(series)

    async def _write(self, series: _Series) -> None:
        event, count = series.event, series.count
        meta = event["metadata"]
        if count > 1:
            current = {"count": count, "lastObservedTime": series.last}
            series.reported = count
            with suppress(NotFound):
                await self._writer.patch(_EVENTS, meta["name"], {"series": current}, meta["namespace"])
                return
            event = {**event, "series": current}
        with suppress(AlreadyExists):
            await self._writer.create(event)
