"""Events: what a component tells people about an object."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from setpoint.client import Unreachable, Writer
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.times import format_time

log = logging.getLogger("setpoint.reconcile")

NORMAL, WARNING = "Normal", "Warning"
_EVENTS = ("v1", "Event")
_MOST_WAITING = 1000
_REMEMBERED = 4096
_LONGEST_MESSAGE = 1024


@dataclass(slots=True)
class _Seen:
    name: str
    count: int


class EventRecorder:
    """Recording never waits and never fails: an event that cannot be written is dropped. One that says the same as
    an earlier one raises its count instead."""

    def __init__(self, writer: Writer, clock: Clock, component: str, host: str = "") -> None:
        self._writer = writer
        self._clock = clock
        self._component = component
        self._source = {"component": component, **({"host": host} if host else {})}
        self._waiting: deque[dict[str, Any]] = deque(maxlen=_MOST_WAITING)
        self._woken = asyncio.Event()
        self._seen: OrderedDict[tuple[str, ...], _Seen] = OrderedDict()
        self._last_stamp = 0

    def normal(self, about: Mapping[str, Any], reason: str, message: str) -> None:
        self._record(about, NORMAL, reason, message)

    def warning(self, about: Mapping[str, Any], reason: str, message: str) -> None:
        self._record(about, WARNING, reason, message)

    def _record(self, about: Mapping[str, Any], kind: str, reason: str, message: str) -> None:
        meta = about["metadata"]
        now = self._clock.now()
        # The name must differ from that of every other event about the object, also of two in one instant.
        self._last_stamp = max(self._last_stamp + 1, int(now.timestamp() * 1e6) * 1000)
        namespace = meta.get("namespace") or "default"
        involved = {
            "kind": about.get("kind"),
            "namespace": meta.get("namespace"),
            "name": meta["name"],
            "uid": meta.get("uid"),
            "apiVersion": about.get("apiVersion"),
            "resourceVersion": meta.get("resourceVersion"),
        }
        stamp = format_time(now)
        self._waiting.append(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{meta['name']}.{self._last_stamp:x}", "namespace": namespace},
                "involvedObject": {key: value for key, value in involved.items() if value},
                "reason": reason,
                "message": message[:_LONGEST_MESSAGE],
                "source": self._source,
                "firstTimestamp": stamp,
                "lastTimestamp": stamp,
                "count": 1,
                "type": kind,
                "reportingComponent": self._component,
                "reportingInstance": self._source.get("host", ""),
            }
        )
        self._woken.set()

    async def run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                event = self._waiting.popleft()
                try:
                    await self._write(event)
                except (ApiError, Unreachable) as error:
                    log.info("%s: cannot record %s: %s", self._component, event["reason"], error)

    async def _write(self, event: dict[str, Any]) -> None:
        involved = event["involvedObject"]
        same = (involved.get("uid", ""), involved["name"], event["type"], event["reason"], event["message"])
        seen = self._seen.get(same)
        if seen is not None:
            self._seen.move_to_end(same)
            change = {"count": seen.count + 1, "lastTimestamp": event["lastTimestamp"]}
            try:
                await self._writer.patch(_EVENTS, seen.name, change, event["metadata"]["namespace"])
            except NotFound:
                pass  # it has expired: a new one begins
            else:
                seen.count += 1
                return
        made = await self._writer.create(event)
        self._seen[same] = _Seen(made["metadata"]["name"], 1)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
