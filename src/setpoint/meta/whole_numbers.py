"""Whole numbers in texts of any length: Python reads no more than some thousand digits, and says so by raising."""

from __future__ import annotations

_MOST_DIGITS = 40
"""More than anything has a use for: with more, a number is beyond all bounds."""


def whole_number(text: str) -> int:
    """Of ASCII digits behind an optional sign. What has too many of them is told as 10**40."""
    negative = text[:1] == "-"
    digits = (text[1:] if text[:1] in ("+", "-") else text).lstrip("0")
    number = int(digits or "0") if len(digits) <= _MOST_DIGITS else 10**_MOST_DIGITS
    return -number if negative else number
