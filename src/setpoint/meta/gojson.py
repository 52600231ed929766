"""Values to JSON as Go's encoder writes them: sorted keys, `<`, `>` and `&` escaped, numbers in Go's shortest form."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from setpoint.meta.yaml_scalar import shortest

# orjson is imported where it is needed, because loading it takes longer than encoding a small value (`json_codec`).

_INT64 = 2**63
_FEW = 2000
"""Number of values up to which loading orjson takes longer than it saves."""
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
    return _escaped(_dumps(value, ordered=ordered))


def indented(value: Any, *, ordered: bool = True) -> str:
    """Return Go's `json.MarshalIndent` with four blanks."""
    # No line of JSON begins within a text, so blanks at its beginning are indentation.
    lines = _dumps(value, ordered=ordered, indented=True).split(b"\n")
    return _escaped(b"\n".join([b" " * (len(line) - len(line.lstrip(b" "))) + line for line in lines]))


def indented_by_two(value: Any) -> str:
    """Return Go's `json.MarshalIndent` with two blanks."""
    return _escaped(_dumps(value, ordered=True, indented=True))


def go_round_trip(value: Any, *, unsigned: bool = False) -> Any:
    """Return the value as Go decodes it after encoding: floats without a fraction become integers within 63 bits.

    With `unsigned` the range is 64 bits.
    """
    if _count_plain(value):
        return value
    import orjson

    again = orjson.loads(_dumps(value, ordered=False))
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
    from decimal import Decimal  # few objects have floats

    return format(Decimal(repr(value)), "f").removesuffix(".0")


def _dumps(value: Any, *, ordered: bool, indented: bool = False) -> bytes:
    count = _count_plain(value)
    if 0 < count <= _FEW and "orjson" not in sys.modules:
        separators = (",", ": ") if indented else (",", ":")
        indent = 2 if indented else None
        text = json.dumps(value, ensure_ascii=False, sort_keys=ordered, indent=indent, separators=separators)
        try:
            return text.encode()
        except UnicodeEncodeError:
            count = 0
    import orjson

    option = (orjson.OPT_SORT_KEYS if ordered else 0) | (orjson.OPT_INDENT_2 if indented else 0)
    if not count:
        value = _encodable(value)
    try:
        return orjson.dumps(value, option=option)
    except orjson.JSONEncodeError:  # The text is not valid UTF-8.
        return orjson.dumps(_encodable(value), option=option)


def _count_plain(value: Any) -> int:
    """Return the number of values, or 0 if JSON encoders in Python do not encode all of them as Go does."""
    stack = [value]
    count = 0
    while stack:
        one = stack.pop()
        count += 1
        kind = type(one)
        if kind is dict:
            stack.extend(one.values())
        elif kind is list:
            stack.extend(one)
        elif kind is float or (kind is int and not -_INT64 <= one < _INT64):
            return 0
    return count


def _encodable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_encodable(key): _encodable(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_encodable(one) for one in value]
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, float):
        return _fragment(number(value))
    if isinstance(value, int) and not isinstance(value, bool) and not -_INT64 <= value < _INT64:
        return _fragment(number(float(value)))
    return value


def _fragment(text: str) -> Any:
    import orjson

    return orjson.Fragment(text)


def _escaped(data: bytes) -> str:
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], data).decode()
