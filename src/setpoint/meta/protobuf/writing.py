"""Objects to protobuf messages, by the Type of the object and the numbers of its fields.

Each STRUCT gets a table on first use: from the name of a field to a function that appends it to the message. A field is
written if the object has it and it is not null. That is what a Go client needs to know: an absent field is nil, or the
zero value where it cannot be nil.
"""

from __future__ import annotations

import struct
from binascii import a2b_base64
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson

from setpoint.meta.objects import Obj
from setpoint.meta.protobuf.reading import Numbers
from setpoint.meta.protobuf.wire import FIXED64, LENGTH, MAGIC, VARINT
from setpoint.meta.schema import Shape, Type
from setpoint.meta.times import parse_duration, parse_time

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNSIGNED = 2**64 - 1
_NO_ENCODING = b"\x1a\x00\x22\x00"
"""Empty contentEncoding and contentType at the end of an envelope, which upstream writes."""

_Append = Callable[[bytearray, Any], None]
"""Function that appends a field with this value, including its tag."""
_Write = Callable[[Any], bytes]
"""Function that returns the content of a length-delimited value."""


def write_message(type_: Type, obj: Obj, numbers: Numbers) -> bytes:
    """Return the object as a message. What is in no field of the type (`kind`, `apiVersion`) is left out."""
    return _message(type_, type_.name, numbers)(obj)


def write_envelope(api_version: str, kind: str, content: bytes) -> bytes:
    """Return a whole body: the content with its type in front."""
    type_meta = sized(1, api_version.encode()) + sized(2, kind.encode())
    return MAGIC + sized(1, type_meta) + sized(2, content) + _NO_ENCODING


def write_watch_event(kind: str, body: bytes) -> bytes:
    """Return one frame of a watch: its length in four bytes, then the event with an object that is a whole body."""
    event = sized(1, kind.encode()) + sized(2, sized(1, body))
    return len(event).to_bytes(4) + event


def sized(number: int, content: bytes) -> bytes:
    """Return a field of the wire type that has its length in front."""
    return varint(number << 3 | LENGTH) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Return an integer in the base of 128; a negative one as the unsigned 64-bit number with the same bits."""
    if 0 <= value < 0x80:
        return bytes((value,))
    value &= _UNSIGNED
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message(type_: Type, definition: str, numbers: Numbers) -> _Write:
    key = f"protobuf writer {definition}"
    known: _Write | None = type_.compiled.get(key)
    if known is None:
        known = type_.compiled[key] = _make_message(type_, definition, numbers)
    return known


def _make_message(type_: Type, definition: str, numbers: Numbers) -> _Write:
    table: dict[str, _Append] = {}
    embedded: list[tuple[bytes, frozenset[str], _Write]] = []
    for number, name, _, in_place in numbers(definition):
        if in_place:
            names = frozenset(_names(name, numbers))
            embedded.append((varint(number << 3 | LENGTH), names, _message(type_, name, numbers)))
        else:
            table[name] = _field(type_.fields[name].type, number, numbers)

    def write(obj: Obj) -> bytes:
        out = bytearray()
        for name, value in obj.items():
            append = table.get(name)
            if append is not None and value is not None:
                append(out, value)
        for tag, names, inner in embedded:
            content = inner({name: obj[name] for name in names & obj.keys()})
            if content:
                out += tag
                out += varint(len(content))
                out += content
        return bytes(out)

    return write


def _names(definition: str, numbers: Numbers) -> list[str]:
    """Return the names that JSON has for the fields of a definition, with those of definitions within it."""
    found = []
    for _, name, _, in_place in numbers(definition):
        found += _names(name, numbers) if in_place else [name]
    return found


def _field(type_: Type, number: int, numbers: Numbers) -> _Append:
    shape = type_.shape
    if shape is Shape.LIST:
        assert type_.item is not None
        append = _scalar(type_.item, number) or _content(type_.item, number, numbers)
        return _each(append)
    if shape is Shape.MAP:
        assert type_.item is not None
        return _map(type_.item, number, numbers)
    return _scalar(type_, number) or _content(type_, number, numbers)


def _scalar(type_: Type, number: int) -> _Append | None:
    """Return the function that appends a number; None if the type is not a number."""
    if type_.shape in (Shape.BOOL, Shape.INT32, Shape.INT64):
        tag = varint(number << 3 | VARINT)

        def integer(out: bytearray, value: int) -> None:
            out += tag
            out += varint(int(value))

        return integer
    if type_.shape is Shape.FLOAT:
        tag = varint(number << 3 | FIXED64)

        def double(out: bytearray, value: float) -> None:
            out += tag
            out += struct.pack("<d", value)

        return double
    return None


def _content(type_: Type, number: int, numbers: Numbers) -> _Append:
    tag = varint(number << 3 | LENGTH)
    write = _element(type_, numbers)

    def append(out: bytearray, value: Any) -> None:
        content = write(value)
        out += tag
        out += varint(len(content))
        out += content

    return append


def _each(append: _Append) -> _Append:
    def append_all(out: bytearray, values: list[Any]) -> None:
        for value in values:
            append(out, value)

    return append_all


def _map(item: Type, number: int, numbers: Numbers) -> _Append:
    """Append an entry for each key, in the order of the keys: the key is its first field, the value its second."""
    tag = varint(number << 3 | LENGTH)
    write = _element(item, numbers)

    def append(out: bytearray, values: Obj) -> None:
        for key in sorted(values):
            entry = sized(1, key.encode()) + sized(2, write(values[key]))
            out += tag
            out += varint(len(entry))
            out += entry

    return append


# -- elements ---------------------------------------------------------------------------------------------------------


def _element(type_: Type, numbers: Numbers) -> _Write:
    shape = type_.shape
    if shape is Shape.STRUCT:
        return _struct_element(type_, numbers)
    if shape is Shape.LIST:
        return lambda values: b"".join(sized(1, value.encode()) for value in values)
    if shape is Shape.ANY and type_.item is not None:
        return _schema_union(type_, type_.item, numbers)
    return _VALUES[shape]


def _struct_element(type_: Type, numbers: Numbers) -> _Write:
    """Return the writer of a struct. Types are recursive, so its table is built when the first one is written."""
    write: _Write | None = None

    def element(obj: Obj) -> bytes:
        nonlocal write
        if write is None:
            write = _message(type_, type_.name, numbers)
        return write(obj)

    return element


def _schema_union(type_: Type, schema_type: Type, numbers: Numbers) -> _Write:
    """Return the writer for a JSON schema or an alternative named by the type: a boolean, a list of schemas or of
    names."""
    schema = _struct_element(schema_type, numbers)
    alternative = type_.name.partition("PropsOr")[2]

    def boolean(value: Any) -> bytes:
        if isinstance(value, dict):
            return b"\x08\x01" + sized(2, schema(value))
        return b"\x08\x01" if value else b"\x08\x00"

    def listed(value: Any) -> bytes:
        if isinstance(value, dict):
            return sized(1, schema(value))
        each = schema if alternative == "Array" else str.encode
        return b"".join(sized(2, each(item)) for item in value)

    return boolean if alternative == "Bool" else listed


@lru_cache(maxsize=4096)
def _time(value: str) -> bytes:
    """Return the seconds and nanoseconds since 1970. Clusters are full of equal times."""
    try:
        since = parse_time(value) - _EPOCH
    except ValueError:  # Go has a year 0, Python does not.
        return b""
    seconds = since.days * 86400 + since.seconds
    return b"\x08%b\x10%b" % (varint(seconds), varint(since.microseconds * 1000))


def _int_or_string(value: int | str) -> bytes:
    if isinstance(value, str):
        return b"\x08\x01\x10\x00" + sized(3, value.encode())
    return b"\x08\x00\x10%b\x1a\x00" % varint(value)


_VALUES: dict[Shape, _Write] = {
    Shape.STRING: str.encode,
    Shape.BYTES: a2b_base64,
    Shape.QUANTITY: lambda value: sized(1, str(value).encode()),
    Shape.TIME: _time,
    Shape.MICROTIME: _time,
    Shape.DURATION: lambda value: b"\x08" + varint(parse_duration(value)),
    Shape.INT_OR_STRING: _int_or_string,
    Shape.ANY: lambda value: sized(1, orjson.dumps(value)),
}
