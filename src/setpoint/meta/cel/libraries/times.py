"""The parts of timestamps and durations: `getFullYear`, `getHours`, ..."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from setpoint.meta.cel.values import SECOND, CelError, Duration, Timestamp

_OFFSET = re.compile(r"[+-]?\d+", re.ASCII)


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    if name.startswith(("/", "\\")) or ".." in name:
        raise CelError("time: invalid location name")
    try:
        return ZoneInfo(name)
    except Exception:  # zoneinfo raises a handful of types, all of which mean: no such zone
        raise CelError(f"unknown time zone {name}") from None


def _offset(when: Timestamp, zone: str) -> int:
    """Return the seconds east of UTC."""
    hours, colon, minutes = zone.partition(":")
    if not colon:
        if zone in ("", "UTC"):
            return 0
        moment = when.aware().astimezone(_zone(zone))
        shift = moment.utcoffset()
        return 0 if shift is None else int(shift.total_seconds())
    for part in (hours, minutes):
        if not _OFFSET.fullmatch(part):
            raise CelError(f'strconv.Atoi: parsing "{part}": invalid syntax')
    if not 0 <= int(minutes) <= 59:
        raise CelError(f"timezone offset minutes out of range [0, 59]: {zone}")
    signed = int(minutes) if not zone.startswith("-") else -int(minutes)
    return (int(hours) * 60 + signed) * 60


def _part(read: Callable[[datetime, int], int]) -> Callable[..., int]:
    def get(when: Timestamp, zone: str = "UTC") -> int:
        return read(when.civil(_offset(when, zone)), when.nanoseconds % SECOND)

    return get


def _span(nanoseconds: int) -> Callable[[Duration], int]:
    def get(value: Duration) -> int:
        whole = abs(value.nanoseconds) // nanoseconds
        return whole if value.nanoseconds >= 0 else -whole

    return get


_PARTS: tuple[tuple[str, str, Callable[[datetime, int], int]], ...] = (
    ("getFullYear", "timestamp_to_year", lambda civil, _: civil.year),
    ("getMonth", "timestamp_to_month", lambda civil, _: civil.month - 1),
    ("getDayOfYear", "timestamp_to_day_of_year", lambda civil, _: civil.timetuple().tm_yday - 1),
    ("getDayOfMonth", "timestamp_to_day_of_month", lambda civil, _: civil.day - 1),
    ("getDate", "timestamp_to_day_of_month_1_based", lambda civil, _: civil.day),
    ("getDayOfWeek", "timestamp_to_day_of_week", lambda civil, _: civil.isoweekday() % 7),
    ("getHours", "timestamp_to_hours", lambda civil, _: civil.hour),
    ("getMinutes", "timestamp_to_minutes", lambda civil, _: civil.minute),
    ("getSeconds", "timestamp_to_seconds", lambda civil, _: civil.second),
    ("getMilliseconds", "timestamp_to_milliseconds", lambda _, fraction: fraction // 1_000_000),
)
_SPANS = (
    ("getHours", "duration_to_hours", 3600 * SECOND),
    ("getMinutes", "duration_to_minutes", 60 * SECOND),
    ("getSeconds", "duration_to_seconds", SECOND),
    ("getMilliseconds", "duration_to_milliseconds", 1_000_000),
)


def _declared() -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = []
    for name, identity, read in _PARTS:
        found.append((identity, f"timestamp::{name}() -> int", _part(read)))
        found.append((f"{identity}_with_tz", f"timestamp::{name}(string) -> int", _part(read)))
        found.extend(
            (span, f"duration::{called}() -> int", _span(unit)) for called, span, unit in _SPANS if called == name
        )
    return found


TIMES = tuple(_declared())
