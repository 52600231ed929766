"""The strings extension of CEL at the version that Kubernetes uses, with `format` and its check of constant formats."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from typing import Any

from setpoint.meta.cel.compile_loops import entries
from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.go_text import cel_quote
from setpoint.meta.cel.libraries.standard import CONVERSIONS
from setpoint.meta.cel.operators import show
from setpoint.meta.cel.source import Issue
from setpoint.meta.cel.syntax import Call, Expr, ListExpr, Literal, MapExpr
from setpoint.meta.cel.types import Kind, Type
from setpoint.meta.cel.values import (
    MAX_CHARACTERS,
    CelError,
    Duration,
    Timestamp,
    Uint,
    bounded,
    is_list,
    is_map,
    type_of_value,
)
from setpoint.meta.goformat import quote

MAX_PRECISION = 1000
_DEFAULT_PRECISION = 6
_CONVERT = {identity: call for identity, _, call in CONVERSIONS}
_TEXT: dict[type, Callable[[Any], str]] = {
    str: str,
    bool: _CONVERT["bool_to_string"],
    bytes: _CONVERT["bytes_to_string"],
    float: _CONVERT["double_to_string"],
    Duration: _CONVERT["duration_to_string"],
    int: _CONVERT["int64_to_string"],
    Timestamp: _CONVERT["timestamp_to_string"],
    Uint: _CONVERT["uint64_to_string"],
}
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")

_ERRORS = {
    "b": "only integers and bools can be formatted as binary, was given {}",
    "d": "decimal clause can only be used on integers, was given {}",
    "f": "fixed-point clause can only be used on doubles, was given {}",
    "x": "only integers, byte buffers, and strings can be formatted as hex, was given {}",
    "o": "octal clause can only be used on integers, was given {}",
    "e": "scientific clause can only be used on doubles, was given {}",
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and "
    "timestamps, was given {}",
}


class _FormatError(Exception):
    """A clause cannot format an argument; for constants, `node` is the one that caused it."""

    def __init__(self, message: str, node: Expr | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.node = node


def _interpolate(text: str, count: int, show: Callable[[int, str, int | None], str]) -> str:
    """Expand a format. `show(index of the argument, clause, precision)` returns the text of each clause."""
    parts: list[str] = []
    at, argument, total = 0, 0, len(text)
    while at < len(text):
        percent = text.find("%", at)
        if percent < 0:
            parts.append(text[at:])
            break
        parts.append(text[at:percent])
        at = percent + 1
        if text.startswith("%", at):
            parts.append("%")
            at += 1
            continue
        if argument >= count:
            raise _FormatError(f"index {argument} out of range")
        if at >= len(text):
            raise _FormatError("unexpected end of string")
        precision: int | None = None
        if text[at] == ".":
            end = at + 1
            while end < len(text) and text[end] in "0123456789":
                end += 1
            if end >= len(text):
                raise _precision("could not find end of precision specifier")
            digits = text[at + 1 : end]
            if not digits:
                raise _precision(
                    'error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax'
                )
            precision = int(digits[:9])
            if precision > MAX_PRECISION:
                raise _precision(f"precision {precision} exceeds maximum allowed precision {MAX_PRECISION}")
            at = end
        clause = text[at]
        at += 1
        if clause not in "sdfebxXo":
            raise _FormatError(f'could not parse formatting clause: unrecognized formatting clause "{clause}"')
        try:
            parts.append(show(argument, clause, precision))
            total += len(parts[-1])
            bounded(total, MAX_CHARACTERS)
        except _FormatError as error:
            raise _FormatError(f"error during formatting: {error.message}", error.node) from None
        argument += 1
    return "".join(parts)


def _precision(message: str) -> _FormatError:
    return _FormatError(f"could not parse formatting clause: error while parsing precision: {message}")


def _format_string(text: str, arguments: Sequence[Any]) -> str:
    """Implement `string.format(list)`."""
    values = list(arguments)
    try:
        return _interpolate(text, len(values), lambda index, clause, p: _show(values[index], clause, p))
    except _FormatError as error:
        raise CelError(error.message) from None


def _show(value: Any, clause: str, precision: int | None) -> str:
    kind = type(value)
    if clause == "s":
        return _show_string(value)
    if clause == "d" and kind in (int, Uint):
        return str(int(value))
    if clause in "fe" and (kind is float or value in ("NaN", "Infinity", "-Infinity")):
        return _fixed(float(value), precision) if clause == "f" else _scientific(float(value))
    if clause == "b" and kind in (int, Uint, bool):
        return f"{int(value):b}"
    if clause == "o" and kind in (int, Uint):
        return f"{int(value):o}"
    if clause in "xX" and kind in (int, Uint, str, bytes):
        if kind in (int, Uint):
            shown = f"{int(value):x}"
        else:
            shown = (value if kind is bytes else value.encode("utf-8", "surrogatepass")).hex()
        return shown.upper() if clause == "X" else shown
    raise _FormatError(_ERRORS[clause.lower()].format(type_of_value(value).name))


def _fixed(value: float, precision: int | None) -> str:
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.{_DEFAULT_PRECISION if precision is None else precision}f}"


def _scientific(value: float) -> str:
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    mantissa, _, exponent = f"{value:.6e}".partition("e")
    shown = f"{abs(int(exponent)):02d}".translate(_SUPERSCRIPT)
    sign = "⁻" if int(exponent) < 0 else ""
    return f"{mantissa}×10{sign}{shown}"


def _show_string(value: Any) -> str:
    """Format a value with `%s`."""
    if value is None:
        return "null"
    if is_list(value):
        return "[" + ", ".join(_member(element) for element in value) + "]"
    if is_map(value):
        return _show_map(value)
    if isinstance(value, Type):
        return value.name
    convert = _TEXT.get(type(value))
    if convert is None:
        raise _FormatError(_ERRORS["s"].format(type_of_value(value).name))
    return convert(value)


def _show_map(value: Any) -> str:
    pairs = []
    for key, item in entries(value):
        if type(key) not in (str, bool, int, Uint):
            raise _FormatError(f"no formatting function for map key of type {type_of_value(key).name}")
        pairs.append((_member(key), _member(item)))
    return "{" + ", ".join(f"{key}:{item}" for key, item in sorted(pairs)) + "}"


def _member(value: Any) -> str:
    """Return a value inside a list or map: as it would be written in an expression."""
    kind = type(value)
    if kind is str:
        return quote(value)
    if kind is bytes:
        return "b" + quote(_show_string(value))
    if kind is float:
        if value != value or math.isinf(value):
            return quote("NaN" if value != value else "+Inf" if value > 0 else "-Inf")
        return f"{value:.6f}"
    if kind in (Timestamp, Duration):
        word = "timestamp" if kind is Timestamp else "duration"
        return f"{word}({quote(_show_string(value))})"
    if value is None or is_list(value) or is_map(value) or isinstance(value, Type) or kind in _TEXT:
        return _show_string(value)
    raise _FormatError(f"no formatting function for {type_of_value(value).name}")


# -- before it runs

_ACCEPTED_KINDS: dict[str, frozenset[Kind]] = {
    "d": frozenset({Kind.INT, Kind.UINT}),
    "o": frozenset({Kind.INT, Kind.UINT}),
    "f": frozenset({Kind.DOUBLE, Kind.STRING}),
    "e": frozenset({Kind.DOUBLE, Kind.STRING}),
    "b": frozenset({Kind.INT, Kind.UINT, Kind.BOOL}),
    "x": frozenset({Kind.INT, Kind.UINT, Kind.STRING, Kind.BYTES}),
    "s": frozenset(
        {
            Kind.LIST,
            Kind.MAP,
            Kind.INT,
            Kind.UINT,
            Kind.DOUBLE,
            Kind.BOOL,
            Kind.STRING,
            Kind.TIMESTAMP,
            Kind.BYTES,
            Kind.DURATION,
            Kind.TYPE,
            Kind.NULL,
        }
    ),
}


def bad_format(call: Call) -> list[Issue]:
    """Return the errors in a call of `format` on a constant string with literal arguments."""
    if "string_format" not in call.overloads or len(call.arguments) != 1:
        return []
    text, given = call.target, call.arguments[0]
    if not isinstance(text, Literal) or not isinstance(text.value, str) or not isinstance(given, ListExpr):
        return []
    used = 0

    def check(index: int, clause: str, _: int | None) -> str:
        nonlocal used
        used += 1
        _check(given.elements[index], clause.lower())
        return ""

    try:
        _interpolate(text.value, len(given.elements), check)
    except _FormatError as error:
        return [Issue(error.message, (error.node or call).position)]
    if len(given.elements) > used:
        message = f"too many arguments supplied to string.format (expected {used}, got {len(given.elements)})"
        return [Issue(message, call.position)]
    return []


def _check(node: Expr, clause: str) -> None:
    if node.type.kind is not Kind.DYN and node.type.kind not in _ACCEPTED_KINDS[clause]:
        raise _FormatError(_ERRORS[clause].format(node.type.name), node)
    if clause != "s":
        return
    if isinstance(node, ListExpr):
        for element in node.elements:
            _check(element, clause)
    elif isinstance(node, MapExpr):
        for entry in node.entries:
            _check(entry.key, clause)
            _check(entry.value, clause)


_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


def _out_of_range(index: int) -> CelError:
    return CelError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise _out_of_range(start)
    if not part:
        return min(start, len(text))
    return text.find(part, start) if start < len(text) else -1


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


def _last_index_from(text: str, part: str, start: int) -> int:
    if start < 0:
        raise _out_of_range(start)
    if not part:
        return min(start, len(text))
    return text.rfind(part, 0, start + len(part)) if start < len(text) else -1


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    times = text.count(old) if count < 0 else min(text.count(old), count)
    bounded(len(text) + times * (len(new) - len(old)), MAX_CHARACTERS)
    return text.replace(old, new, count if count >= 0 else -1)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if not separator:
        characters = list(text)
        if count < 0 or len(characters) <= count:
            return characters
        return [*characters[: count - 1], "".join(characters[count - 1 :])]
    return text.split(separator, count - 1 if count > 0 else -1)


def _substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text[start:]


def _substring_range(text: str, start: int, end: int) -> str:
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


def _join(parts: Any, separator: str = "") -> str:
    texts = []
    for part in parts:
        if type(part) is not str:
            raise CelError(f"join: invalid input: {show(part)}")
        texts.append(part)
    bounded(sum(map(len, texts)) + len(separator) * len(texts), MAX_CHARACTERS)
    return separator.join(texts)


STRINGS = Library(
    "cel.lib.ext.strings",
    (
        ("string_char_at_int", "string::charAt(int) -> string", _char_at),
        ("string_index_of_string", "string::indexOf(string) -> int", _index_of),
        ("string_index_of_string_int", "string::indexOf(string, int) -> int", _index_of),
        ("string_last_index_of_string", "string::lastIndexOf(string) -> int", _last_index_of),
        ("string_last_index_of_string_int", "string::lastIndexOf(string, int) -> int", _last_index_from),
        ("string_lower_ascii", "string::lowerAscii() -> string", lambda text: text.translate(_LOWER)),
        ("string_replace_string_string", "string::replace(string, string) -> string", _replace),
        ("string_replace_string_string_int", "string::replace(string, string, int) -> string", _replace),
        ("string_split_string", "string::split(string) -> list(string)", _split),
        ("string_split_string_int", "string::split(string, int) -> list(string)", _split),
        ("string_substring_int", "string::substring(int) -> string", _substring),
        ("string_substring_int_int", "string::substring(int, int) -> string", _substring_range),
        ("string_trim", "string::trim() -> string", lambda text: text.strip(_SPACE)),
        ("string_upper_ascii", "string::upperAscii() -> string", lambda text: text.translate(_UPPER)),
        ("string_format", "string::format(list(dyn)) -> string", _format_string),
        ("strings_quote", "strings.quote(string) -> string", cel_quote),
        ("list_join", "list(string)::join() -> string", _join),
        ("list_join_string", "list(string)::join(string) -> string", _join),
    ),
)
