"""Records Events about objects."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol
from zlib import crc32

from setpoint.client import Writer
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, NotFound
from setpoint.meta.times import format_time
from setpoint.reconcile.event_correlation import Correlator, EventIdentity, EventState
from setpoint.reconcile.event_writing import EventWriteQueue

Obj = dict[str, Any]

NORMAL, WARNING = "Normal", "Warning"
_EVENTS = ("v1", "Event")
_MAX_MESSAGE_LENGTH = 1024
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


class Recorder(Protocol):
    def normal(self, about: Mapping[str, Any], reason: str, message: str) -> None: ...

    def warning(self, about: Mapping[str, Any], reason: str, message: str) -> None: ...


def reference(about: Mapping[str, Any], field_path: str = "") -> Obj:
    """Return the reference by which an Event names its involved object."""
    meta = about["metadata"]
    found = {
        "kind": about.get("kind"),
        "namespace": meta.get("namespace"),
        "name": meta["name"],
        "uid": meta.get("uid"),
        "apiVersion": about.get("apiVersion"),
        "resourceVersion": meta.get("resourceVersion"),
        "fieldPath": field_path,
    }
    return {key: found[key] for key in _REFERENCE if found[key]}


def event_log(component: str) -> logging.Logger:
    """Return the logger to which the Events of a component are logged."""
    return logging.getLogger(f"setpoint.events.{component}")


def log_event(log: logging.Logger, about: Mapping[str, Any], kind: str, reason: str, message: str) -> None:
    level = logging.INFO
    if log.isEnabledFor(level):
        meta = about["metadata"]
        where = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        fields = (where, about.get("kind"), kind, reason, message)
        # Build the record directly: finding the caller, as the logging functions do, would dominate the cost of an
        # Event.
        log.handle(logging.LogRecord(log.name, level, __file__, _LINE, _TEXT, fields, None, "log_event"))


_LINE = log_event.__code__.co_firstlineno
_TEXT = '"Event occurred" object="%s" kind="%s" type="%s" reason="%s" message="%s"'


class EventNames:
    """Generates Event names that are unique for an object, also for two Events in the same instant."""

    def __init__(self) -> None:
        self._last = 0

    def next(self, about: str, nanoseconds: int) -> str:
        self._last = max(self._last + 1, nanoseconds)
        return f"{about}.{self._last:x}"


class EventRecorder:
    """Records Events without blocking and without raising; an Event that cannot be written is dropped.

    A repeated Event increments the count of the first one, similar Events are aggregated, and floods are rate-limited.
    """

    def __init__(self, writer: Writer, clock: Clock, component: str, host: str = "") -> None:
        self._writer = writer
        self._clock = clock
        self._component = component
        self._host = host
        self._correlator = Correlator(clock)
        self.write_queue = EventWriteQueue(component, clock)
        self._names = EventNames()
        self._log = event_log(component)
        # The clock has microsecond resolution: the nanoseconds distinguish components that record in the same one.
        self._nanosecond_offset = crc32(component.encode()) % 1000

    def normal(
        self, about: Mapping[str, Any], reason: str, message: str, *, field_path: str = "", host: str = ""
    ) -> None:
        """Record an Event of type Normal.

        `field_path` names a part of the object, `host` the node it occurred on if that is not the recorder's own host.
        """
        self._record(about, NORMAL, reason, message, field_path, host)

    def warning(
        self, about: Mapping[str, Any], reason: str, message: str, *, field_path: str = "", host: str = ""
    ) -> None:
        self._record(about, WARNING, reason, message, field_path, host)

    def _record(
        self, about: Mapping[str, Any], kind: str, reason: str, message: str, field_path: str, host: str
    ) -> None:
        meta = about["metadata"]
        now, host = self._clock.now(), host or self._host
        stamp = format_time(now)
        message = message[:_MAX_MESSAGE_LENGTH]
        log_event(self._log, about, kind, reason, message)
        involved = tuple(str(part or "") for part in (
            about.get("kind"), meta.get("namespace"), meta["name"], meta.get("uid"), about.get("apiVersion"),
        ))  # fmt: skip
        identity = EventIdentity((self._component, host), involved, field_path, kind, reason, message)
        name = self._names.next(meta["name"], int(now.timestamp() * 1e6) * 1000 + self._nanosecond_offset)
        correlated = self._correlator.correlate(identity, name, stamp)
        if correlated is None:
            return
        state, message = correlated
        count = state.count
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": state.name, "namespace": meta.get("namespace") or "default"},
            "involvedObject": reference(about, field_path),
            "reason": reason,
            "message": message,
            "source": {"component": self._component, **({"host": host} if host else {})},
            "firstTimestamp": state.first,
            "lastTimestamp": stamp,
            "count": count,
            "type": kind,
            "reportingComponent": self._component,
            "reportingInstance": host,
        }

        async def write() -> None:
            try:
                await self._write(event, state)
            except BaseException:
                self._correlator.forget(identity)
                raise

        self.write_queue.put(state.name, write, host)

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        await self.write_queue.run()

    async def _write(self, event: Obj, state: EventState) -> None:
        meta = event["metadata"]
        if state.stored:
            change = {key: event[key] for key in ("count", "lastTimestamp", "message")}
            try:
                await self._writer.patch(_EVENTS, meta["name"], change, meta["namespace"])
                return
            except NotFound:
                pass  # it has expired: create it again
        with suppress(AlreadyExists):  # from an attempt whose response was lost
            await self._writer.create(event)
        state.stored = True
