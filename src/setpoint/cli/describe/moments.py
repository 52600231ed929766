"""Format timestamps for descriptions, in the user's time zone."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

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
