"""What a connection has to say: written at once, or kept in order while the peer or the loop has no time for it.

What is kept is kept as it was given. Watchers of the same objects are given the same bytes, so a thousand of them that
do not read take little more memory than one; and nothing is encrypted before there is somebody to take it.
"""

from __future__ import annotations

import asyncio
from collections import deque

from setpoint.apiserver.http.encoding import BLOCK
from setpoint.apiserver.http.streams import Signal
from setpoint.apiserver.turns import Turns


class Outgoing:
    __slots__ = ("_closed", "_drained", "_due", "_kept", "_transport", "_turns", "_write", "kept", "paused", "written")

    def __init__(self, transport: asyncio.Transport, turns: Turns) -> None:
        self._transport = transport
        self._write = transport.write
        self._turns = turns
        self._kept: deque[bytes] = deque()
        self._closed = False
        self._due = False  # to write a block of what is kept
        self._drained = Signal()
        self.kept = 0
        """Bytes that the transport does not have yet."""
        self.paused = False
        """The transport has enough for now."""
        self.written = 0
        """Bytes that were handed to the transport."""

    def send(self, data: bytes) -> None:
        """Now, if nothing is waiting."""
        if self._kept:
            self._keep(data)
        elif not self._closed:
            self.written += len(data)
            self._write(data)

    def pass_on(self, data: bytes) -> None:
        """When there is time."""
        if self._kept or self.paused or not self._turns.has_time():
            self._keep(data)
        elif not self._closed:
            self.written += len(data)
            self._write(data)

    @property
    def behind(self) -> bool:
        """Whether more should wait until what is there has gone out."""
        return self.paused or bool(self._kept)

    @property
    def taken(self) -> int:
        """Bytes that have left this process."""
        return self.written - self._transport.get_write_buffer_size()

    async def drained(self, loop: asyncio.AbstractEventLoop) -> None:
        """Returns when what is there has gone out, or was dropped."""
        while self.behind:
            await self._drained.wait(loop)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        if self._kept:
            self._schedule()
        else:
            self._drained.fire()

    def close(self) -> None:
        """Nothing more is taken; what was kept goes to the transport, which is about to be closed."""
        self._closed = True
        if self._kept:
            self.written += self.kept
            self._write(b"".join(self._kept))
            self._kept.clear()
            self.kept = 0

    def drop(self) -> None:
        """Nothing goes out any more."""
        self._closed = True
        self._kept.clear()
        self.kept = 0
        self.paused = False
        self._drained.fire()

    def _keep(self, data: bytes) -> None:
        if self._closed:
            return
        self._kept.append(data)
        self.kept += len(data)
        if not self._due and not self.paused:
            self._schedule()

    def _schedule(self) -> None:
        if not self._due:
            self._due = True
            self._turns.later(self._write_some)

    def _write_some(self) -> None:
        self._due = False
        if self.paused or not self._kept:
            return  # `resume` goes on; or it was dropped
        kept, block, size = self._kept, [], 0
        while kept and size < BLOCK:
            data = kept.popleft()
            block.append(data)
            size += len(data)
        self.kept -= size
        self.written += size
        self._write(block[0] if len(block) == 1 else b"".join(block))
        if not kept:
            if not self.paused:
                self._drained.fire()
        elif not self.paused:
            self._schedule()
