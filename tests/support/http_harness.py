"""A client that speaks raw bytes, a connection without a socket, and handlers to serve with."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from setpoint.wire.limits import Limits
from setpoint.wire.message import Request, Response
from setpoint.wire.server import Server
from setpoint.wire.server_connection import ServerConnection

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class LoopClock:
    """The time of the running loop, virtual or not."""

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def head(self) -> Answered:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return Answered(int(lines[0].split(" ")[1]), headers, b"")

    async def answer(self, *, has_body: bool = True) -> Answered:
        answered = await self.head()
        if not has_body:
            return answered
        if "content-length" in answered.headers:
            answered.body = await self.reader.readexactly(int(answered.headers["content-length"]))
        elif answered.headers.get("transfer-encoding") == "chunked":
            while chunk := await self.chunk():
                answered.body += chunk
        return answered

    async def chunk(self) -> bytes:
        size = int(await self.reader.readline(), 16)
        data = await self.reader.readexactly(size)
        assert await self.reader.readexactly(2) == b"\r\n"
        return data

    async def rest(self) -> bytes:
        return await self.reader.read()

    def close(self) -> None:
        self.writer.close()


class Served:
    def __init__(self, server: Server, address: tuple[str, int]) -> None:
        self.server = server
        self.address = address
        self.clients: list[Client] = []

    async def connect(self, context: ssl.SSLContext | None = None, limit: int = 2**20) -> Client:
        name = "localhost" if context else None
        client = Client(*await asyncio.open_connection(*self.address, ssl=context, server_hostname=name, limit=limit))
        self.clients.append(client)
        return client

    async def exchange(self, data: bytes) -> bytes:
        """Everything the server says to these bytes until it closes the connection."""
        client = await self.connect()
        client.send(data)
        return await client.rest()


Serve = Callable[..., Awaitable[Served]]


@dataclass
class MemoryTransport(asyncio.Transport):
    """A transport whose other end is the test. While `stuck`, nothing written leaves its buffer."""

    connection: ServerConnection
    sent: bytearray = field(default_factory=bytearray)
    held: bytearray = field(default_factory=bytearray)
    stuck: bool = False
    aborted: bool = False
    closing: bool = False
    reading: bool = True
    eof_sent: bool = False
    high: int = 64 * 1024
    paused: bool = False
    peername: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        super().__init__({"peername": self.peername})
        self.connection.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        (self.held if self.stuck else self.sent).extend(data)
        if len(self.held) > self.high and not self.paused:
            self.paused = True
            self.connection.pause_writing()

    def take(self, count: int) -> None:
        """The peer reads `count` of the bytes that are stuck."""
        self.sent += self.held[:count]
        del self.held[:count]
        if self.paused and len(self.held) <= self.high // 4:
            self.paused = False
            self.connection.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or self.high

    def get_write_buffer_size(self) -> int:
        return len(self.held)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof_sent = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            if not self.held:
                asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def abort(self) -> None:
        if not self.aborted:
            lost_already = self.closing and not self.held
            self.closing = self.aborted = True
            if not lost_already:
                asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)


Attach = Callable[..., MemoryTransport]


async def settle() -> None:
    """Let everything that is ready to run, run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool], every: float = 0) -> None:
    while not condition():  # noqa: ASYNC110 (nothing signals what the tests look at)
        await asyncio.sleep(every)


async def echo(request: Request) -> Response:
    """Tells what the server understood."""
    text = f"{request.method} {request.path} [{request.query}] {len(request.body)}"
    return Response(200, text.encode(), [("Content-Type", "text/plain")])


@dataclass
class Recorder:
    """A handler that remembers the requests."""

    seen: list[Request] = field(default_factory=list)

    async def __call__(self, request: Request) -> Response:
        self.seen.append(request)
        return await echo(request)


SMALL_LIMITS = Limits(body=1000, head=4096, headers=20)
