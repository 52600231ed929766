"""Who looks: through which client, when, from which zone, and for how much."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from setpoint.cli.describe.moments import plain_time, rfc1123
from setpoint.client.interface import Obj, Reader, ResourceRef
from setpoint.client.resources import builtin
from setpoint.kinds.columns import since
from setpoint.meta.clock import Clock

NEWEST = 37


@dataclass(frozen=True, slots=True)
class Looking:
    reader: Reader
    clock: Clock
    show_events: bool = True
    chunk_size: int = 500
    """How many objects a page of a list has; 0 for all at once."""
    zone: tzinfo | None = None
    """The zone in which times are shown; None is the machine's own."""
    minor: int = NEWEST
    """Which kubectl 1.x the output equals, from 1.33 on. Older ones leave some lines out and say some in other words;
    they are what the newest can be compared with."""

    def since(self, timestamp: str | None) -> str:
        """How long ago."""
        return since(timestamp, self.clock.now())

    def moment(self, timestamp: str | None) -> str:
        return rfc1123(timestamp, self.zone)

    def plain_time(self, timestamp: str | None) -> str:
        return plain_time(timestamp, self.zone)

    async def all(
        self, resource: ResourceRef, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> list[Obj]:
        """Raises ApiError."""
        found = await self.reader.list(
            resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            page_size=self.chunk_size,
        )
        return found.items

    async def pods(self, namespace: str, *, label_selector: str = "", field_selector: str = "") -> list[Obj]:
        """Raises ApiError."""
        pods = builtin("pods")
        return await self.all(pods, namespace, label_selector=label_selector, field_selector=field_selector)


def meta(obj: Obj) -> dict[str, Any]:
    found: dict[str, Any] = obj.get("metadata") or {}
    return found


def spec(obj: Obj) -> dict[str, Any]:
    found: dict[str, Any] = obj.get("spec") or {}
    return found


def status(obj: Obj) -> dict[str, Any]:
    found: dict[str, Any] = obj.get("status") or {}
    return found
