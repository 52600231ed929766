"""Upgraded connections: the HTTP upgrade handshake, and the raw streams after it."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from setpoint.client.transport import Headers, Unreachable, header

LONGEST_HEAD: Final = 64 * 1024
LONGEST_REFUSAL: Final = 1024 * 1024


class Upgraded(NamedTuple):
    headers: Headers
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        """Close the connection, immediately and idempotently."""
        self.writer.transport.abort()


class Head(NamedTuple):
    status: int
    headers: Headers

    async def body(self, reader: asyncio.StreamReader) -> bytes:
        """Return the body of a refusal, truncated to a limit."""
        if "chunked" in header(self.headers, "transfer-encoding"):
            return await _chunked(reader)
        length = header(self.headers, "content-length")
        most = min(int(length), LONGEST_REFUSAL) if length.isdigit() else LONGEST_REFUSAL
        pieces = b""
        while len(pieces) < most and (piece := await reader.read(most - len(pieces))):
            pieces += piece
        return pieces


async def switched_head(reader: asyncio.StreamReader) -> Head:
    """Read the head of the response to an upgrade request. Raise Unreachable."""
    try:
        data = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        raise Unreachable("the server closed the connection before its answer was complete") from None
    except asyncio.LimitOverrunError:
        raise Unreachable("the server sent headers without end") from None
    first, *lines = data[:-4].split(b"\r\n")
    version, _, rest = first.partition(b" ")
    if len(data) > LONGEST_HEAD or not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
        raise Unreachable("the server's answer is not HTTP")
    headers = []
    for line in lines:
        name, _, value = line.partition(b":")
        headers.append((name.decode("latin-1").strip().lower(), value.decode("utf-8", "replace").strip()))
    return Head(int(rest[:3]), headers)


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    found = b""
    try:
        while size := int((await reader.readline()).split(b";")[0] or b"0", 16):
            if len(found) + size > LONGEST_REFUSAL:
                break
            found += await reader.readexactly(size)
            await reader.readline()
    except (ValueError, asyncio.IncompleteReadError):
        pass  # the connection ended: return what has arrived
    return found
