"""Request bodies: bytes to plain values, with what strict field validation needs to know of the text.

Reading is bounded: nesting to MAX_DEPTH (upstream allows 10,000, which nothing real needs), the number of values to
MAX_VALUES, YAML aliases to a budget.
Where upstream replaces what is no Unicode by U+FFFD, so does this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from setpoint.meta import chunked_json
from setpoint.meta.chunked_json import LARGE, MAX_DEPTH, may_lose_keys
from setpoint.meta.decode_report import MAX_STRICT_ENTRIES, DecodeError, Pairs, describe, number_text
from setpoint.meta.goformat import quote
from setpoint.meta.json_syntax import depth_error, early_syntax_error, read_json, syntax_error

MAX_VALUES = 250_000
"""Maximum number of commas and opening brackets in a JSON document, about its number of values."""
_PIECE = 64 * 1024
_SURROGATES = re.compile("[\ud800-\udfff]")


class BodyError(ValueError):
    """The body cannot be parsed; the message is upstream's."""


def parse_json(data: bytes) -> tuple[Any, list[str]]:
    """Return the value, and the `duplicate field "..."` entries. Of duplicate keys the last wins. Raises BodyError."""
    if len(data) > MAX_VALUES and _has_too_many_values(data):
        raise BodyError(early_syntax_error(data, MAX_DEPTH) or "json: document contains too many values")
    try:
        value, may_have_duplicates = chunked_json.loads(data) if len(data) > LARGE else _load(data)
    except (orjson.JSONDecodeError, chunked_json.Unreadable):
        return _parse_odd(data)
    return value, _duplicates(read_json(data, object_pairs_hook=Pairs)) if may_have_duplicates else []


def _load(data: bytes) -> tuple[Any, bool]:
    """Return the value, and whether an object in the document may contain a key twice."""
    value = orjson.loads(data)
    written = _write(data, value)
    return value, data != written and may_lose_keys(data, written)


def _has_too_many_values(data: bytes) -> bool:
    if _punctuation(data) <= MAX_VALUES:
        return False
    # Perhaps it is the punctuation of texts.
    count = 0
    for text in _outside_strings(data):
        count += _punctuation(text)
        if count > MAX_VALUES:
            return True
    return False


def _outside_strings(data: bytes) -> Iterator[bytes]:
    """Yield what a JSON text has outside its strings, in pieces of bounded size."""
    at, inside = 0, False
    while at < len(data):
        piece = data[at : at + _PIECE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # the character that is escaped is in the next piece
            piece = piece[:-1] or data[at : at + 2]
        at += len(piece)
        texts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(texts[inside::2])
        inside ^= len(texts) % 2 == 0


def _punctuation(data: bytes) -> int:
    """Return the number of values or slightly more: each one follows a comma or is the first in a container."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _write(data: bytes, value: Any) -> bytes:
    try:
        return chunked_json.dumps(value) if len(data) > LARGE else orjson.dumps(value)
    except orjson.JSONEncodeError:  # all that can be wrong with what was just read
        raise BodyError(depth_error(data, MAX_DEPTH)) from None


def _parse_odd(data: bytes) -> tuple[Any, list[str]]:
    """Parse a text that orjson rejects: invalid, too deep, or with characters or numbers that Go accepts."""
    if problem := syntax_error(data, MAX_DEPTH):
        raise BodyError(problem)
    text = data.decode(errors="replace")
    try:
        pairs = read_json(text, object_pairs_hook=Pairs, parse_int=_int, parse_float=_float)
        value = _plain(pairs)
    except RecursionError:
        raise BodyError(depth_error(data, MAX_DEPTH)) from None
    _write(data, value)
    return value, _duplicates(pairs)


def _int(text: str) -> int | float:
    number = int(text) if len(text) <= 20 else _float(text)
    return number if -(2**63) <= number < 2**64 else float(number)


def _float(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise BodyError(f"json: cannot unmarshal number {text} into Go value of type float64")
    return number


def _plain(value: Any) -> Any:
    """Return pairs as dicts, lone surrogates replaced."""
    if isinstance(value, Pairs):
        return {_whole(key): _plain(one) for key, one in value}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return _whole(value) if isinstance(value, str) else value


def _whole(text: str) -> str:
    """Return the text with lone surrogates replaced, in chunks: a single call would hold the interpreter lock for
    long."""
    pieces = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
    return "".join(_SURROGATES.sub("\ufffd", piece) for piece in pieces)


def _duplicates(value: Any) -> list[str]:
    found: dict[str, None] = {}

    def walk(value: Any, where: str) -> None:
        if isinstance(value, Pairs):
            seen = set()
            for key, one in value:
                below = f"{where}.{key}" if where else key
                if key in seen:
                    found[f"duplicate field {quote(below)}"] = None
                seen.add(key)
                walk(one, below)
        elif isinstance(value, list):
            for at, one in enumerate(value):
                walk(one, f"{where}[{at}]")

    walk(value, "")
    return list(found)[:MAX_STRICT_ENTRIES]


_ODD_NUMBERS = re.compile(rb"[0-9][.eE]|[0-9]{19}")


def plain_numbers(data: bytes, value: Any) -> Any:
    """Return the value read from `data` with its numbers as upstream represents them where no type is declared.

    A float without a fraction becomes an integer, an integer beyond 64 bits a float."""
    # In pieces that overlap by the longest match, because a single search would hold the interpreter lock for long.
    pieces = range(0, len(data), _PIECE)
    odd = any(_ODD_NUMBERS.search(data, at, at + _PIECE + 19) for at in pieces)
    return _plain_numbers(value) if odd else value


def _plain_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain_numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain_numbers(one) for one in value]
    if value.__class__ is float:
        return int(value) if value.is_integer() and abs(value) < 2**63 else value
    return float(value) if value.__class__ is int and not -(2**63) <= value < 2**63 else value


def type_meta(value: Any) -> tuple[str, str]:
    """Return apiVersion and kind of a body, "" where absent. Raises DecodeError as upstream's type detection does."""
    if value is None:
        return "", ""
    if not isinstance(value, dict):
        into = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
        raise DecodeError(f"json: cannot unmarshal {describe(value)} into Go value of type {into}")
    found = []
    for name in value:
        if name in ("apiVersion", "kind"):
            if not isinstance(value[name], str | None):
                what = describe(value[name])
                raise DecodeError(f"json: cannot unmarshal {what} into Go struct field .{name} of type string")
    for name in ("apiVersion", "kind"):
        found.append(value.get(name) or "")
    return found[0], found[1]


def parse_yaml(data: bytes, *, modern: bool = False) -> tuple[Any, list[str]]:
    """Return the first document with sorted keys, as upstream's conversion to JSON has them, and errors for duplicate
    keys.

    With `modern`, yes, no, on and off are strings, as in YAML 1.2. Raises BodyError.
    """
    if data[:1] == b"{":  # Most clients send JSON, also as YAML.
        try:
            value, duplicates = parse_json(data)
        except BodyError:
            duplicates = ["perhaps it is YAML"]
        if not duplicates:
            return jsonable(value), []
    from setpoint.meta import yaml_read  # YAML costs start-up time and is rare

    return yaml_read.read(data, modern=modern)


def dump_yaml(value: Any) -> bytes:
    """Return the value as YAML in upstream's style: sorted keys, lists not indented."""
    from setpoint.meta import yaml_write  # YAML costs start-up time and is rare

    return yaml_write.write(value)


def jsonable(value: Any, key_text: Callable[[Any, Any], str] | None = None) -> Any:
    """Return the value of a YAML document as it would be decoded from JSON: keys are sorted strings, a whole float is
    an integer. `key_text(key, value)` returns the text of a key that is no string."""
    if value.__class__ is dict:
        if key_text is not None:
            value = {key if key.__class__ is str else key_text(key, one): one for key, one in value.items()}
        return {key: jsonable(value[key], key_text) for key in sorted(value)}
    if value.__class__ is list:
        return [jsonable(one, key_text) for one in value]
    if value.__class__ is float:
        if value != value or abs(value) == float("inf"):
            raise BodyError(f"json: unsupported value: {'NaN' if value != value else '+Inf' if value > 0 else '-Inf'}")
        if value.is_integer() and abs(value) < 2**63:
            return int(number_text(value))
    return value
