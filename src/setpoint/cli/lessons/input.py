"""Reads typed lines while other tasks run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import BinaryIO

from setpoint.cli.terminal import pieces_of
from setpoint.meta.clock import Clock
from setpoint.tasks import child_tasks


class TypedLines:
    """The lines of an input, as they arrive."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._ended = False

    async def next(self) -> str | None:
        """Return the next line without its end, or None at the end of the input."""
        if self._ended and self._lines.empty():
            return None
        line = await self._lines.get()
        self._ended = line is None
        return line

    async def next_within(self, seconds: float) -> str | None:
        """Return the next line, an empty one at the end of the input, or None if there is none within that time."""
        if self._ended and self._lines.empty():
            await self._clock.sleep(seconds)
            return None
        async with child_tasks(self._lines.get()) as (reading,), child_tasks(self._clock.sleep(seconds)) as (timer,):
            await asyncio.wait((reading, timer), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return None
            line = reading.result()
        self._ended = line is None
        return "" if line is None else line

    @property
    def ended(self) -> bool:
        return self._ended and self._lines.empty()

    async def read(self, stream: BinaryIO) -> None:
        """Read the input until its end."""
        partial = b""
        async for piece in pieces_of(stream):
            *lines, partial = (partial + piece).split(b"\n")
            for line in lines:
                self._lines.put_nowait(line.decode("utf-8", "replace").strip())
        if partial:
            self._lines.put_nowait(partial.decode("utf-8", "replace").strip())
        self._lines.put_nowait(None)


@asynccontextmanager
async def typed_lines(stream: BinaryIO, clock: Clock) -> AsyncIterator[TypedLines]:
    """Read an input while the block runs."""
    lines = TypedLines(clock)
    async with child_tasks(lines.read(stream)):
        yield lines
