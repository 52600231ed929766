"""The envelope of a protobuf body: four bytes, then a message with the apiVersion and kind, and the object's bytes."""

from __future__ import annotations

from typing import NamedTuple

from setpoint.meta.protobuf.wire import LENGTH, Known, ProtobufError, fields, text

MAGIC = b"k8s\x00"

_UNKNOWN: Known = {
    1: (LENGTH, "TypeMeta"), 2: (LENGTH, "Raw"), 3: (LENGTH, "ContentEncoding"), 4: (LENGTH, "ContentType"),
}  # fmt: skip
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
