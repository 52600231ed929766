"""The protobuf wire format: varints, lengths, tags, skipping of unknown fields, and the envelope of a body.

Error messages are upstream's.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import NamedTuple

from setpoint.meta.body import BodyError

VARINT, FIXED64, LENGTH, GROUP, END_GROUP, FIXED32 = range(6)
"""Wire types: the lowest three bits of a tag."""

_MASK = 2**64 - 1
_INT64 = 2**63


class ProtobufError(BodyError):
    """The bytes are not a valid message; the error text is upstream's."""


_TRUNCATED = "unexpected EOF"
_NEGATIVE = "proto: negative length found during unmarshaling"


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return an unsigned number of up to 64 bits, and where it ends."""
    value = shift = 0
    while shift < 64:
        if at >= end:
            raise ProtobufError(_TRUNCATED)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK, at
        shift += 7
    raise ProtobufError("proto: integer overflow")


def span(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the start and the end of a length-delimited field."""
    if at < end and data[at] < 0x80:
        length = data[at]
        at += 1
    else:
        length, at = varint(data, at, end)
    stop = at + length
    if stop > end:
        raise ProtobufError(_NEGATIVE if stop >= _INT64 else _TRUNCATED)
    return at, stop


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("setpoint.replace-bytes", _replace_each_byte)


def text(data: bytes, start: int, stop: int) -> str:
    """Decode a string. Invalid UTF-8 becomes U+FFFD for each byte, as when upstream writes it as JSON."""
    return data[start:stop].decode("utf-8", "setpoint.replace-bytes")


def int64(value: int) -> int:
    return value - 2**64 if value >= _INT64 else value


def int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def check_tag(tag: int, message: str) -> int:
    """Return the number of a field."""
    number = int32(tag >> 3)
    if tag & 7 == END_GROUP:
        raise ProtobufError(f"proto: {message}: wiretype end group for non-group")
    if number <= 0:
        raise ProtobufError(f"proto: {message}: illegal tag {number} (wire type {tag})")
    return number


def wrong_wire_type(tag: int, field: str) -> ProtobufError:
    return ProtobufError(f"proto: wrong wireType = {tag & 7} for field {field}")


def skip(data: bytes, at: int, end: int) -> int:
    """Return the position after the field whose tag is at `at`, including nested groups."""
    depth = 0
    while at < end:
        tag, at = varint(data, at, end)
        wire = tag & 7
        if wire == VARINT:
            _, at = varint(data, at, end)
        elif wire == FIXED64:
            at += 8
        elif wire == LENGTH:
            length, at = varint(data, at, end)
            if length >= _INT64 or at + length >= _INT64:
                raise ProtobufError(_NEGATIVE)
            at += length
        elif wire == GROUP:
            depth += 1
        elif wire == END_GROUP:
            if not depth:
                raise ProtobufError("proto: unexpected end of group")
            depth -= 1
        elif wire == FIXED32:
            at += 4
        else:
            raise ProtobufError(f"proto: illegal wireType {wire}")
        if not depth:
            if at > end:
                break
            return at
    raise ProtobufError(_TRUNCATED)


Known = dict[int, tuple[int, str]]
"""Wire type and name of the fields of a message, by number."""


def fields(data: bytes, at: int, end: int, message: str, known: Known) -> Iterator[tuple[int, int, int]]:
    """Yield the known fields of a small message: the number, then where its bytes begin and end, or its varint
    and 0."""
    while at < end:
        start = at
        tag, at = varint(data, at, end)
        number = check_tag(tag, message)
        if number not in known:
            at = skip(data, start, end)
            continue
        wire, name = known[number]
        if tag & 7 != wire:
            raise wrong_wire_type(tag, name)
        if wire == VARINT:
            value, at = varint(data, at, end)
            yield number, value, 0
        else:
            start, at = span(data, at, end)
            yield number, start, at


MAGIC = b"k8s\x00"

_UNKNOWN: Known = {
    1: (LENGTH, "TypeMeta"),
    2: (LENGTH, "Raw"),
    3: (LENGTH, "ContentEncoding"),
    4: (LENGTH, "ContentType"),
}
_TYPE_META: Known = {1: (LENGTH, "APIVersion"), 2: (LENGTH, "Kind")}


class Envelope(NamedTuple):
    api_version: str
    kind: str
    start: int
    end: int
    """End of the object in the body."""


def open_envelope(body: bytes) -> Envelope:
    """Parse the envelope. Raises ProtobufError with upstream's message."""
    if not body:
        raise ProtobufError("empty data")
    if not body.startswith(MAGIC):
        raise ProtobufError(
            f"provided data does not appear to be a protobuf message, expected prefix [{' '.join(map(str, MAGIC))}]"
        )
    if len(body) == len(MAGIC):
        raise ProtobufError("empty body")
    api_version = kind = ""
    start = end = 0
    for number, first, last in fields(body, len(MAGIC), len(body), "Unknown", _UNKNOWN):
        if number == 1:
            for part, begin, stop in fields(body, first, last, "TypeMeta", _TYPE_META):
                if part == 1:
                    api_version = text(body, begin, stop)
                else:
                    kind = text(body, begin, stop)
        elif number == 2:
            start, end = first, last
    return Envelope(api_version, kind, start, end)
