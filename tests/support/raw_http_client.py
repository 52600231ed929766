"""A client that speaks raw bytes to the API server behind a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from server_harness import ADMIN_TOKEN, Reply, ServerHarness


class Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def reply(self) -> Reply:
        async with asyncio.timeout(10):
            return await self._reply()

    async def _reply(self) -> Reply:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = [(name, value) for name, _, value in (line.partition(": ") for line in head[1:] if line)]
        reply = Reply(int(head[0].split(" ")[1]), headers, b"")
        if length := reply.header("content-length"):
            reply.body = await self.reader.readexactly(int(length))
        return reply

    async def closed(self) -> bool:
        return await self.reader.read() == b""


class Wire:
    def __init__(self, address: tuple[str, int], harness: ServerHarness) -> None:
        self.address = address
        self.harness = harness
        self._lines: list[Line] = []

    async def connect(self) -> Line:
        line = Line(*await asyncio.open_connection(*self.address))
        self._lines.append(line)
        return line

    def close(self) -> None:
        for line in self._lines:
            line.writer.close()

    async def exchange(self, method: str, target: str, body: bytes = b"", headers: Iterable[str] = ()) -> Reply:
        line = await self.connect()
        line.send(head(method, target, len(body), headers) + body)
        return await line.reply()


def head(method: str, target: str, length: int = 0, headers: Iterable[str] = ()) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: x", f"Authorization: Bearer {ADMIN_TOKEN}", *headers]
    if length:
        lines += [f"Content-Length: {length}", "Content-Type: application/json"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")
