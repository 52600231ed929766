"""Conversion between JSON and values: objects, maps and lists with a schema, converted when they are read, and results
of expressions as JSON.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

from setpoint.meta.cel.compile_loops import entries
from setpoint.meta.cel.go_text import format_duration_seconds, format_timestamp, read_duration, read_timestamp
from setpoint.meta.cel.lexer import escape_property
from setpoint.meta.cel.operators import equals
from setpoint.meta.cel.values import (
    MISSING,
    SECOND,
    CelError,
    Duration,
    Message,
    Opaque,
    Optional,
    Timestamp,
    TypedList,
    TypedMap,
    Uint,
    is_list,
    is_map,
    no_such_overload,
    type_of_value,
)

_PART = re.compile(r"(?<!\d)(\d++)\s*+([A-Za-zµ]++)", re.ASCII)
_UNITS = (
    # Names of a unit; anything that starts with the last one is accepted too.
    (1, ("ns", "nano")),
    (10**3, ("us", "µs", "micro")),
    (10**6, ("ms", "milli")),
    (SECOND, ("s", "sec")),
    (60 * SECOND, ("m", "min")),
    (3600 * SECOND, ("h", "hr", "hour")),
    (86400 * SECOND, ("d", "day")),
    (7 * 86400 * SECOND, ("w", "wk", "week")),
)


def parse_duration(text: str) -> Duration | None:
    """Parse a duration; None if it is invalid."""
    found = read_duration(text)
    if found is not None:
        return found
    total, matched = 0, False
    for part in _PART.finditer(text):
        unit = part[2].lower()
        for nanoseconds, words in _UNITS:
            if unit in words or unit.startswith(words[-1]):
                total += int(part[1][:18]) * nanoseconds
                matched = True
    return Duration(total) if matched else None


Reading = Callable[[Any], Any]
Access = dict[str, tuple[str, Reading | None]]
"""Property and conversion function by identifier."""


def _comparable(other: Any, is_kind: Callable[[Any], bool]) -> bool:
    """Return whether `other` is of the same kind; False for null. Any other value is an error."""
    if is_kind(other):
        return True
    if other is None:
        return False
    raise no_such_overload()


class TypedObject(TypedMap):
    """An object with known properties. A property that is null is absent."""

    __slots__ = ("_access", "_by_key", "raw")

    def __init__(self, raw: dict[str, Any], access: Access, by_key: Access) -> None:
        self.raw = raw
        self._access = access
        self._by_key = by_key

    def __len__(self) -> int:
        return len(self.raw)

    def __iter__(self) -> Iterator[str]:
        return (self._by_key[key][0] for key in self.raw if key in self._by_key)

    def find(self, key: Any) -> Any:
        if type(key) is not str:
            raise no_such_overload()
        known = self._access.get(key)
        if known is None:
            return MISSING
        value = self.raw.get(known[0])
        if value is None:
            return MISSING
        return value if known[1] is None else known[1](value)

    def equals(self, other: Any) -> bool:
        if not _comparable(other, is_map) or len(other) != len(self.raw):
            return False
        for key, value in self.raw.items():
            known = self._by_key.get(key)
            if known is None:
                theirs = other.raw.get(key, MISSING) if isinstance(other, TypedObject) else MISSING
                if theirs is not MISSING and not equals(value, theirs):
                    return False
                continue
            mine, theirs = self.find(known[0]), _found(other, known[0])
            if (mine is MISSING) != (theirs is MISSING):
                return False
            if mine is not MISSING and not equals(mine, theirs):
                return False
        return True


def _found(container: Any, key: str) -> Any:
    return container.get(key, MISSING) if type(container) is dict else container.find(key)


class ReadMap(TypedMap):
    """A map from strings to values that are converted."""

    __slots__ = ("_read", "raw")

    def __init__(self, raw: dict[str, Any], read: Reading) -> None:
        self.raw = raw
        self._read = read

    def __len__(self) -> int:
        return len(self.raw)

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def find(self, key: Any) -> Any:
        if type(key) is not str:
            raise no_such_overload()
        value = self.raw.get(key, MISSING)
        return value if value is MISSING or value is None else self._read(value)

    def equals(self, other: Any) -> bool:
        if not _comparable(other, is_map) or len(other) != len(self.raw):
            return False
        for key in self.raw:
            theirs = _found(other, key)
            if theirs is MISSING or not equals(self.find(key), theirs):
                return False
        return True


class ReadList(TypedList):
    """A list whose elements are converted."""

    __slots__ = ("_read", "raw")

    def __init__(self, raw: list[Any], read: Reading | None) -> None:
        self.raw = raw
        self._read = read

    def __len__(self) -> int:
        return len(self.raw)

    def __iter__(self) -> Iterator[Any]:
        if self._read is None:
            return iter(self.raw)
        read = self._read
        return (None if value is None else read(value) for value in self.raw)

    def __getitem__(self, index: int) -> Any:
        value = self.raw[index]
        return value if self._read is None or value is None else self._read(value)

    def equals(self, other: Any) -> bool:
        return _comparable(other, is_list) and len(other) == len(self.raw) and all(map(equals, self, other))

    def plus(self, other: Any) -> Any:
        return [*self, *other]


def _scalar_key(value: Any) -> Any:
    if is_list(value) or is_map(value):
        raise CelError("listSet operations are only supported on lists of scalar values")
    return (type(value), value)


class SetList(ReadList):
    """A list with `x-kubernetes-list-type: set`: order is ignored, and adding adds only new elements."""

    __slots__ = ()

    def equals(self, other: Any) -> bool:
        if not _comparable(other, is_list) or len(other) != len(self.raw):
            return False
        return {_scalar_key(value) for value in self} == {_scalar_key(value) for value in other}

    def plus(self, other: Any) -> Any:
        elements = list(self)
        known = {_scalar_key(value) for value in elements}
        for value in other:
            key = _scalar_key(value)
            if key not in known:
                known.add(key)
                elements.append(value)
        return SetList(elements, None)


class MapList(ReadList):
    """A list with `x-kubernetes-list-type: map`: elements are identified by their keys, and adding replaces equal
    ones."""

    __slots__ = ("_keys",)

    def __init__(self, raw: list[Any], read: Reading | None, keys: tuple[str, ...]) -> None:
        super().__init__(raw, read)
        self._keys = keys

    def _key(self, element: Any) -> Any:
        if not is_map(element):
            return None
        found = [_found(element, key) for key in self._keys]
        return tuple((type(value), _hashable(value)) for value in found)

    def equals(self, other: Any) -> bool:
        if not _comparable(other, is_list) or len(other) != len(self.raw):
            return False
        mine = {self._key(element): element for element in self}
        seen = set()
        for element in other:
            key = self._key(element)
            if key not in mine or not equals(mine[key], element):
                return False
            seen.add(key)
        return len(seen) == len(mine)

    def plus(self, other: Any) -> Any:
        elements = list(self)
        places = {self._key(element): index for index, element in enumerate(elements)}
        for element in other:
            place = places.get(self._key(element))
            if place is None:
                elements.append(element)
            else:
                elements[place] = element
        return MapList(elements, None, self._keys)


def _hashable(value: Any) -> Any:
    return value if type(value) in (str, int, float, bool, Uint, bytes, type(None)) else repr(value)


# -- readers


def read_list(list_type: str, keys: tuple[str, ...], element: Reading | None) -> Reading | None:
    if list_type == "set":
        return lambda document: SetList(document, element) if isinstance(document, list) else document
    if list_type == "map":
        escaped = tuple(escape_property(key) or key for key in keys)
        return lambda document: MapList(document, element, escaped) if isinstance(document, list) else document
    if element is None:
        return None
    return lambda document: ReadList(document, element) if isinstance(document, list) else document


def read_map(element: Reading | None) -> Reading | None:
    if element is None:
        return None
    return lambda document: ReadMap(document, element) if isinstance(document, dict) else document


def read_number(document: Any) -> Any:
    return float(document) if type(document) is int else document


def _date_time(text: Any) -> Any:
    if text == "":
        return Timestamp(0)
    found = read_timestamp(text) if isinstance(text, str) else None
    if found is None:
        raise CelError(f"Invalid date-time formatted string {text}")
    return found


def _date(text: Any) -> Any:
    try:
        days = (date.fromisoformat(text) - date(1970, 1, 1)).days
    except (ValueError, TypeError):
        raise CelError(f"Invalid date formatted string {text}") from None
    return Timestamp(days * 86400 * SECOND)


def _duration(text: Any) -> Any:
    found = parse_duration(text) if isinstance(text, str) else None
    if found is None:
        raise CelError(f"Invalid duration {text}")
    return found


def _byte(text: Any) -> Any:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise CelError(f"Invalid byte formatted string {text}") from None


_READERS: dict[str, Reading] = {"date-time": _date_time, "date": _date, "duration": _duration, "byte": _byte}


def reader_of_format(name: str) -> Reading:
    return _READERS[name]


def to_json(value: Any) -> Any:
    """Return the value as JSON: messages and maps become objects, bytes base64, times text. Raises CelError where a
    value has no JSON, or a key is no string."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is Uint:
        return int(value)
    if type(value) is bytes:
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration_seconds(value)
    if isinstance(value, Message):
        return {name: to_json(item) for name, item in value.fields.items()}
    if is_list(value):
        return [to_json(item) for item in value]
    if is_map(value):
        result = {}
        for key, item in entries(value):
            if type(key) is not str:
                raise CelError(f"map key {key!r} is of type {type_of_value(key).name}, not string")
            result[key] = to_json(item)
        return result
    if isinstance(value, Optional) and value.present:
        return to_json(value.value)
    if isinstance(value, Opaque):
        return str(value)
    raise CelError(f"{type_of_value(value).name} cannot be converted to JSON")


def misnamed_types(value: Any) -> list[str]:
    """Return errors for messages `Object.a.b{}` that are not in the field that their type name says."""
    problems: list[str] = []
    _check_names(value, value.type.name if isinstance(value, Message) else "", problems)
    return problems


def _check_names(value: Any, path: str, problems: list[str]) -> None:
    if isinstance(value, Message):
        name = value.type.name
        if name != path:
            problems.append(
                f'unexpected type name "{name}", expected "{path}", which matches field name path from root Object type'
            )
        for field, item in value.fields.items():
            _check_names(item, f"{path}.{field}", problems)
    elif is_list(value):
        for item in value:
            _check_names(item, path, problems)
    elif is_map(value):
        for _, item in entries(value):
            _check_names(item, path, problems)
