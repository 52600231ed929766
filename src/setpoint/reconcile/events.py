"""Events: what a component tells people about an object."""

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
from setpoint.reconcile.event_correlation import Correlator, Said, Written
from setpoint.reconcile.event_writing import EventWriting

Obj = dict[str, Any]

NORMAL, WARNING = "Normal", "Warning"
_EVENTS = ("v1", "Event")
_LONGEST_MESSAGE = 1024
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


class Recorder(Protocol):
    def normal(self, about: Mapping[str, Any], reason: str, message: str) -> None: ...

    def warning(self, about: Mapping[str, Any], reason: str, message: str) -> None: ...


def reference(about: Mapping[str, Any], field_path: str = "") -> Obj:
    """How an event names an object."""
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
    """Where those who read logs find what a component has told people."""
    return logging.getLogger(f"setpoint.events.{component}")


def tell(log: logging.Logger, about: Mapping[str, Any], kind: str, reason: str, message: str) -> None:
    level = logging.INFO
    if log.isEnabledFor(level):
        meta = about["metadata"]
        where = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        said = (where, about.get("kind"), kind, reason, message)
        # By hand: to find out from where this was called would cost more than all the rest, for every event.
        log.handle(logging.LogRecord(log.name, level, __file__, _LINE, _TEXT, said, None, "tell"))


_LINE = tell.__code__.co_firstlineno
_TEXT = '"Event occurred" object="%s" kind="%s" type="%s" reason="%s" message="%s"'


class EventNames:
    """A name differs from that of every other event about the object, also of two in one instant."""

    def __init__(self) -> None:
        self._last = 0

    def next(self, about: str, nanoseconds: int) -> str:
        self._last = max(self._last + 1, nanoseconds)
        return f"{about}.{self._last:x}"


class EventRecorder:
    """Recording never waits and never fails: an event that cannot be written is dropped. One that says the same as
    an earlier one raises its count instead; many alike are combined; floods are cut off."""

    def __init__(self, writer: Writer, clock: Clock, component: str, host: str = "") -> None:
        self._writer = writer
        self._clock = clock
        self._component = component
        self._host = host
        self._correlator = Correlator(clock)
        self.writing = EventWriting(component, clock)
        self._names = EventNames()
        self._log = event_log(component)
        # The clock counts microseconds; what is below tells two components apart that speak in the same one.
        self._share = crc32(component.encode()) % 1000

    def normal(
        self, about: Mapping[str, Any], reason: str, message: str, *, field_path: str = "", host: str = ""
    ) -> None:
        """`field_path` names a part of the object, `host` the machine where it happened if that is not the recorder's
        own."""
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
        message = message[:_LONGEST_MESSAGE]
        tell(self._log, about, kind, reason, message)
        identity = tuple(str(part or "") for part in (
            about.get("kind"), meta.get("namespace"), meta["name"], meta.get("uid"), about.get("apiVersion"),
        ))  # fmt: skip
        said = Said((self._component, host), identity, field_path, kind, reason, message)
        name = self._names.next(meta["name"], int(now.timestamp() * 1e6) * 1000 + self._share)
        taken = self._correlator.take(said, name, stamp)
        if taken is None:
            return
        written, message = taken
        count = written.count
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": written.name, "namespace": meta.get("namespace") or "default"},
            "involvedObject": reference(about, field_path),
            "reason": reason,
            "message": message,
            "source": {"component": self._component, **({"host": host} if host else {})},
            "firstTimestamp": written.first,
            "lastTimestamp": stamp,
            "count": count,
            "type": kind,
            "reportingComponent": self._component,
            "reportingInstance": host,
        }

        async def write() -> None:
            try:
                await self._write(event, written)
            except BaseException:
                self._correlator.forget(said)
                raise

        self.writing.put(written.name, write, host)

    async def run(self) -> None:
        """Until cancelled."""
        await self.writing.run()

    async def _write(self, event: Obj, written: Written) -> None:
        meta = event["metadata"]
        if written.stored:
            change = {key: event[key] for key in ("count", "lastTimestamp", "message")}
            try:
                await self._writer.patch(_EVENTS, meta["name"], change, meta["namespace"])
                return
            except NotFound:
                pass  # it has expired: it begins anew
        with suppress(AlreadyExists):  # from an attempt whose answer got lost
            await self._writer.create(event)
        written.stored = True
