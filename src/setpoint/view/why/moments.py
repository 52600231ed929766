"""Times in the texts of findings."""

from __future__ import annotations

from datetime import UTC, datetime

from setpoint.meta.times import human_duration, parse_time, unix_milliseconds
from setpoint.view.why.facts import History


def milliseconds(time: str | None) -> int:
    """Return an RFC 3339 time in milliseconds since the epoch; 0 if there is none."""
    if not time:
        return 0
    try:
        return unix_milliseconds(parse_time(time))
    except ValueError:
        return 0


def age(history: History, at: int) -> str:
    """Return how long ago a time in milliseconds was."""
    return human_duration(max(0, history.now - at) / 1000) if at else "an unknown time"


def clock_time(at: int) -> str:
    """Return the time of day in UTC."""
    return f"{datetime.fromtimestamp(at / 1000, UTC):%H:%M:%S} UTC"
