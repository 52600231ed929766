"""Durations of the OpenAPI format: Go's, or numbers with unit names (`3 weeks`)."""

from __future__ import annotations

import re

from setpoint.meta.cel.libraries.go_times import read_duration
from setpoint.meta.cel.values import SECOND, Duration

_PART = re.compile(r"(?<!\d)(\d++)\s*+([A-Za-zµ]++)", re.ASCII)
_UNITS = (
    # Names of a unit; anything that starts with the last one is accepted too.
    (1, ("ns", "nano")),
    (10**3, ("us", "µs", "micro")),
    (10**6, ("ms", "milli")),
    (SECOND, ("s", "sec")),
    (60 * SECOND, ("m", "min")),
    (3600 * SECOND, ("h", "hr", "hour")),
    (86400 * SECOND, ("d", "day")),
    (7 * 86400 * SECOND, ("w", "wk", "week")),
)


def parse_duration(text: str) -> Duration | None:
    """Parse a duration; None if it is invalid."""
    found = read_duration(text)
    if found is not None:
        return found
    total, matched = 0, False
    for part in _PART.finditer(text):
        unit = part[2].lower()
        for nanoseconds, words in _UNITS:
            if unit in words or unit.startswith(words[-1]):
                total += int(part[1][:18]) * nanoseconds
                matched = True
    return Duration(total) if matched else None
