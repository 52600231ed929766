"""The frames between the process that owns a store and its replicas.

A frame has a kind, a header in JSON, and a body of raw bytes: the values, one after the other, whose lengths are in the
header. Both ends are processes of one machine and of one version of this program, which the first frame verifies.

| frame | header | body |
|---|---|---|
| HELLO | version, compacted revision | |
| BASE | key, length, create and mod revision of entries as of the compacted revision | their values |
| EVENTS | revision reached, transactions | their causes and values |
| READY | revision of the snapshot, which is complete | |
| STATUS | | |
| FAILED | the reason why the store has failed | |
| ANSWER | number of the request, outcome and its details | |
| TXN | number of the request, length of the cause, operations | the cause and the values |
| COMPACT, COMPACT_IF_FIRST | number of the request, revision | |
| ALIVE, the answer to STATUS | | |
| SERVING | | |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import orjson

from setpoint import __version__
from setpoint.store.interface import Cause, Check, Delete, Event, KeyValue, Op, Put

VERSION: Final = f"1 {__version__}"
"""The version of the protocol and of the program."""
HELLO, BASE, EVENTS, READY, STATUS, FAILED, ANSWER = range(7)
TXN, COMPACT, COMPACT_IF_FIRST, ALIVE, SERVING = range(16, 21)
MAX_REQUEST: Final = 64 << 20
"""The bytes of a frame that a replica may send. The owner's frames are as large as the largest transaction."""
_HEAD: Final = Struct("!QBI")
"""The number of bytes after this field, the kind, and the length of the header."""
_REST: Final = _HEAD.size - 8
_FRAME: Final = 1 << 20
"""The bytes of values after which a frame of events ends."""
_ABSENT: Final = -1
"""The length of the value of a deleted key."""
_PUT, _DELETE, _CHECK = range(3)


class Malformed(Exception):
    """The other end has sent what is not a frame of this protocol."""


class Frame(NamedTuple):
    kind: int
    header: Any
    body: bytes


def encode(kind: int, header: Any = None, blobs: Sequence[bytes] = ()) -> bytes:
    head = orjson.dumps(header)
    size = _REST + len(head) + sum(map(len, blobs))
    return b"".join((_HEAD.pack(size, kind, len(head)), head, *blobs))


class FrameReader:
    """Finds the frames in the bytes of a connection."""

    def __init__(self, limit: int = 1 << 62) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete now. Raises Malformed."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _HEAD.size:
                size, kind, header_size = _HEAD.unpack_from(buffer, start)
                if not _REST + header_size <= size <= self._limit:
                    raise Malformed(f"a frame of {size} bytes")
                end = start + 8 + size
                if len(buffer) < end:
                    break
                body = start + _HEAD.size + header_size
                with memoryview(buffer) as view:
                    header = orjson.loads(view[start + _HEAD.size : body])
                    content = bytes(view[body:end])
                start = end
                yield Frame(kind, header, content)
        except orjson.JSONDecodeError as error:
            raise Malformed(f"a header that is not JSON: {error}") from None
        finally:
            del buffer[:start]


# -- entries and events -----------------------------------------------------------------------------------------------


def encode_entries(entries: Sequence[KeyValue]) -> bytes:
    header = [(each.key, each.size, each.create_revision, each.mod_revision) for each in entries]
    return encode(BASE, header, [each.value for each in entries])


def decode_entries(frame: Frame) -> Iterator[KeyValue]:
    at = 0
    for key, size, created, modified in frame.header:
        yield KeyValue(key, frame.body[at : at + size], created, modified)
        at += size


def encode_events(events: Sequence[Event], causes: Sequence[Cause], reached: int) -> list[bytes]:
    """Return frames with whole transactions; `reached` is the revision up to which they are complete."""
    causes_by_revision = dict(causes)
    frames: list[bytes] = []
    transactions: list[tuple[int, int, list[tuple[str, int, int]]]] = []
    blobs: list[bytes] = []
    size, revision = 0, 0
    for event in events:
        if event.revision != revision:
            if size > _FRAME:
                frames.append(encode(EVENTS, (revision, transactions), blobs))
                transactions, blobs, size = [], [], 0
            revision = event.revision
            cause = causes_by_revision.get(revision, b"")
            transactions.append((revision, len(cause), []))
            blobs.append(cause)
        now = event.now
        if now is None:
            transactions[-1][2].append((event.key, _ABSENT, 0))
        else:
            transactions[-1][2].append((event.key, now.size, now.create_revision))
            blobs.append(now.value)
            size += now.size
    frames.append(encode(EVENTS, (reached, transactions), blobs))
    return frames


class Transaction(NamedTuple):
    revision: int
    cause: bytes
    changes: list[tuple[str, bytes | None, int]]
    """Key, value and create revision of each change; the value is None for a deletion."""


def decode_transactions(frame: Frame) -> Iterator[Transaction]:
    at, body = 0, frame.body
    for revision, cause_size, listed in frame.header[1]:
        cause, changes = body[at : at + cause_size], list[tuple[str, bytes | None, int]]()
        at += cause_size
        for key, size, created in listed:
            if size == _ABSENT:
                changes.append((key, None, 0))
            else:
                changes.append((key, body[at : at + size], created))
                at += size
        yield Transaction(revision, cause, changes)


# -- requests ---------------------------------------------------------------------------------------------------------


def encode_txn(number: int, ops: Sequence[Op], cause: bytes) -> bytes:
    listed: list[tuple[Any, ...]] = []
    blobs = [cause]
    for op in ops:
        if isinstance(op, Put):
            listed.append((_PUT, op.key, op.expect, len(op.value), op.stamp))
            blobs.append(op.value)
        else:
            listed.append((_CHECK if isinstance(op, Check) else _DELETE, op.key, op.expect))
    return encode(TXN, (number, len(cause), listed), blobs)


def decode_txn(frame: Frame) -> tuple[int, list[Op], bytes]:
    """Return the number of the request, the operations and the cause."""
    number, at, listed = frame.header
    body, ops = frame.body, list[Op]()
    cause = body[:at]
    for kind, key, expect, *rest in listed:
        if kind == _PUT:
            size, stamp = rest
            ops.append(Put(key, body[at : at + size], expect, stamp))
            at += size
        else:
            ops.append(Check(key, expect) if kind == _CHECK else Delete(key, expect))
    return number, ops, cause
