"""Values that JSON writes as one text or number, and protobuf as a message of their own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from setpoint.meta.body import BodyError, parse_json
from setpoint.meta.protobuf.wire import LENGTH, VARINT, Known, ProtobufError, fields, int32, int64, text
from setpoint.meta.quantity import QuantityError, canonical
from setpoint.meta.schema import Shape
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
            micros = int(int32(value) / 1000)  # towards zero, as upstream cuts it
    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=micros)
    except OverflowError:  # upstream stores times that no JSON client can read
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
