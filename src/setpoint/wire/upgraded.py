"""Connections that have switched from HTTP to another protocol, on the side of the server or of the client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from setpoint.tasks import first_completed

if TYPE_CHECKING:
    from setpoint.wire.message import RawConnection

_READ_AHEAD: Final = 256 * 1024
"""Bytes that are received before reading is paused."""


class HttpConnection(Protocol):
    """The connection that was upgraded."""

    loop: asyncio.AbstractEventLoop
    lost: bool

    def send_raw(self, data: bytes) -> None: ...

    async def drained(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


class UpgradedConnection:
    """A RawConnection. Reading pauses while the reader is behind; at a graceful stop the reader sees the end."""

    __slots__ = ("_connection", "_ended", "_received", "_waiter")

    def __init__(self, connection: HttpConnection, first: bytes) -> None:
        """`first` are bytes that have been received after the upgrade."""
        self._connection = connection
        self._received = bytearray(first)
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def write(self, data: bytes) -> None:
        if data:
            self._connection.send_raw(data)

    async def read(self) -> bytes:
        while not self._received:
            if self._ended:
                return b""
            self._connection.resume_reading()
            self._waiter = self._connection.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        data = bytes(self._received)
        self._received.clear()
        return data

    async def drained(self) -> None:
        await self._connection.drained()
        if self._connection.lost:
            raise ConnectionResetError("the peer closed the connection")

    def close(self) -> None:
        self._connection.close()

    # Called by the connection.

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _READ_AHEAD:
            self._connection.pause_reading()
        self._wake()

    def end(self) -> None:
        """Return b"" from `read` after what was received."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def bridge(one: RawConnection, other: RawConnection) -> None:
    """Copy bytes both ways until one side ends or is lost, then close `other`."""
    try:
        await first_completed(_copy(one, other), _copy(other, one))
    except OSError:
        pass  # one side is gone: this is the end of the other
    finally:
        other.close()


async def _copy(source: RawConnection, target: RawConnection) -> None:
    while piece := await source.read():
        target.write(piece)
        await target.drained()
