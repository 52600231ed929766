"""JSON, sorting and comparison in bounded steps, for large values on a worker thread.

One call into C, such as orjson's or the sort of a long list, holds the interpreter lock until it returns: tens of
milliseconds for a document of megabytes, in which the event loop cannot run. `loads` and `dumps` give orjson pieces of
bounded size instead and return what orjson would; `sorted_in_chunks` and `equal` also work in steps. All of them are
slower than the one call, so small values should not be processed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from heapq import merge
from itertools import islice
from typing import Any

import orjson

CHUNK_SIZE = 10_000
"""Number of texts that are sorted in one call: a few milliseconds, in which no other thread runs."""
LARGE = 128 * 1024
"""Bytes from which on a document should be read and written in steps."""
WINDOW = 32 * 1024
"""Maximum number of bytes that are given to orjson at once, except for a single string or number that is longer."""
MAX_DEPTH = 254
"""Maximum nesting depth: the depth to which orjson can write."""
_LIGHT_DEPTH = 5
"""Nesting depth of the values that are read as part of a run of members."""
_FEW = 64
"""Maximum number of members of a container whose members are written one by one."""
_SPACE = b" \t\r\n"
_SPACED_COLON = re.compile(rb'"[ \t\r\n]+:')


def sorted_in_chunks(texts: Iterable[str], key: Callable[[str], Any] | None = None) -> list[str]:
    """Return the texts sorted. Long inputs are sorted in chunks and merged: slower, but other threads can run."""
    found = list(texts)
    if len(found) <= CHUNK_SIZE:
        found.sort(key=key)
        return found
    chunks = (sorted(found[at : at + CHUNK_SIZE], key=key) for at in range(0, len(found), CHUNK_SIZE))
    return list(merge(*chunks, key=key))


def equal(a: Any, b: Any, *, same_json: bool = False) -> bool:
    """Return `a == b` for JSON values. With `same_json` numbers must also be written alike: 1 and 1.0 are not."""
    if a is b:
        return True
    if isinstance(a, dict) and isinstance(b, dict):
        if len(a) != len(b):
            return False
        return all(key in b and equal(value, b[key], same_json=same_json) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(equal(x, y, same_json=same_json) for x, y in zip(a, b, strict=True))
    return bool(a == b) and (not same_json or str(a) == str(b))


class _Patterns:
    """Regular expressions that find runs of complete members without giving every token to Python.

    Quantifiers are possessive, so a match takes linear time. They accept more than JSON: orjson decides about each run.
    """

    def __init__(self) -> None:
        space, string = r"[ \t\r\n]*+", r'"(?:[^"\\]++|\\.)*+"'
        scalar = rf'(?:{string}|[^ \t\r\n,\[\]{{}}":]++)'
        key = rf"(?:{string}{space}:{space})?+"
        member = rf"{space}{key}{scalar}{space}"
        for _ in range(_LIGHT_DEPTH):
            container = rf"[\[{{](?:{member},?+)*+{space}[\]}}]"
            member = rf"{space}{key}(?:{scalar}|{container}){space}"
        self.run = _compile(rf"(?:{member},)*+({member}(?=[\]}}]))?+")
        self.space = _compile(space)
        self.scalar = _compile(r'[^ \t\r\n,\[\]{}":]++')
        self.string_part = _compile(r'(?:[^"\\]++|\\.)*+')


def _compile(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode(), re.DOTALL)


_patterns = cache(_Patterns)
"""Compiled on first use: most processes never see a large document."""


class Unreadable(ValueError):
    """The document is rejected by orjson, or it is nested more deeply than orjson can write."""


def loads(data: bytes) -> tuple[Any, bool]:
    """Return the value, and whether an object in the document may contain a key twice. Of duplicate keys the last wins.

    Raises Unreadable.
    """
    return _Reader(data).read()


def read(data: bytes) -> Any:
    """Return the value as orjson reads it, in steps if the document is large. Raises orjson.JSONDecodeError."""
    if len(data) > LARGE:
        with suppress(Unreadable):
            return loads(data)[0]
    return orjson.loads(data)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._patterns = _patterns()
        self._may_have_duplicates = False

    def read(self) -> tuple[Any, bool]:
        try:
            value = self._value(1)
        except orjson.JSONDecodeError as error:
            raise Unreadable(str(error)) from None
        self._skip_space()
        if self._at < len(self._data):
            raise Unreadable("the document continues after its value")
        return value, self._may_have_duplicates

    def _skip_space(self) -> None:
        self._at = _end(self._patterns.space, self._data, self._at)

    def _value(self, depth: int) -> Any:
        """Read the value at the current position; `depth` is its own nesting depth if it is a container."""
        self._skip_space()
        first = self._data[self._at : self._at + 1]
        if first in (b"{", b"["):
            if depth + _LIGHT_DEPTH > MAX_DEPTH:
                raise Unreadable("the document is nested too deeply")
            return self._object(depth) if first == b"{" else self._array(depth)
        start = self._at
        if first == b'"':
            self._skip_string()
        else:
            self._at = _end(self._patterns.scalar, self._data, start)
        return orjson.loads(self._data[start : self._at])

    def _skip_string(self) -> None:
        """Advance from the opening quotation mark to behind the closing one."""
        data, at = self._data, self._at + 1
        while True:
            at = _end(self._patterns.string_part, data, at, at + WINDOW)
            following = data[at : at + 1]
            if following == b'"':
                self._at = at + 1
                return
            if len(data) - at < 2:
                raise Unreadable("a string has no end")

    def _array(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self._at += 1
        while True:
            start = self._at
            run = self._patterns.run.match(self._data, start, start + WINDOW)
            assert run is not None  # it may be empty
            if run.end() > start:
                self._at = run.end()
                complete = run.group(1) is not None
                items += self._run(b"[%b]", start, complete)
                if complete:
                    break
            elif not items and self._is_next(b"]"):
                break
            else:
                items.append(self._value(depth + 1))
                if not self._is_next(b","):
                    break
                self._at += 1
        self._close(b"]")
        return items

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self._at += 1
        while True:
            start = self._at
            run = self._patterns.run.match(self._data, start, start + WINDOW)
            assert run is not None  # it may be empty
            if run.end() > start:
                self._at = run.end()
                complete = run.group(1) is not None
                found = self._run(b"{%b}", start, complete)
                expected = len(members) + len(found)
                members.update(found)
                self._may_have_duplicates |= len(members) < expected
                if complete:
                    break
            elif not members and self._is_next(b"}"):
                break
            else:
                key = self._key()
                self._may_have_duplicates |= key in members
                members[key] = self._value(depth + 1)
                if not self._is_next(b","):
                    break
                self._at += 1
        self._close(b"}")
        return members

    def _run(self, container: bytes, start: int, complete: bool) -> Any:
        """Return the members from `start` to the current position; behind an incomplete run there is a comma."""
        text = container % self._data[start : self._at if complete else self._at - 1]
        found = orjson.loads(text)
        written = orjson.dumps(found)
        self._may_have_duplicates |= text != written and may_lose_keys(text, written)
        return found

    def _key(self) -> str:
        self._skip_space()
        start = self._at
        if self._data[start : start + 1] != b'"':
            raise Unreadable("an object has a member without a key")
        self._skip_string()
        key: str = orjson.loads(self._data[start : self._at])
        self._skip_space()
        if self._data[self._at : self._at + 1] != b":":
            raise Unreadable("a key has no value")
        self._at += 1
        return key

    def _is_next(self, mark: bytes) -> bool:
        self._skip_space()
        return self._data[self._at : self._at + 1] == mark

    def _close(self, bracket: bytes) -> None:
        """Advance behind the bracket that must be next."""
        if not self._is_next(bracket):
            raise Unreadable("a container has no end")
        self._at += 1


def _end(pattern: re.Pattern[bytes], data: bytes, at: int, limit: int | None = None) -> int:
    """Return where the match at this position ends; `at` if there is none."""
    found = pattern.match(data, at, len(data) if limit is None else limit)
    return at if found is None else found.end()


def may_lose_keys(data: bytes, written: bytes) -> bool:
    """Return whether a key of `data` may be missing in `written`, the compact form of the value that was read from it.

    It is cheap and may return false positives."""
    if data.translate(None, _SPACE) == written.translate(None, _SPACE):
        return False
    # Every key, and every `":` inside a string, is in both texts once, unless it is written in an odd way.
    same = data.count(b'":') == written.count(b'":')
    return not same or _SPACED_COLON.search(data) is not None or b"\\u0022" in data


def dumps(value: Any) -> bytes:
    """Return the value as orjson writes it. Raises orjson.JSONEncodeError."""
    pieces: list[bytes] = []
    _write(value, 1, pieces)
    return b"".join(pieces)


def _write(value: Any, depth: int, pieces: list[bytes]) -> None:
    """Append what orjson writes for the value; `depth` is its own nesting depth if it is a container."""
    kind = value.__class__
    if (kind is not dict and kind is not list) or not value:
        pieces.append(_at_depth(value, depth - 1))
    elif len(value) > _FEW:
        _write_batches(value, depth, pieces)
    elif kind is dict:
        separator = b"{"
        for key, member in value.items():
            pieces += (separator, orjson.dumps({key: 0})[1:-2])
            _write(member, depth + 1, pieces)
            separator = b","
        pieces.append(b"}")
    else:
        separator = b"["
        for member in value:
            pieces.append(separator)
            _write(member, depth + 1, pieces)
            separator = b","
        pieces.append(b"]")


def _write_batches(value: Any, depth: int, pieces: list[bytes]) -> None:
    """Append a container of many members, so many at a time that they fill about a window."""
    kind, brackets = value.__class__, (b"{", b"}") if value.__class__ is dict else (b"[", b"]")
    members = iter(value.items() if kind is dict else value)
    separator, size = brackets[0], _FEW
    while batch := kind(islice(members, size)):
        text = _at_depth(batch, depth - 1)[1:-1]
        pieces += (separator, text)
        separator = b","
        size = max(1, min(size * 4, size * WINDOW // len(text)))
    pieces.append(brackets[1])


def _at_depth(value: Any, depth: int) -> bytes:
    """Write a value that is inside so many containers, which count for the limit on the depth."""
    for _ in range(depth):
        value = [value]
    text = orjson.dumps(value)
    return text[depth:-depth] if depth else text
