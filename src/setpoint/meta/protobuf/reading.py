"""Protobuf messages to plain values, by the Type of the object and the numbers of its fields."""

from __future__ import annotations

import struct
from binascii import b2a_base64
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, NamedTuple

from setpoint.meta.body import BodyError, parse_json
from setpoint.meta.chunked_json import MAX_DEPTH
from setpoint.meta.objects import Obj
from setpoint.meta.protobuf.wire import (
    FIXED64,
    LENGTH,
    VARINT,
    Known,
    ProtobufError,
    check_tag,
    fields,
    int32,
    int64,
    skip,
    span,
    text,
    varint,
    wrong_wire_type,
)
from setpoint.meta.quantity import QuantityError, canonical
from setpoint.meta.schema import Shape, Type
from setpoint.meta.times import format_duration, format_micro, format_time

ValueReader = Callable[[bytes, int, int], Any]
"""Function that reads the message between two positions."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)
"""Time that protobuf writes as an empty message and JSON as null."""

_QUANTITY: Known = {1: (LENGTH, "String_")}
_TIMESTAMP: Known = {1: (VARINT, "Seconds"), 2: (VARINT, "Nanos")}
_DURATION: Known = {1: (VARINT, "Duration")}
_INT_OR_STRING: Known = {1: (VARINT, "Type"), 2: (VARINT, "IntVal"), 3: (LENGTH, "StrVal")}
_RAW: Known = {1: (LENGTH, "Raw")}
_ITEMS: Known = {1: (LENGTH, "Items")}


def _quantity(data: bytes, at: int, end: int) -> str:
    value = "0"
    for _, start, stop in fields(data, at, end, "Quantity", _QUANTITY):
        try:
            value = canonical(text(data, start, stop))
        except QuantityError as error:
            raise ProtobufError(str(error)) from None
    return value


def _moment(data: bytes, at: int, end: int, *, finer: bool) -> datetime:
    if at == end:
        return _ZERO_TIME
    seconds = micros = 0
    for number, value, _ in fields(data, at, end, "Timestamp", _TIMESTAMP):
        if number == 1:
            seconds = int64(value)
        elif finer:
            micros = int(int32(value) / 1000)  # Truncated towards zero, as upstream does.
    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=micros)
    except OverflowError:  # Upstream stores times that JSON clients cannot read.
        raise ProtobufError("Time.MarshalJSON: year outside of range [0,9999]") from None


def _time(data: bytes, at: int, end: int) -> str:
    return format_time(_moment(data, at, end, finer=False))


def _micro_time(data: bytes, at: int, end: int) -> str:
    return format_micro(_moment(data, at, end, finer=True))


def _duration(data: bytes, at: int, end: int) -> str:
    nanos = 0
    for _, value, _ in fields(data, at, end, "Duration", _DURATION):
        nanos = int64(value)
    return format_duration(nanos)


def _int_or_string(data: bytes, at: int, end: int) -> int | str:
    kind, number, word = 0, 0, ""
    for field, first, last in fields(data, at, end, "IntOrString", _INT_OR_STRING):
        if field == 1:
            kind = int64(first)
        elif field == 2:
            number = int32(first)
        else:
            word = text(data, first, last)
    if kind not in (0, 1):
        raise ProtobufError("impossible IntOrString.Type")
    return word if kind else number


def _raw_json(data: bytes, at: int, end: int) -> Any:
    raw = b""
    for _, start, stop in fields(data, at, end, "RawExtension", _RAW):
        raw = data[start:stop]
    if not raw:
        return None
    try:
        return parse_json(raw)[0]
    except BodyError as error:
        raise ProtobufError(str(error)) from None


def texts(data: bytes, at: int, end: int) -> list[str]:
    """Return a list of strings where protobuf can have none by itself: in a map."""
    return [text(data, start, stop) for _, start, stop in fields(data, at, end, "ExtraValue", _ITEMS)]


VALUES: dict[Shape, ValueReader] = {
    Shape.QUANTITY: _quantity,
    Shape.TIME: _time,
    Shape.MICROTIME: _micro_time,
    Shape.DURATION: _duration,
    Shape.INT_OR_STRING: _int_or_string,
    Shape.ANY: _raw_json,
}


class FieldNumber(NamedTuple):
    number: int
    name: str
    """Field name in JSON; for fields that JSON inlines and protobuf puts in a message, the definition of that
    message."""
    go: str
    """Go's field name, for decoding errors."""
    in_place: bool = False


Numbers = Callable[[str], Iterable[FieldNumber]]
"""Function that returns the fields of a definition; raises KeyError if it has no protobuf form."""

_Store = Callable[[bytes, int, int, Obj, int], int]
"""Function that reads a value at a position into the object and returns its end. The last argument is the depth."""
_Message = Callable[[bytes, int, int, Obj, int], None]
"""Function that reads the fields between two positions into the object."""
_Element = Callable[[bytes, int, int, int], Any]
"""Function that reads the value between two positions."""


def read_message(type_: Type, data: bytes, start: int, end: int, numbers: Numbers) -> Obj:
    """Return the message between two positions as an object of the type, not yet decoded. Raises ProtobufError."""
    out: Obj = {}
    _message(type_, type_.name, numbers)(data, start, end, out, 1)
    return out


def _message(type_: Type, definition: str, numbers: Numbers) -> _Message:
    key = f"protobuf {definition}"
    known: _Message | None = type_.compiled.get(key)
    if known is None:
        known = type_.compiled[key] = _make_message(type_, definition, numbers)
    return known


def _make_message(type_: Type, definition: str, numbers: Numbers) -> _Message:
    table: dict[int, _Store] = {}
    names: dict[int, str] = {}
    for number, name, go, in_place in numbers(definition):
        names[number] = go
        if in_place:
            table[number << 3 | LENGTH] = _in_place(type_, name, numbers)
        else:
            for wire, store in _field(type_.fields[name].type, name, numbers):
                table[number << 3 | wire] = store
    return _reader(definition, table, names)


def _reader(definition: str, table: dict[int, _Store], names: dict[int, str]) -> _Message:
    message = definition.rpartition(".")[2]

    def odd(data: bytes, start: int, at: int, end: int, tag: int, out: Obj, depth: int) -> int:
        """Read a field that is not in the table: unknown, or known and invalid, or with a tag longer than necessary."""
        number = check_tag(tag, message)
        if number not in names:
            return skip(data, start, end)
        store = table.get(number << 3 | tag & 7)
        if store is None:
            raise wrong_wire_type(tag, names[number])
        return store(data, at, end, out, depth)

    def read(data: bytes, at: int, end: int, out: Obj, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ProtobufError("exceeded max depth")
        while at < end:
            start = at
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = varint(data, start, end)
            store = table.get(tag)
            if store is not None:
                at = store(data, at, end, out, depth)
            else:
                at = odd(data, start, at, end, tag, out, depth)

    return read


def _field(type_: Type, name: str, numbers: Numbers) -> Iterable[tuple[int, _Store]]:
    """Yield the reader of a field for each wire type that it may have."""
    shape = type_.shape
    if shape is Shape.LIST:
        assert type_.item is not None
        if type_.item.shape in _NUMBERS:
            plain = _NUMBERS[type_.item.shape]
            return (VARINT, _repeated_number(name, plain)), (LENGTH, _packed(name, plain))
        return ((LENGTH, _repeated(name, _element(type_.item, numbers))),)
    if shape is Shape.MAP:
        assert type_.item is not None
        return ((LENGTH, _map(name, type_.item, numbers)),)
    if shape in _NUMBERS:
        return ((VARINT, _number(name, _NUMBERS[shape])),)
    if shape is Shape.FLOAT:
        return ((FIXED64, _double(name)),)
    if shape is Shape.STRING:
        return ((LENGTH, _string(name)),)
    if shape is Shape.STRUCT:
        return ((LENGTH, _struct(name, type_, numbers)),)
    return ((LENGTH, _single(name, _element(type_, numbers))),)


_NUMBERS: dict[Shape, Callable[[int], Any]] = {Shape.BOOL: bool, Shape.INT32: int32, Shape.INT64: int64}


# -- fields -----------------------------------------------------------------------------------------------------------


def _string(name: str) -> _Store:
    def store(data: bytes, at: int, end: int, out: Obj, depth: int) -> int:
        start, stop = span(data, at, end)
        out[name] = text(data, start, stop)
        return stop

    return store


def _number(name: str, plain: Callable[[int], Any]) -> _Store:
    def store(data: bytes, at: int, end: int, out: Obj, depth: int) -> int:
        value, at = varint(data, at, end)
        out[name] = plain(value)
        return at

    return store


def _double(name: str) -> _Store:
    def store(data: bytes, at: int, end: int, out: Obj, depth: int) -> int:
        if at + 8 > end:
            raise ProtobufError("unexpected EOF")
        (value,) = struct.unpack_from("<d", data, at)
        if not isfinite(value):
            raise ProtobufError(
                f"json: unsupported value: {'NaN' if value != value else '+Inf' if value > 0 else '-Inf'}"
            )
        out[name] = value
        return at + 8

    return store


def _single(name: str, element: _Element) -> _Store:
    def store(data: bytes, at: int, end: int, out: Obj, depth: int) -> int:
        start, stop = span(data, at, end)
        out[name] = element(data, start, stop, depth)
        return stop

    return store


def _struct(name: str, type_: Type, numbers: Numbers) -> _Store:
    read: _Message | None = None

    def store(data: bytes, at: int, end: int, out: Obj, depth: int) -> int:
        nonlocal read
        if read is None:
            read = _message(type_, type_.name, numbers)
        start, stop = span(data, at, end)
        inner = out.get(name)
        if inner is None:  # Otherwise it comes in several parts, which are merged.
            inner = out[name] = {}
        read(data, start, stop, inner, depth + 1)
        return stop

    return store


def _in_place(type_: Type, definition: str, numbers: Numbers) -> _Store:
    read: _Message | None = None

    def store(data: bytes, at: int, end: int, out: Obj, depth: int) -> int:
        nonlocal read
        if read is None:
            read = _message(type_, definition, numbers)
        start, stop = span(data, at, end)
        read(data, start, stop, out, depth)
        return stop

    return store


def _repeated(name: str, element: _Element) -> _Store:
    def store(data: bytes, at: int, end: int, out: Obj, depth: int) -> int:
        start, stop = span(data, at, end)
        value = element(data, start, stop, depth)
        if name in out:
            out[name].append(value)
        else:
            out[name] = [value]
        return stop

    return store


def _repeated_number(name: str, plain: Callable[[int], Any]) -> _Store:
    def store(data: bytes, at: int, end: int, out: Obj, depth: int) -> int:
        value, at = varint(data, at, end)
        out.setdefault(name, []).append(plain(value))
        return at

    return store


def _packed(name: str, plain: Callable[[int], Any]) -> _Store:
    def store(data: bytes, at: int, end: int, out: Obj, depth: int) -> int:
        at, stop = span(data, at, end)
        values = out.setdefault(name, [])
        while at < stop:
            value, at = varint(data, at, stop)
            values.append(plain(value))
        return at

    return store


def _map(name: str, item: Type, numbers: Numbers) -> _Store:
    """Return the reader of a map, whose entries are messages: the key is field 1, the value field 2."""
    element = _element(item, numbers)

    def store(data: bytes, at: int, end: int, out: Obj, depth: int) -> int:
        at, stop = span(data, at, end)
        key = ""
        value: Any = None
        while at < stop:
            entry = at
            tag, at = varint(data, at, stop)
            number = int32(tag >> 3)
            if number in (1, 2):
                start, at = span(data, at, stop)
                if number == 1:
                    key = text(data, start, at)
                else:
                    value = element(data, start, at, depth)
            else:
                at = skip(data, entry, stop)
        out.setdefault(name, {})[key] = element(b"", 0, 0, depth) if value is None else value
        return stop

    return store


# -- elements ---------------------------------------------------------------------------------------------------------


def _element(type_: Type, numbers: Numbers) -> _Element:
    """Return the reader of a value that has a length, of a list, a map or a field of its own."""
    shape = type_.shape
    if shape is Shape.STRUCT:
        return _struct_element(type_, numbers)
    if shape is Shape.ANY and type_.item is not None:
        return _schema_union(type_, type_.item, numbers)
    if shape is Shape.STRING:
        return lambda data, at, end, depth: text(data, at, end)
    if shape is Shape.BYTES:
        return lambda data, at, end, depth: b2a_base64(data[at:end], newline=False).decode()
    read: ValueReader = texts if shape is Shape.LIST else VALUES[shape]
    return lambda data, at, end, depth: read(data, at, end)


def _struct_element(type_: Type, numbers: Numbers) -> _Element:
    read: _Message | None = None

    def element(data: bytes, at: int, end: int, depth: int) -> Obj:
        nonlocal read
        if read is None:
            read = _message(type_, type_.name, numbers)
        out: Obj = {}
        read(data, at, end, out, depth + 1)
        return out

    return element


def _schema_union(type_: Type, schema_type: Type, numbers: Numbers) -> _Element:
    """Return the reader for a JSON schema or an alternative named by the type: a boolean, a list of schemas or of
    names."""
    alternative = type_.name.partition("PropsOr")[2]
    table: dict[int, _Store]
    schema = _struct("schema", schema_type, numbers)
    if alternative == "Bool":
        names = {1: "Allows", 2: "Schema"}
        table = {1 << 3 | VARINT: _number("other", bool), 2 << 3 | LENGTH: schema}
    else:
        names = {1: "Schema", 2: "JSONSchemas" if alternative == "Array" else "Property"}
        other = _struct_element(schema_type, numbers) if alternative == "Array" else _element(_TEXT, numbers)
        table = {1 << 3 | LENGTH: schema, 2 << 3 | LENGTH: _repeated("other", other)}

    read = _reader(type_.name, table, names)

    def element(data: bytes, at: int, end: int, depth: int) -> Any:
        out: Obj = {}
        read(data, at, end, out, depth)
        if alternative == "Bool":
            return out["schema"] if "schema" in out else out.get("other", False)
        return out.get("other") or out.get("schema")

    return element


_TEXT = Type(Shape.STRING)
