"""Events of `events.k8s.io`: one object for a series of the same, brought up to date now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from setpoint.client import Writer
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, NotFound
from setpoint.meta.times import format_micro
from setpoint.reconcile.event_writing import EventWriting
from setpoint.reconcile.events import NORMAL, WARNING, EventNames, event_log, reference, tell

Obj = dict[str, Any]

_EVENTS = ("events.k8s.io/v1", "Event")
_LONGEST_NOTE = 1024
_OVER_AFTER = 360.0
"""A series that was silent for so long is over."""
_REFRESH_EVERY = 1800.0
_MOST_SERIES = 4096


@dataclass(slots=True)
class _Series:
    event: Obj
    at: float
    count: int = 1
    last: str = ""
    reported: int = 1
    """The count that was last written."""


class SeriesRecorder:
    """As EventRecorder: recording never waits and never fails. The second of a kind is written too, as the beginning
    of a series; what follows is told when the series is over, or every half hour."""

    def __init__(self, writer: Writer, clock: Clock, controller: str, instance: str) -> None:
        self._writer = writer
        self._clock = clock
        self._controller = controller
        self._instance = instance
        self.writing = EventWriting(controller, clock)
        self._names = EventNames()
        self._log = event_log(controller)
        self._series: dict[tuple[object, ...], _Series] = {}

    def normal(
        self, about: Mapping[str, Any], reason: str, message: str, *, action: str,
        related: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self._record(about, NORMAL, reason, message, action, related)

    def warning(
        self, about: Mapping[str, Any], reason: str, message: str, *, action: str,
        related: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self._record(about, WARNING, reason, message, action, related)

    def _record(
        self, about: Mapping[str, Any], kind: str, reason: str, message: str, action: str,
        related: Mapping[str, Any] | None,
    ) -> None:  # fmt: skip
        now = self._clock.now()
        stamp = format_micro(now)
        tell(self._log, about, kind, reason, message)
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
            "note": message[:_LONGEST_NOTE],
            "type": kind,
        }
        if other:
            event["related"] = other
        if len(self._series) >= _MOST_SERIES:
            del self._series[next(iter(self._series))]
        self._series[key] = _Series(event, self._clock.monotonic())
        self._put(self._series[key])

    def _put(self, series: _Series) -> None:
        async def write() -> None:
            await self._write(series)

        self.writing.put(series.event["metadata"]["name"], write)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.writing.run())
            tasks.create_task(self._tidy())

    async def _tidy(self) -> None:
        refreshed = self._clock.monotonic()
        while True:
            await self._clock.sleep(_OVER_AFTER)
            now = self._clock.monotonic()
            refresh = now - refreshed >= _REFRESH_EVERY
            refreshed = now if refresh else refreshed
            for key, series in list(self._series.items()):
                over = now - series.at >= _OVER_AFTER
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
