"""Numbers as text and back, the way Go's strconv and fmt do it."""

from __future__ import annotations

import math
import re

_FLOAT = re.compile(r"[+-]?(?:\d++(?:_\d++)*+\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?", re.ASCII)
_HEX_FLOAT = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*+|\.[0-9a-fA-F]++)[pP][+-]?\d++", re.ASCII)
_INT = re.compile(r"[+-]?\d+", re.ASCII)
_UINT = re.compile(r"\d+", re.ASCII)
_SPECIAL = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE)


def format_general(value: float) -> str:
    """Format a float with `%g`: the shortest digits that round-trip, with an exponent from a million on and below
    1e-4."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1.0, value) < 0 else "0"
    digits = repr(abs(value))
    sign = "-" if value < 0 else ""
    whole, exponent = _digits(digits)
    if exponent < -4 or exponent >= 6:
        head = whole[0] + ("." + whole[1:] if len(whole) > 1 else "")
        return f"{sign}{head}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    return sign + _plain(whole, exponent)


def format_fixed(value: float) -> str:
    """Return the shortest decimal without an exponent that gives the number back."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1.0, value) < 0 else "0"
    whole, exponent = _digits(repr(abs(value)))
    return ("-" if value < 0 else "") + _plain(whole, exponent)


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


def parse_bool(text: str) -> bool | None:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    return None
