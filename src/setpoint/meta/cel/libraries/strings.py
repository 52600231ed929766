"""The strings extension of CEL, at the version that Kubernetes uses."""

from __future__ import annotations

import string
from typing import Any

from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.libraries.quoting import cel_quote
from setpoint.meta.cel.libraries.string_format import format_string
from setpoint.meta.cel.operators import show
from setpoint.meta.cel.values import MAX_CHARACTERS, CelError, bounded

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
        ("string_format", "string::format(list(dyn)) -> string", format_string),
        ("strings_quote", "strings.quote(string) -> string", cel_quote),
        ("list_join", "list(string)::join() -> string", _join),
        ("list_join_string", "list(string)::join(string) -> string", _join),
    ),
)
