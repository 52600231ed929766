"""Pieces that come over time, written to whoever asked for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from setpoint.apiserver.http.message import StreamWriter

_FAR_BEHIND = 1024 * 1024


def sender(pieces: AsyncGenerator[bytes, None]) -> Callable[[StreamWriter], Awaitable[None]]:
    async def send(writer: StreamWriter) -> None:
        """Pieces as they come, at the pace of the reader, until there are no more or it is time to end."""
        sending = asyncio.ensure_future(_pump(pieces, writer))
        ending = asyncio.ensure_future(writer.closed())
        try:
            await asyncio.wait((sending, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            sending.cancel()
            await asyncio.wait((sending, ending))
        if not sending.cancelled():
            sending.result()

    return send


async def _pump(pieces: AsyncGenerator[bytes, None], writer: StreamWriter) -> None:
    async with aclosing(pieces):
        async for piece in pieces:
            writer.write(piece)
            if writer.buffered > _FAR_BEHIND:
                await writer.drained()
