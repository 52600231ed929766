"""The context of a description: client, time, time zone and page size."""

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
class DescribeContext:
    reader: Reader
    clock: Clock
    show_events: bool = True
    chunk_size: int = 500
    """The number of objects per page of a list; 0 lists all at once."""
    zone: tzinfo | None = None
    """The time zone of displayed times; None means that of the machine."""
    minor: int = NEWEST
    """The minor version of kubectl 1.x whose output is reproduced, from 33 on. Older versions omit some lines and use
    other words; they allow comparisons with recorded output."""

    def since(self, timestamp: str | None) -> str:
        """Return the elapsed time since a timestamp."""
        return since(timestamp, self.clock.now())

    def moment(self, timestamp: str | None) -> str:
        return rfc1123(timestamp, self.zone)

    def plain_time(self, timestamp: str | None) -> str:
        return plain_time(timestamp, self.zone)

    async def all(
        self, resource: ResourceRef, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> list[Obj]:
        """List all objects of a resource. Raise ApiError."""
        found = await self.reader.list(
            resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            page_size=self.chunk_size,
        )
        return found.items

    async def pods(self, namespace: str, *, label_selector: str = "", field_selector: str = "") -> list[Obj]:
        """List Pods. Raise ApiError."""
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
