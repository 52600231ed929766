"""Parse numbers by the rules of Go's templates."""

from __future__ import annotations

import re

from setpoint.cli.printing.go_template.values import Int
from setpoint.meta.goformat import quote
from setpoint.meta.gotext import Unquotable, unquote_char

_INTEGER = re.compile(r"[+-]?(0[xX](_?[0-9a-fA-F])+|0[bB](_?[01])+|0[oO]?(_?[0-7])+|0|[1-9](_?[0-9])*)")
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def number(text: str) -> Int | float:
    """Parse a number. Raise ValueError with Go's message."""
    if _INTEGER.fullmatch(text) and len(text) < 400:
        digits = text.replace("_", "")
        sign, digits = (digits[0], digits[1:]) if digits[0] in "+-" else ("", digits)
        octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdecimal()
        value = int(digits, 8) if octal else int(digits, 0)
        value = -value if sign == "-" else value
        if -(2**63) <= value < 2**63:
            return Int(value)
        if value >= 2**64 or value < 0:
            raise ValueError(f"integer overflow: {quote(text)}")
        return Int(value)
    if _FLOAT.fullmatch(text.replace("_", "")) and "_" not in text:
        return float(text)
    raise ValueError(f"illegal number syntax: {quote(text)}")


def character(text: str) -> Int:
    """Return the code point of a character constant such as `'a'`."""
    try:
        piece, at = unquote_char(text, 1, "'")
        if at != len(text) - 1:
            raise Unquotable
    except (Unquotable, IndexError):
        raise ValueError(f"malformed character constant: {text}") from None
    if text[1] == "\\" and len(piece) == 1:
        return Int(piece[0])
    return Int(ord(piece.decode("utf-8", "surrogateescape")))
