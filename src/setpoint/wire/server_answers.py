"""Writes answers to the connection of a server: whole responses and streamed ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from setpoint.wire import encoding
from setpoint.wire.message import Request, Response, SizedBody

if TYPE_CHECKING:
    from setpoint.wire.server_connection import ServerConnection


_WRITE_COST: Final = 0.0002
"""Seconds that a stream works on average between two calls of `drained`."""
_SMALL: Final = 64 * 1024
"""Size in bytes up to which head and body are copied into one write."""


async def respond(connection: ServerConnection, response: Response, request: Request, http10: bool, keep: bool) -> bool:
    """Write a whole response, as fast as the client reads it; return False if the connection must be closed after
    it."""
    buffer, status, body = connection.buffer, response.status, response.body
    pieces = (body,) if isinstance(body, bytes) else body
    size = len(body) if isinstance(body, bytes) else body.size if isinstance(body, SizedBody) else sum(map(len, body))
    own = encoding.header_lines(response.headers)
    lowered = own.lower()
    # This search is cheap and nearly never finds anything.
    if "content-length:" in lowered or "transfer-encoding:" in lowered:
        own = encoding.header_lines(encoding.without_framing(response.headers))
    ending = ""
    if "connection: close" in lowered and encoding.has_connection_close(lowered):
        keep = False
    elif not keep:
        ending = "Connection: close\r\n"
    elif http10:
        ending = "Connection: keep-alive\r\n"
    date = connection.owner.date.line(connection.owner.clock.monotonic())
    if size > encoding.GZIP_THRESHOLD and not http10 and encoding.accepts_gzip(request, response, size):
        lines = "Content-Encoding: gzip\r\nVary: Accept-Encoding\r\nTransfer-Encoding: chunked\r\n"
        buffer.send(encoding.head(status, own, date, lines, ending))
        if request.method != "HEAD":
            await _send_gzipped(connection, pieces)
        return keep
    length = "" if encoding.bodyless(status) else f"Content-Length: {size}\r\n"
    head = encoding.head(status, own, date, length, ending)
    if not length or request.method == "HEAD":
        buffer.send(head)
    elif size <= _SMALL:
        buffer.send(b"".join((head, *pieces)))
    else:
        buffer.send(head)
        for block in encoding.blocks(pieces):
            if buffer.backlogged:
                await buffer.drained(connection.loop)
            buffer.send_deferrable(block)
    return keep


async def _send_gzipped(connection: ServerConnection, pieces: Iterable[bytes]) -> None:
    buffer = connection.buffer
    for piece in encoding.gzipped(pieces):
        if piece:
            buffer.send_deferrable(b"%x\r\n%b\r\n" % (len(piece), piece))
        if buffer.backlogged:
            await buffer.drained(connection.loop)
        else:
            await asyncio.sleep(0)  # compression takes long: let other tasks run between two pieces
        if connection.lost:
            return
    buffer.send(encoding.LAST_CHUNK)


class ChunkedStream:
    """A StreamWriter for HTTP/1.1."""

    __slots__ = ("_buffer", "_connection")

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._buffer = connection.buffer

    def write(self, data: bytes) -> None:
        if data:  # an empty chunk would end the stream
            self._buffer.send_deferrable(b"%x\r\n%b\r\n" % (len(data), data))

    def write_chunks(self, chunks: bytes) -> None:
        self._buffer.send_with_backpressure(chunks)

    @property
    def buffered(self) -> int:
        # Without what the transport holds: that is little compared to the limits on this number, and asking the
        # transport takes longer than everything else that an event costs.
        return self._buffer.buffered_bytes

    async def drained(self) -> None:
        connection = self._connection
        await self._buffer.drained(connection.loop)
        await connection.owner.slicer.wait(_WRITE_COST)

    async def closed(self) -> None:
        await self._connection.wait_until_ending()


class PlainStream(ChunkedStream):
    """A StreamWriter for HTTP/1.0: the end of the connection is the end of the response."""

    __slots__ = ()

    def write(self, data: bytes) -> None:
        self._buffer.send_deferrable(data)

    def write_chunks(self, chunks: bytes) -> None:
        self._buffer.send_with_backpressure(encoding.decode_chunks(chunks))
