"""Records Events of `events.k8s.io`, where one object represents a series of repeated Events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

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
_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion")
"""The fields of a reference to an object."""
_NAMESPACE = _FIELDS.index("namespace")


class _Occurrence(NamedTuple):
    """The fields that the Events of a series have in common."""

    kind: str
    action: str
    reason: str
    regarding: tuple[str, ...]
    """The values of `_FIELDS`, empty if there is none."""
    related: tuple[str, ...]
    """The same of another object; empty if there is none."""


@dataclass(slots=True)
class _Series:
    what: _Occurrence
    name: str
    """The name of the Event."""
    since: str
    """The time of the first occurrence."""
    note: str
    at: float
    count: int = 1
    last: str = ""
    reported: int = 1
    """The count that was last written."""

    @property
    def namespace(self) -> str:
        return self.what.regarding[_NAMESPACE] or "default"


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
        self._series: dict[_Occurrence, _Series] = {}

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
        other = _values(related) if related is not None else ()
        what = _Occurrence(kind, action, reason, _values(about), other)
        series = self._series.get(what)
        if series is not None:
            series.count, series.last, series.at = series.count + 1, stamp, self._clock.monotonic()
            if series.count == 2:
                self._put(series)
            return
        name = self._names.next(about["metadata"]["name"], int(now.timestamp() * 1e6) * 1000)
        if len(self._series) >= _MAX_SERIES:
            del self._series[next(iter(self._series))]
        series = _Series(what, name, stamp, message[:_MAX_NOTE_LENGTH], self._clock.monotonic())
        self._series[what] = series
        self._put(series)

    def _event(self, series: _Series) -> Obj:
        """Return the Event as it is created. It is not kept: most Events do not repeat."""
        what = series.what
        event: Obj = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": series.namespace},
            "eventTime": series.since,
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": what.action,
            "reason": what.reason,
            "regarding": _reference(what.regarding),
            "note": series.note,
            "type": what.kind,
        }
        if what.related:
            event["related"] = _reference(what.related)
        return event

    def _put(self, series: _Series) -> None:
        async def write() -> None:
            await self._write(series)

        self.write_queue.put(series.name, write, about=series.what.regarding)

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
            for what, series in list(self._series.items()):
                over = now - series.at >= _SERIES_TIMEOUT
                if over:
                    del self._series[what]
                if (over or refresh) and series.reported < series.count:
                    self._put(series)

    async def _write(self, series: _Series) -> None:
        event, count = self._event(series), series.count
        if count > 1:
            event["series"] = {"count": count, "lastObservedTime": series.last}
            series.reported = count
            with suppress(NotFound):
                await self._writer.patch(_EVENTS, series.name, {"series": event["series"]}, series.namespace)
                return
        with suppress(AlreadyExists):
            await self._writer.create(event)


def _values(about: Mapping[str, Any]) -> tuple[str, ...]:
    found = reference(about)
    return tuple(found.get(name, "") for name in _FIELDS)


def _reference(values: tuple[str, ...]) -> Obj:
    return {name: value for name, value in zip(_FIELDS, values, strict=True) if value}
