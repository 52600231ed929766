"""A browser's requests to the page of another process, without a browser."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from setpoint.wire.websocket import WebSocket, offer_handshake


def page_request(
    origin: str, method: str, path: str, headers: dict[str, str] | None = None, body: bytes | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers by lower-case name, and body."""
    url = urlsplit(origin)
    connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=10)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def redeem(link: str) -> tuple[int, dict[str, Any]]:
    """Trade the code of a link: status and answer."""
    origin, _, code = link.partition("/#")
    body = json.dumps({"code": code}).encode()
    status, _, found = page_request(origin, "POST", "/page/v1/session", {"Origin": origin}, body)
    return status, json.loads(found)


def enter(link: str) -> str:
    """The key of a new session."""
    status, found = redeem(link)
    assert status == 201, found
    return str(found["key"])


class StreamConnection:
    """A RawConnection over asyncio's streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def read(self) -> bytes:
        try:
            return await self._reader.read(65536)
        except OSError:
            return b""

    async def drained(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


class PageTab:
    """A tab, whose messages are read one by one."""

    def __init__(self, connection: StreamConnection) -> None:
        self.connection = connection
        self.socket = WebSocket(connection, is_client=True, max_message=1 << 30)

    def send(self, channel: int, op: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"id": channel, "op": op, **fields}).encode(), text=True)

    async def receive(self, timeout: float = 10.0) -> dict[str, Any] | None:
        """The next message; None if the server has closed the WebSocket."""
        async with asyncio.timeout(timeout):
            data = await self.socket.receive()
        return None if data is None else json.loads(data)

    def open(self, channel: int, feed: str, **args: Any) -> None:
        """Open a feed or a conversation, with credit for all that it sends in a test."""
        self.send(channel, "open", feed=feed, cluster="", args=args)
        self.send(channel, "credit", n=10_000)

    async def until(self, channel: int, *keys: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Read messages of a conversation until one has one of these keys. Return it, and all of them."""
        read: list[dict[str, Any]] = []
        while True:
            message = await self.receive(30.0)
            assert message is not None and not (message["id"] == channel and message["type"] == "end"), message
            if message["id"] == channel and message["type"] == "message":
                read.append(message["data"])
                if any(key in read[-1] for key in keys):
                    return read[-1], read

    async def request(self, path: str, method: str = "GET", **fields: Any) -> dict[str, Any]:
        """The response to a request, when nothing else is open."""
        self.send(1, "request", method=method, path=path, **fields)
        found = await self.receive()
        assert found is not None and found["type"] == "response", found
        return found


async def handshake(
    origin: str, key: str, headers: dict[str, str] | None = None, unix_socket: Path | None = None
) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
    """The status of an attempt to open a tab, at the address of the origin or at a Unix socket."""
    url = urlsplit(origin)
    if unix_socket is None:
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
    else:
        reader, writer = await asyncio.open_unix_connection(unix_socket)
    _, offered = offer_handshake(["setpoint.page.v1", *([f"key.{key}"] if key else [])])
    sent = {"host": url.netloc, "origin": origin, **dict(offered), **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    writer.write(f"GET /page/v1/socket HTTP/1.1\r\n{lines}\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    return int(head.split()[1]), reader, writer


@asynccontextmanager
async def open_tab(
    origin: str, key: str, unix_socket: Path | None = None
) -> AsyncIterator[tuple[PageTab, dict[str, Any]]]:
    """A tab and its greeting."""
    status, reader, writer = await handshake(origin, key, unix_socket=unix_socket)
    assert status == 101, status
    tab = PageTab(StreamConnection(reader, writer))
    try:
        hello = await tab.receive()
        assert hello is not None and hello["type"] == "hello"
        yield tab, hello
    finally:
        writer.close()
