"""The frames of HTTP/2 (RFC 9113)."""

from __future__ import annotations

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE = 0, 1, 3, 4, 5
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 2, 3, 4, 5
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, REFUSED_STREAM, CANCEL = 0, 1, 3, 7, 8
FRAME_HEAD = struct.Struct(">IBI")
"""The head of a frame: three bytes with the length of the payload and one with the kind, the flags, and the stream."""


def frame(kind: int, flags: int, stream: int, payload: bytes | memoryview = b"") -> bytes:
    return FRAME_HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


class MalformedFrame(Exception):
    """The peer violated the protocol; the message completes "it sent ..."."""


def without_padding(flags: int, payload: bytes) -> bytes:
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise MalformedFrame("more padding than payload")
    return payload[1 : len(payload) - payload[0]]


def number_of(payload: bytes) -> int:
    if len(payload) != 4:
        raise MalformedFrame("a frame of a wrong length")
    return int.from_bytes(payload, "big")


def other_protocol(begin: bytes) -> str:
    """Say what these first bytes of a frame are, if they belong to another protocol."""
    if begin == b"HTTP/":
        return "an answer of HTTP/1"
    return "a record of TLS" if begin[0] in (0x15, 0x16) and begin[1] == 3 else ""
