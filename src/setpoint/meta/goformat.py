"""Text as Go prints, quotes and parses it, because the reference's messages do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_MAX_DIGITS = 40
"""Maximum number of digits: a longer number exceeds every range."""


def parse_integer(text: str) -> int:
    """Parse ASCII digits with an optional sign; a text with too many digits, which `int` rejects, is 10**40."""
    negative = text[:1] == "-"
    digits = (text[1:] if text[:1] in ("+", "-") else text).lstrip("0")
    number = int(digits or "0") if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS
    return -number if negative else number


ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
    "\\": "\\\\",
}


def parse_bool(text: str) -> bool | None:
    """Return the value of a text as Go's strconv.ParseBool reads it; None if the text is invalid."""
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    return None


def quote(text: str) -> str:
    """Return Go's %q for a string."""
    if text.isprintable():
        if '"' in text or "\\" in text:
            text = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{text}"'
    out = ['"']
    for char in text:
        escaped = ESCAPES.get(char)
        if escaped:
            out.append(escaped)
        elif char.isprintable():
            out.append(char)
        elif ord(char) < 0x80:
            out.append(f"\\x{ord(char):02x}")
        elif ord(char) < 0x10000:
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(f"\\U{ord(char):08x}")
    out.append('"')
    return "".join(out)


def quote_all(texts: Iterable[str]) -> str:
    """Return Go's %q for a list of strings."""
    return "[" + " ".join(map(quote, texts)) + "]"


def aggregate(messages: Iterable[str]) -> str:
    """Return several errors as one message, without duplicates; more than one are put in brackets."""
    texts = list(dict.fromkeys(messages))
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"


def plain(value: Any) -> str:
    """Return Go's %v for a decoded JSON value."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{plain(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(plain, value)) + "]"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:  # Go decodes it as float64.
        return _float(float(value))
    return str(value)


def _float(value: float) -> str:
    """Return Go's %v: the shortest digits, with an exponent below 1e-4 and from 1e6 on."""
    if value == 0 or 1e-4 <= abs(value) < 1e6 or value != value or abs(value) == float("inf"):
        return repr(value).removesuffix(".0")
    from decimal import Decimal  # Imported here, because it costs start-up time and such numbers are rare.

    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    scale = int(exponent) + len(digits) - 1
    text = "".join(map(str, digits))
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if scale < 0 else '+'}{abs(scale):02d}"


def type_name(value: Any) -> str:
    """Return Go's %T for a decoded JSON value."""
    if value is None:
        return "<nil>"
    if type(value) is int and not -(2**63) <= value < 2**63:
        return "float64"
    return _TYPES.get(type(value), type(value).__name__)


_TYPES: dict[type, str] = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
}
_KINDS: dict[type, str] = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


def kind_of(value: Any) -> str:
    """Return the JSON kind as Go's decoder names it in its errors."""
    return _KINDS.get(type(value), "null")


def label_selector(selector: Mapping[str, Any] | None) -> str:
    """Return Go's %v for a LabelSelector."""
    if selector is None:
        return "nil"
    labels = selector.get("matchLabels") or {}
    pairs = "".join(f"{key}: {labels[key]}," for key in sorted(labels))
    needs = "".join(
        f"LabelSelectorRequirement{{Key:{each['key']},Operator:{each['operator']},"
        f"Values:[{' '.join(each.get('values') or ())}],}},"
        for each in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{pairs}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{needs}}},}}"
    )


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
