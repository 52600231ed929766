"""Parsing of integers in texts of any length: Python rejects texts of more than some thousand digits."""

from __future__ import annotations

_MAX_DIGITS = 40
"""Maximum number of digits: a longer number exceeds every range."""


def parse_integer(text: str) -> int:
    """Parse ASCII digits with an optional sign. A text with too many digits is returned as 10**40."""
    negative = text[:1] == "-"
    digits = (text[1:] if text[:1] in ("+", "-") else text).lstrip("0")
    number = int(digits or "0") if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS
    return -number if negative else number
