"""Numbers, times and quoted text as Go's strconv, fmt and time packages, and CEL's `quote`, read and write them."""

from __future__ import annotations

import math
import re
from datetime import datetime

from setpoint.meta.cel.values import INT_MAX, SECOND, Duration, Timestamp
from setpoint.meta.goformat import ESCAPES

_FLOAT = re.compile(r"[+-]?(?:\d++(?:_\d++)*+\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?", re.ASCII)
_HEX_FLOAT = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*+|\.[0-9a-fA-F]++)[pP][+-]?\d++", re.ASCII)
_INT = re.compile(r"[+-]?\d+", re.ASCII)
_UINT = re.compile(r"\d+", re.ASCII)
_SPECIAL = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE)


def format_general(value: float) -> str:
    """Format a float with `%g`: the shortest digits that round-trip, with an exponent from a million on and below
    1e-4."""
    if special := _special(value):
        return special
    sign = "-" if value < 0 else ""
    whole, exponent = _digits(repr(abs(value)))
    if exponent < -4 or exponent >= 6:
        head = whole[0] + ("." + whole[1:] if len(whole) > 1 else "")
        return f"{sign}{head}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    return sign + _plain(whole, exponent)


def format_fixed(value: float) -> str:
    """Return the shortest decimal without an exponent that gives the number back."""
    if special := _special(value):
        return special
    whole, exponent = _digits(repr(abs(value)))
    return ("-" if value < 0 else "") + _plain(whole, exponent)


def _special(value: float) -> str:
    """Return the text of a zero, an infinity or NaN; empty for other numbers."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1.0, value) < 0 else "0"
    return ""


def _digits(text: str) -> tuple[str, int]:
    """Return significant digits and the decimal exponent of the first one."""
    mantissa, _, exponent = text.partition("e")
    shift = int(exponent or "0")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    point = len(whole) + shift
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    return stripped.rstrip("0") or "0", point - 1


def _plain(digits: str, exponent: int) -> str:
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    if len(digits) <= exponent + 1:
        return digits + "0" * (exponent + 1 - len(digits))
    return digits[: exponent + 1] + "." + digits[exponent + 1 :]


def parse_int(text: str) -> int | None:
    if _INT.fullmatch(text) is None or len(text) > 40:
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def parse_uint(text: str) -> int | None:
    if _UINT.fullmatch(text) is None or len(text) > 40:
        return None
    number = int(text)
    return number if number < 1 << 64 else None


def parse_float(text: str) -> float | None:
    if _SPECIAL.fullmatch(text):
        return float(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
    elif _HEX_FLOAT.fullmatch(text):
        number = float.fromhex(text)
    else:
        return None
    return None if math.isinf(number) else number


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
        # Python's calendar begins with the year 1; the reference accepts the year 0 and reports it as out of range.
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


def cel_quote(text: str) -> str:
    """Implement `strings.quote`, which escapes only control characters, quotes and backslashes."""
    return '"' + "".join(ESCAPES.get(c, "\ufffd" if 0xD800 <= ord(c) <= 0xDFFF else c) for c in text) + '"'
