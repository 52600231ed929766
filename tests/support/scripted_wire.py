"""A connection whose other end has said everything beforehand."""

from __future__ import annotations

import asyncio
from collections import deque


class Wire:
    """A RawConnection with the bytes of a client already in it."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = deque(pieces)
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    async def read(self) -> bytes:
        return self.pieces.popleft() if self.pieces else b""

    async def drained(self) -> None:
        await asyncio.sleep(0)

    def close(self) -> None:
        self.pieces.clear()
