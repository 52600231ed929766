"""Durations and times as text, the way Go's time package reads and writes them, to the nanosecond."""

from __future__ import annotations

import re
from datetime import datetime

from setpoint.meta.cel.numbers import format_fixed
from setpoint.meta.cel.values import INT_MAX, SECOND, Duration, Timestamp

_UNITS = {
    "ns": 1,
    "us": 1000,
    "\u00b5s": 1000,
    "\u03bcs": 1000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PART = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T](\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(?:(Z)|([+-])(\d\d):(\d\d))", re.ASCII)
_EPOCH = datetime(1970, 1, 1)


def read_duration(text: str) -> Duration | None:
    """Parse a duration such as `1h30m` or `-1.5s`; None if it is invalid or out of range."""
    rest, sign = text, 1
    if rest[:1] in ("+", "-"):
        sign = -1 if rest[0] == "-" else 1
        rest = rest[1:]
    if rest == "0":
        return Duration(0)
    if not rest or len(rest) > 1000:
        return None
    total, at = 0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None or not (part[1] or part[2]):
            return None
        unit = _UNITS[part[3]]
        total += int(part[1] or "0") * unit
        if part[2]:
            total += int(part[2]) * unit // 10 ** len(part[2])
        at = part.end()
    if total > INT_MAX + (sign < 0):
        return None
    return Duration(sign * total)


def read_timestamp(text: str) -> Timestamp | None:
    """Parse an RFC 3339 time as strictly as Go does; None if it is invalid."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[part]) for part in range(1, 7))
    offset = 0
    if found[9]:
        if int(found[10]) > 24 or int(found[11]) > 60:
            return None
        offset = (int(found[10]) * 3600 + int(found[11]) * 60) * (-1 if found[9] == "-" else 1)
    if year == 0:
        # Python's calendar begins with the year 1; the reference has the year 0, and calls it too early.
        return Timestamp(-(10**30))
    try:
        moment = datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None
    fraction = int((found[7] or "")[:9].ljust(9, "0"))
    seconds = (moment - _EPOCH).days * 86400 + (moment - _EPOCH).seconds - offset
    return Timestamp(seconds * SECOND + fraction, offset)


def format_duration_seconds(value: Duration) -> str:
    """Format a duration in seconds: `90.5s`."""
    return f"{format_fixed(value.nanoseconds / SECOND)}s"


def format_timestamp(value: Timestamp) -> str:
    """Format a timestamp as RFC 3339, with as many fraction digits as needed and its original offset."""
    whole = value.civil(value.offset).isoformat(timespec="seconds")
    fraction = value.nanoseconds % SECOND
    if fraction:
        whole += f".{fraction:09d}".rstrip("0")
    if value.offset == 0:
        return whole + "Z"
    sign = "-" if value.offset < 0 else "+"
    return f"{whole}{sign}{abs(value.offset) // 3600:02d}:{abs(value.offset) % 3600 // 60:02d}"
