"""Times and durations as they are written: RFC 3339, Go's `1h2m3s`, and the short ages of tables."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from setpoint.meta.caching import memoized
from setpoint.meta.goformat import parse_integer

SECONDS_LAYOUT = "2006-01-02T15:04:05Z07:00"
MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"

_ZERO = "0001-01-01T00:00:00Z"
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII)


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class TimeError(ValueError):
    """The text is not a time or duration; the message is the reference's."""


def quote(text: str) -> str:
    """Quote a text as Go's time package does, which differs from Go's %q."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_escape(char) for char in text) + '"'


def _escape(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if " " <= char < "\x80" else "".join(f"\\x{byte:02x}" for byte in char.encode())


# -- writing ----------------------------------------------------------------------------------------------------------


def format_time(when: datetime) -> str:
    """Format a time to the second; fractions are truncated."""
    since = when - _EPOCH
    return _format_second(since.days, since.seconds)


@lru_cache(maxsize=256)
def _format_second(days: int, seconds: int) -> str:
    """Format seconds since 1970, memoized because most objects written at one time have the same few."""
    return (_EPOCH + timedelta(days, seconds)).isoformat()[:19] + "Z"


def format_micro(when: datetime) -> str:
    return f"{format_time(when)[:-1]}.{when.microsecond:06d}Z"


def http_date(when: datetime) -> str:
    """Format a time for a header of HTTP: `Sun, 06 Nov 1994 08:49:37 GMT`."""
    at = when.astimezone(UTC)
    return f"{_DAYS[at.weekday()]}, {at.day:02d} {_MONTHS[at.month - 1]} {at:%Y %H:%M:%S} GMT"


# -- reading ----------------------------------------------------------------------------------------------------------


def unix_milliseconds(when: datetime) -> int:
    """Return the whole milliseconds since the epoch, without the rounding errors of floating point."""
    since = when - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def parse_time(text: str) -> datetime:
    """Parse any RFC 3339 time, with or without a fraction; in UTC. For texts that went through the decoder."""
    return datetime.fromisoformat(text).astimezone(UTC)


def parse_day(text: str) -> datetime | None:
    """Parse a day such as `2026-11-19` to its begin, without a time zone; None if the text is not one."""
    try:
        return datetime.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        return None


@memoized(maxsize=4096)
def canonical_time(text: str) -> str | None:
    """Return the time in UTC to the second, or None for the zero time, which is written as null. Raises TimeError."""
    whole, _ = _read(text, SECONDS_LAYOUT)
    return None if whole == _ZERO else whole


@memoized(maxsize=4096)
def canonical_micro(text: str) -> str | None:
    """Return the time in UTC to the microsecond. At least six fraction digits are required. Raises TimeError."""
    whole, fraction = _read(text, MICRO_LAYOUT)
    if whole == _ZERO and not fraction.strip("0"):
        return None
    return f"{whole[:-1]}.{fraction[:6]:0<6}Z"


def _read(text: str, layout: str) -> tuple[str, str]:
    """Return the time in UTC to the second, and the digits of its fraction."""
    match = _PLAIN.fullmatch(text)
    if match is None or (layout is MICRO_LAYOUT and len(match[7] or "") != 6):
        raise TimeError(_parse_error(text, layout))
    if problem := _out_of_range(match):
        raise TimeError(f"parsing time {quote(text)}: {problem} out of range")
    zone = match[8]
    if zone == "Z":
        return f"{match[1]}-{match[2]}-{match[3]}T{match[4]:0>2}:{match[5]}:{match[6]}Z", match[7] or ""
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
    try:
        local = datetime.fromisoformat(f"{match[1]}-{match[2]}-{match[3]}T{match[4]:0>2}:{match[5]}:{match[6]}")
        return format_time((local - offset if zone[0] == "+" else local + offset).replace(tzinfo=UTC)), match[7] or ""
    except (ValueError, OverflowError):  # Year 0, or a shift out of the supported years.
        return text[:19] + "Z", match[7] or ""


def _out_of_range(match: re.Match[str]) -> str:
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    if not 1 <= month <= 12:
        return "month"
    if hour > 23:
        return "hour"
    if minute > 59:
        return "minute"
    if second > 59:
        return "second"
    zone = match[8]
    if zone != "Z" and int(zone[1:3]) > 24:
        return "time zone offset hour"
    if zone != "Z" and int(zone[4:6]) > 60:
        return "time zone offset minute"
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    last = 29 if leap and month == 2 else (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]
    return "" if 1 <= day <= last else "day"


_STEPS = (
    ("2006", re.compile(r"\d{4}", re.ASCII), 9999, ""),
    ("-", None, 0, ""),
    ("01", re.compile(r"\d\d", re.ASCII), 12, "month"),
    ("-", None, 0, ""),
    ("02", re.compile(r"\d\d", re.ASCII), 99, ""),
    ("T", None, 0, ""),
    ("15", re.compile(r"\d\d?", re.ASCII), 23, "hour"),
    (":", None, 0, ""),
    ("04", re.compile(r"\d\d", re.ASCII), 59, "minute"),
    (":", None, 0, ""),
    ("05", re.compile(r"\d\d", re.ASCII), 59, "second"),
)
_FRACTION = re.compile(r"[.,]\d+", re.ASCII)
_SIX_DIGITS = re.compile(r"[.,]\d{6}", re.ASCII)
_ZONE = re.compile(r"Z|[+-]\d\d:\d\d", re.ASCII)


def _parse_error(text: str, layout: str) -> str:
    """Return why the reference's parser, which goes by the elements of the layout, refuses the text."""
    rest = text

    def cannot_parse(element: str) -> str:
        return f"parsing time {quote(text)} as {quote(layout)}: cannot parse {quote(rest)} as {quote(element)}"

    for element, pattern, limit, name in _STEPS:
        if pattern is None:
            if not rest.startswith(element):
                return cannot_parse(element)
            rest = rest[len(element) :]
            continue
        match = pattern.match(rest)
        if match is None:
            return cannot_parse(element)
        if name and (int(match[0]) > limit or (name == "month" and int(match[0]) == 0)):
            return f"parsing time {quote(text)}: {name} out of range"
        rest = rest[match.end() :]
    fraction = (_SIX_DIGITS if layout is MICRO_LAYOUT else _FRACTION).match(rest)
    if fraction is not None:
        rest = rest[fraction.end() :]
    elif layout is MICRO_LAYOUT:
        return cannot_parse(".000000")
    zone = _ZONE.match(rest)
    if zone is None:
        return cannot_parse("Z07:00")
    return f"parsing time {quote(text)}: extra text: {quote(rest[zone.end() :])}"


# -- ages in tables ---------------------------------------------------------------------------------------------------


def human_duration(seconds: float) -> str:
    """Format a duration in the two or three digits that a table column has room for: `45s`, `3m20s`, `5h12m`, `3d4h`,
    `2y30d`."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes, hours = whole // 60, whole // 3600
    if minutes < 10:
        return _pair(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _pair(hours // 24, "d", hours % 24, "h")
    if hours < 24 * 365 * 2:
        return f"{hours // 24}d"
    if hours < 24 * 365 * 8:
        return _pair(hours // 24 // 365, "y", hours // 24 % 365, "d")
    return f"{hours // 24 // 365}y"


def _pair(major: int, unit: str, minor: int, minor_unit: str) -> str:
    return f"{major}{unit}{minor}{minor_unit}" if minor else f"{major}{unit}"


def short_human_duration(seconds: float) -> str:
    """Format a duration in a single unit."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    for limit, size, unit in ((60, 1, "s"), (3600, 60, "m"), (86400, 3600, "h"), (86400 * 365, 86400, "d")):
        if whole < limit:
            return f"{whole // size}{unit}"
    return f"{whole // (86400 * 365)}y"


# -- Go durations -----------------------------------------------------------------------------------------------------

_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_TERM = re.compile(r"([0-9]*)(\.[0-9]*)?([^0-9.]*)")
_MAX_INT64 = 2**63 - 1


def parse_duration(text: str) -> int:
    """Return the nanoseconds of `1h2m3.5s`. Raises TimeError."""
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    if not rest:
        raise TimeError(f"time: invalid duration {quote(text)}")
    total, at = 0, 0
    while at < len(rest):
        match = _TERM.match(rest, at)
        assert match is not None  # Every part of the pattern may be empty.
        whole, fraction, unit = match[1], (match[2] or "")[1:], match[3]
        if not whole and not fraction:
            raise TimeError(f"time: invalid duration {quote(text)}")
        if not unit:
            raise TimeError(f"time: missing unit in duration {quote(text)}")
        if unit not in _UNITS:
            raise TimeError(f"time: unknown unit {quote(unit)} in duration {quote(text)}")
        total += parse_integer(whole) * _UNITS[unit]
        if fraction:
            # The remaining digits are less than a nanosecond of the largest unit.
            fraction = fraction[:18]
            total += int(fraction) * _UNITS[unit] // 10 ** len(fraction)
        if total > _MAX_INT64 + (text[0] == "-"):
            raise TimeError(f"time: invalid duration {quote(text)}")
        at = match.end()
    return -total if text[0] == "-" else total


def format_duration(nanoseconds: int) -> str:
    """Format a duration as Go does: `72h0m0s`, `1m30s`, `1.5s`, `20ms`, `0s`."""
    if nanoseconds == 0:
        return "0s"
    sign, left = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if left < 10**9:
        unit, size = ("ns", 1) if left < 10**3 else ("µs", 10**3) if left < 10**6 else ("ms", 10**6)
        return f"{sign}{_decimal(left, size)}{unit}"
    minutes, seconds = divmod(left, 60 * 10**9)
    text = f"{_decimal(seconds, 10**9)}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
    return sign + text


def _decimal(amount: int, unit: int) -> str:
    whole, part = divmod(amount, unit)
    return f"{whole}.{part:0{len(str(unit)) - 1}d}".rstrip("0") if part else str(whole)
