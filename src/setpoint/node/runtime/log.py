"""What simulated containers write, kept within bounds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence

from setpoint.node.runtime.interface import LogLine

_MOST_LINES = 2000


class BoundedLog:
    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=_MOST_LINES)
        self._written = 0
        """Lines so far, those that were dropped included."""
        self._closed = False
        self._readers: list[asyncio.Future[None]] = []

    def write(self, at: float, stream: str, text: str) -> None:
        for line in text.splitlines(keepends=True):
            self._lines.append(LogLine(at, stream, line))
            self._written += 1
        self._wake()

    def close(self) -> None:
        """Nothing will be written any more."""
        self._closed = True
        self._wake()

    def lines(self) -> Sequence[LogLine]:
        return tuple(self._lines)

    def text(self) -> str:
        return "".join(line.text for line in self._lines)

    async def follow(self) -> AsyncIterator[LogLine]:
        seen = self._written - len(self._lines)
        while True:
            behind = self._written - seen
            seen = self._written
            if behind:
                for line in tuple(self._lines)[-behind:]:
                    yield line
            elif self._closed:
                return
            else:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._readers.append(waiter)
                await waiter

    def _wake(self) -> None:
        for waiter in self._readers:
            if not waiter.done():
                waiter.set_result(None)
        self._readers.clear()
