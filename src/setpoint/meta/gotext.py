"""Go's string literals: what a quoted text means."""

from __future__ import annotations

_SIMPLE = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, "'": 39, '"': 34}
_CODES = {"x": 2, "u": 4, "U": 8}
_HEX = frozenset("0123456789abcdefABCDEF")
_OCTAL = frozenset("01234567")


class Unquotable(ValueError):
    pass


def unquote_char(text: str, at: int, quote: str) -> tuple[bytes, int]:
    """Return the bytes of the character or escape at that place, and where the next one begins."""
    char = text[at]
    if char == quote:
        raise Unquotable
    if char != "\\":
        return char.encode("utf-8", "surrogateescape"), at + 1
    escape = text[at + 1 : at + 2]
    if escape in ("'", '"') and escape != quote:
        raise Unquotable
    if escape in _SIMPLE:
        return bytes((_SIMPLE[escape],)), at + 2
    if escape in _CODES:
        return _coded(text, at + 2, escape)
    digits = text[at + 1 : at + 4]
    if len(digits) == 3 and _OCTAL.issuperset(digits) and int(digits, 8) < 256:
        return bytes((int(digits, 8),)), at + 4
    raise Unquotable


def _coded(text: str, at: int, escape: str) -> tuple[bytes, int]:
    digits = text[at : at + _CODES[escape]]
    if len(digits) != _CODES[escape] or not _HEX.issuperset(digits):
        raise Unquotable
    code = int(digits, 16)
    end = at + len(digits)
    if escape == "x":
        return bytes((code,)), end
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise Unquotable
    return chr(code).encode(), end


def unquote(literal: str) -> str:
    """Unquote a whole literal in double quotes or backquotes; bytes that are no UTF-8 come as surrogates."""
    quote, inside = literal[0], literal[1:-1]
    if quote == "`":
        return inside.replace("\r", "")
    if "\\" not in inside and quote not in inside and "\n" not in inside:
        return inside
    out = bytearray()
    at = 0
    while at < len(inside):
        if inside[at] == "\n":
            raise Unquotable
        piece, at = unquote_char(inside, at, quote)
        out += piece
    return out.decode("utf-8", "surrogateescape")
