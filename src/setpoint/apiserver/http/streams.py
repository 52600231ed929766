"""The two open ends of a connection that a handler may hold: a streamed answer, and a connection that left HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from setpoint.apiserver.http.encoding import unframed

if TYPE_CHECKING:
    from setpoint.apiserver.http.connection import Connection


_SAYING_MORE: Final = 0.0002
"""Seconds that it takes until a stream that has more to say waits again."""


class Signal:
    """Wakes all who wait; one who is cancelled takes nobody along."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    async def wait(self, loop: asyncio.AbstractEventLoop) -> None:
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)

    def fire(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class ChunkedStream:
    __slots__ = ("_connection", "_outgoing")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._outgoing = connection.outgoing

    def write(self, data: bytes) -> None:
        if data:  # an empty chunk would end the stream
            self._outgoing.pass_on(b"%x\r\n%b\r\n" % (len(data), data))

    def write_frames(self, frames: bytes) -> None:
        self._outgoing.pass_on(frames)

    @property
    def buffered(self) -> int:
        # What the transport has is little, compared to the bounds that are put on this, and asking it takes longer than
        # all else that an event costs.
        return self._outgoing.kept

    async def drained(self) -> None:
        connection = self._connection
        await self._outgoing.drained(connection.loop)
        await connection.owner.turns.wait(_SAYING_MORE)

    async def closed(self) -> None:
        await self._connection.ending()


class PlainStream(ChunkedStream):
    """For HTTP/1.0: the end of the connection is the end of the answer."""

    __slots__ = ()

    def write(self, data: bytes) -> None:
        self._outgoing.pass_on(data)

    def write_frames(self, frames: bytes) -> None:
        self._outgoing.pass_on(unframed(frames))


class Hijacked:
    """A RawConnection. Reading pauses while the reader is behind; at a graceful stop the reader sees the end."""

    READ_AHEAD = 256 * 1024

    __slots__ = ("_buffer", "_connection", "_ended", "_waiter")

    def __init__(self, connection: Connection, first: bytes) -> None:
        self._connection = connection
        self._buffer = bytearray(first)
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def write(self, data: bytes) -> None:
        if data:
            self._connection.outgoing.send(data)

    async def read(self) -> bytes:
        while not self._buffer:
            if self._ended:
                return b""
            self._connection.resume_reading()
            self._waiter = self._connection.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    async def drained(self) -> None:
        await self._connection.outgoing.drained(self._connection.loop)
        if self._connection.lost:
            raise ConnectionResetError("the peer is gone")

    def close(self) -> None:
        self._connection.close()

    # Called by the connection.

    def received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > self.READ_AHEAD:
            self._connection.pause_reading()
        self._wake()

    def ended(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
