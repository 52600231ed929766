"""Upgraded connections within one process, without a socket."""

from __future__ import annotations

import asyncio
from typing import Final

_READ_AHEAD: Final = 256 * 1024
"""Bytes that one end has not read, above which the other end should wait."""


class MemoryConnection:
    """A RawConnection: one of two ends. The other end reads what is written here."""

    def __init__(self) -> None:
        self.other: MemoryConnection = self
        self._received = bytearray()
        self._changed = asyncio.Event()
        """Set when bytes were received or read, or an end was closed."""
        self._closed = False

    def write(self, data: bytes) -> None:
        if data and not self._closed and not self.other._closed:
            self.other._received += data
            self.other._changed.set()

    async def read(self) -> bytes:
        while not self._received:
            if self._closed or self.other._closed:
                return b""
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._received)
        self._received.clear()
        self.other._changed.set()
        return data

    async def drained(self) -> None:
        while len(self.other._received) > _READ_AHEAD and not self._closed and not self.other._closed:
            self._changed.clear()
            await self._changed.wait()
        if self._closed or self.other._closed:
            raise ConnectionResetError("the peer closed the connection")

    def close(self) -> None:
        """Close the connection. The other end still reads what was written before."""
        self._closed = True
        self._changed.set()
        self.other._changed.set()


def connected_pair() -> tuple[MemoryConnection, MemoryConnection]:
    """Return the two ends of a new connection."""
    one, other = MemoryConnection(), MemoryConnection()
    one.other, other.other = other, one
    return one, other
