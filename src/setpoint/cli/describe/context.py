"""The context of every description: the client, the time, the time zone and the writer of aligned lines."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Any, NamedTuple

from setpoint.cli.escaping import escaped
from setpoint.cli.tabwriter import align
from setpoint.client.interface import Reader, ResourceRef
from setpoint.client.resources import builtin
from setpoint.kinds.cell_texts import since
from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj
from setpoint.meta.times import parse_time

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NEVER = datetime(1, 1, 1, tzinfo=UTC)


def rfc1123(timestamp: str | None, zone: tzinfo | None) -> str:
    """Return `Mon, 02 Jan 2006 15:04:05 -0700`; a missing timestamp is the zero time."""
    when = _local(timestamp, zone)
    # Not strftime: its day and month names depend on the locale.
    return (
        f"{_DAYS[when.weekday()]}, {when.day:02d} {_MONTHS[when.month - 1]} {when.year:04d} "
        f"{when:%H:%M:%S} {_offset(when)}"
    )


def plain_time(timestamp: str | None, zone: tzinfo | None) -> str:
    """Return `2006-01-02 15:04:05 -0700 MST`."""
    when = _local(timestamp, zone)
    return f"{when.year:04d}-{when:%m-%d %H:%M:%S} {_offset(when)} {when.tzname()}"


def _local(timestamp: str | None, zone: tzinfo | None) -> datetime:
    if not timestamp:
        return _NEVER
    return parse_time(timestamp).astimezone(zone)


def _offset(when: datetime) -> str:
    return f"{when:%z}"[:5]


class Writer:
    """Writes texts with tabs (ends of cells) and newlines, and aligns the columns.

    Control characters are escaped: the author of an object must not control the terminal of a user who describes it.
    """

    def __init__(self) -> None:
        self._aligned: list[str] = []
        self._pending: list[str] = []

    def write(self, level: int, text: str) -> None:
        self._pending.append("  " * level + escaped(text))

    def line(self, text: str = "") -> None:
        """Write the rest of the current line."""
        self.write(0, text + "\n")

    def field(self, name: str, value: object, level: int = 0) -> None:
        self.write(level, f"{name}:\t{value}\n")

    def row(self, level: int, *cells: object) -> None:
        self.write(level, "\t".join(map(str, cells)) + "\n")

    def flush(self) -> None:
        """Align what was written so far; later lines are aligned separately."""
        self._aligned.append(align("".join(self._pending)))
        self._pending.clear()

    def nested(self, levels: int) -> Writer:
        """Return a writer to the same output with everything indented by `levels`, including continued lines."""
        return _Nested(self, levels)

    def text(self) -> str:
        self.flush()
        return "".join(self._aligned)


class RawWriter(Writer):
    """A writer that leaves tabs unchanged."""

    def flush(self) -> None:
        self._aligned.append("".join(self._pending))
        self._pending.clear()


class _Nested(Writer):
    def __init__(self, outer: Writer, levels: int) -> None:
        self._outer = outer
        self._levels = levels

    def write(self, level: int, text: str) -> None:
        self._outer.write(level + self._levels, text)

    def flush(self) -> None:
        self._outer.flush()

    def text(self) -> str:
        return self._outer.text()


NEWEST = 37


class DescribeContext(NamedTuple):
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
