"""Moments of the past, as people write them: a revision, a time, an interval before now, or the name of a mark."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from setpoint.meta.times import parse_duration

MAX_LENGTH = 64
MAX_MARKS = 16
"""Number of marks whose states are kept."""
_TIME_OF_DAY = re.compile(r"(yesterday[ T+_])?(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?", re.ASCII)
_DATE_AND_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[ Tt_+](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)(Z|z|[+-]\d{2}:\d{2})?", re.ASCII
)
_INTERVAL = re.compile(r"-(?:\d{1,9}(?:\.\d{1,6})?(?:d|h|m|s|ms)){1,5}", re.ASCII)
_DAYS = re.compile(r"(\d{1,9})d", re.ASCII)
_MARK = re.compile(r"[A-Za-z](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_RESERVED = frozenset({"start", "now", "yesterday"})
_HELP = (
    "a revision, a time such as 2026-01-31T13:02:00Z or 13:02, an interval such as -5m, start, or the name of a mark"
)


def is_mark_name(text: str) -> bool:
    """Return whether a text can be the name of a mark, and is not confused with another moment."""
    return _MARK.fullmatch(text) is not None and text not in _RESERVED


def parse_moment(text: str, now: datetime) -> int | datetime | None:
    """Return the revision or the time that a text names, or None if it may be the name of a mark.

    A time of day without a date is the last one before `now`, in the zone of `now`. Raises ValueError."""
    if len(text) > MAX_LENGTH or not text:
        raise ValueError(f"{text[:MAX_LENGTH]!r} is not a moment: give {_HELP}")
    if text.isascii() and text.isdigit():
        return int(text)
    if text == "now":
        return now
    if _INTERVAL.fullmatch(text):
        try:
            return now - timedelta(microseconds=parse_duration(_DAYS.sub(_hours, text[1:])) // 1000)
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)
    try:
        if found := _TIME_OF_DAY.fullmatch(text):
            return _time_of_day(found, now)
        if found := _DATE_AND_TIME.fullmatch(text):
            day, time, zone = found.groups()
            time = time[:15].rstrip(".")  # microseconds are enough
            parsed = datetime.fromisoformat(f"{day}T{time}{zone or ''}".replace("z", "Z"))
            return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=now.tzinfo)
    except ValueError:
        raise ValueError(f"{text!r} is not a time") from None
    if is_mark_name(text) or text == "start":
        return None
    raise ValueError(f"{text!r} is not a moment: give {_HELP}")


def _hours(found: re.Match[str]) -> str:
    """Return days in hours, which is the longest unit of a duration."""
    return f"{int(found[1]) * 24}h"


def _time_of_day(found: re.Match[str], now: datetime) -> datetime:
    yesterday, hour, minute, second, fraction = found.groups()
    time = now.replace(
        hour=int(hour), minute=int(minute), second=int(second or 0), microsecond=int((fraction or "").ljust(6, "0"))
    )
    return time - timedelta(days=1) if yesterday or time > now else time
