"""Values to JSON as Go's encoder writes them: sorted keys, `<`, `>` and `&` escaped, numbers in Go's shortest form."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import orjson

from setpoint.meta.yaml_scalar import shortest

_INT64 = 2**63
_SORTED = orjson.OPT_SORT_KEYS
_SPECIAL = re.compile(rb"[<>&]|\xe2\x80[\xa8\xa9]")
_ESCAPES = {
    b"<": b"\\u003c",
    b">": b"\\u003e",
    b"&": b"\\u0026",
    b"\xe2\x80\xa8": b"\\u2028",
    b"\xe2\x80\xa9": b"\\u2029",
}


def compact(value: Any, *, ordered: bool = True) -> str:
    """Return Go's `json.Marshal`; without `ordered`, keys stay in their order, as in a struct."""
    return _escaped(_dumps(value, _SORTED if ordered else 0))


def indented(value: Any, *, ordered: bool = True) -> str:
    """Return Go's `json.MarshalIndent` with four blanks."""
    # No line of JSON begins within a text, so blanks at its beginning are indentation.
    lines = _dumps(value, orjson.OPT_INDENT_2 | (_SORTED if ordered else 0)).split(b"\n")
    return _escaped(b"\n".join([b" " * (len(line) - len(line.lstrip(b" "))) + line for line in lines]))


def indented_by_two(value: Any) -> str:
    """Return Go's `json.MarshalIndent` with two blanks."""
    return _escaped(_dumps(value, orjson.OPT_INDENT_2 | _SORTED))


def go_round_trip(value: Any, *, unsigned: bool = False) -> Any:
    """Return the value as Go decodes it after encoding: floats without a fraction become integers within 63 bits.

    With `unsigned` the range is 64 bits.
    """
    if _is_plain(value):
        return value
    again = orjson.loads(_dumps(value, 0))
    return again if unsigned else _within_int64(again)


def _within_int64(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _within_int64(one) for key, one in value.items()}
    if isinstance(value, list):
        return list(map(_within_int64, value))
    return float(value) if isinstance(value, int) and not -_INT64 <= value < _INT64 else value


def number(value: float) -> str:
    """Format a float: with an exponent below 1e-6 and from 1e21 on."""
    size = abs(value)
    if size != 0 and (size < 1e-6 or size >= 1e21):
        mantissa, _, exponent = shortest(value).partition("e")
        return f"{mantissa}e{exponent[0]}{exponent[1:].lstrip('0')}"
    return format(Decimal(repr(value)), "f").removesuffix(".0")


def _dumps(value: Any, option: int) -> bytes:
    if not _is_plain(value):
        value = _encodable(value)
    try:
        return orjson.dumps(value, option=option)
    except orjson.JSONEncodeError:  # The text is not valid UTF-8.
        return orjson.dumps(_encodable(value), option=option)


def _is_plain(value: Any) -> bool:
    """Return whether orjson encodes the value as Go does."""
    stack = [value]
    while stack:
        one = stack.pop()
        kind = type(one)
        if kind is dict:
            stack.extend(one.values())
        elif kind is list:
            stack.extend(one)
        elif kind is float or (kind is int and not -_INT64 <= one < _INT64):
            return False
    return True


def _encodable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_encodable(key): _encodable(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_encodable(one) for one in value]
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, float):
        return orjson.Fragment(number(value))
    if isinstance(value, int) and not isinstance(value, bool) and not -_INT64 <= value < _INT64:
        return orjson.Fragment(number(float(value)))
    return value


def _escaped(data: bytes) -> str:
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], data).decode()
