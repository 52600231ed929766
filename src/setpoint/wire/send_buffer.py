"""The send buffer of a connection: writes at once, or in order when the peer and the event loop have time.

Buffered data is stored as it was given. Watchers of the same objects are given the same bytes, so a thousand of them
that do not read take little more memory than one; and nothing is encrypted before the peer accepts it.
"""

from __future__ import annotations

import asyncio
from collections import deque

from setpoint.wire.encoding import BLOCK
from setpoint.wire.loop_slices import LoopSlicer


class Signal:
    """Wakes all waiting tasks. The cancellation of one of them does not affect the others."""

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


class SendBuffer:
    __slots__ = (
        "_closed",
        "_drained",
        "_pieces",
        "_scheduled",
        "_slicer",
        "_transport",
        "_write",
        "buffered_bytes",
        "paused",
        "written_bytes",
    )

    def __init__(self, transport: asyncio.Transport, slicer: LoopSlicer) -> None:
        self._transport = transport
        self._write = transport.write
        self._slicer = slicer
        self._pieces: deque[bytes] = deque()
        self._closed = False
        self._scheduled = False
        """Whether the slicer will call `_write_block`."""
        self._drained = Signal()
        self.buffered_bytes = 0
        """Bytes that the transport does not have yet."""
        self.paused = False
        """Whether the transport has asked for no more data for now."""
        self.written_bytes = 0
        """Bytes that were passed to the transport."""

    def send(self, data: bytes) -> None:
        """Write at once if nothing is buffered, or after what is."""
        if self._pieces:
            self._buffer(data)
        elif not self._closed:
            self.written_bytes += len(data)
            self._write(data)

    def send_with_backpressure(self, data: bytes) -> None:
        """Write when the peer has time, in order; at once if nothing is buffered."""
        if self._pieces or self.paused:
            self._buffer(data)
        elif not self._closed:
            self.written_bytes += len(data)
            self._write(data)

    def send_deferrable(self, data: bytes) -> None:
        """Write when the peer and this iteration of the event loop have time, in order."""
        if self._slicer.has_time():
            self.send_with_backpressure(data)
        else:
            self._buffer(data)

    @property
    def backlogged(self) -> bool:
        """Whether a producer of more data should wait until it is drained."""
        return self.paused or bool(self._pieces)

    @property
    def sent_bytes(self) -> int:
        """Bytes that have left this process."""
        return self.written_bytes - self._transport.get_write_buffer_size()

    async def drained(self, loop: asyncio.AbstractEventLoop) -> None:
        """Return when everything is sent or dropped."""
        while self.backlogged:
            await self._drained.wait(loop)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        if self._pieces:
            self._schedule()
        else:
            self._drained.fire()

    def close(self) -> None:
        """Accept no more data, and pass what is buffered to the transport, which is about to be closed."""
        self._closed = True
        if self._pieces:
            self.written_bytes += self.buffered_bytes
            self._write(b"".join(self._pieces))
            self._pieces.clear()
            self.buffered_bytes = 0

    def drop(self) -> None:
        """Accept no more data, and drop what is buffered."""
        self._closed = True
        self._pieces.clear()
        self.buffered_bytes = 0
        self.paused = False
        self._drained.fire()

    def _buffer(self, data: bytes) -> None:
        if self._closed:
            return
        self._pieces.append(data)
        self.buffered_bytes += len(data)
        if not self._scheduled and not self.paused:
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._slicer.defer(self._write_block)

    def _write_block(self) -> None:
        self._scheduled = False
        if self.paused or not self._pieces:
            return  # `resume` continues, or the data was dropped
        pieces, block, size = self._pieces, [], 0
        while pieces and size < BLOCK:
            data = pieces.popleft()
            block.append(data)
            size += len(data)
        self.buffered_bytes -= size
        self.written_bytes += size
        self._write(block[0] if len(block) == 1 else b"".join(block))
        if not pieces:
            if not self.paused:
                self._drained.fire()
        elif not self.paused:
            self._schedule()
