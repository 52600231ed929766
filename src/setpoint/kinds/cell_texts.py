"""Texts of table cells and descriptions that many kinds share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from setpoint.meta.times import human_duration, parse_time

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"


def since(timestamp: str | None, now: datetime) -> str:
    """Return the time elapsed since `timestamp` in human-readable form: `5m`, `3d2h`."""
    if not timestamp:
        return UNKNOWN
    return human_duration((now - parse_time(timestamp)).total_seconds())


def labels_text(labels: Mapping[str, str] | None) -> str:
    """Return `a=1,b=2`, sorted by key."""
    if not labels:
        return NONE
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def list_text(items: Sequence[str], more: bool, count: int, limit: int) -> str:
    """Return the first items, and how many there are besides."""
    text = ",".join(items)
    if more:
        return f"{text} + {count - limit} more..."
    return text or UNSET
