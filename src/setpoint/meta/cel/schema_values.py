"""JSON that has a schema: objects, maps and lists whose content is converted when it is read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

from setpoint.meta.cel.escaping import escape
from setpoint.meta.cel.libraries.go_times import read_timestamp
from setpoint.meta.cel.operators import equals
from setpoint.meta.cel.strict_formats import parse_duration
from setpoint.meta.cel.values import (
    MISSING,
    SECOND,
    CelError,
    Timestamp,
    TypedList,
    TypedMap,
    Uint,
    is_list,
    is_map,
    no_such_overload,
)

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
    """An object with known properties. A property that is null is not there."""

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
        escaped = tuple(escape(key) or key for key in keys)
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
