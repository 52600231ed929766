"""The small server of operators: what it answers, and what it does not put up with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from setpoint.sdk.http_server import HttpServer, Limits, Request, Response

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(request: Request) -> Response:
    if request.path == "/fails":
        raise RuntimeError("no")
    return Response(200, f"{request.method} {request.path}?{request.query} {len(request.body)}".encode())


@asynccontextmanager
async def connected(
    handler: Callable[[Request], Awaitable[Response]] = echo, limits: Limits | None = None
) -> AsyncIterator[tuple[HttpServer, Callable[[], Awaitable[Connection]]]]:
    server = HttpServer(handler, limits=limits)
    port = await server.start("127.0.0.1", 0)
    opened: list[asyncio.StreamWriter] = []

    async def connect() -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        opened.append(writer)
        return reader, writer

    try:
        yield server, connect
    finally:
        for writer in opened:
            writer.close()
        await server.stop(1.0)


async def ask(connection: Connection, data: bytes) -> tuple[int, bytes, bytes]:
    """Status, headers and body."""
    reader, writer = connection
    writer.write(data)
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().splitlines()
    length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
    body = b"" if data.startswith(b"HEAD") else await reader.readexactly(length)
    return int(head.split()[1]), head, body


async def test_requests_on_one_connection() -> None:
    async with connected() as (_, connect):
        connection = await connect()
        assert (await ask(connection, b"GET /a%20b?c=d HTTP/1.1\r\nHost: x\r\n\r\n"))[2] == b"GET /a b?c=d 0"
        post = b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
        assert (await ask(connection, post))[2] == b"POST /p? 3"
        chunked = b"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"
        assert (await ask(connection, chunked))[2] == b"POST /p? 5"
        assert (await ask(connection, b"HEAD /h HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200
        assert (await ask(connection, b"GET /fails HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 500
        both = b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n"
        assert (await ask(connection, both))[2] == b"GET /1? 0"
        assert (await ask(connection, b""))[2] == b"GET /2? 0"
        status, head, _ = await ask(connection, b"GET /end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (status, b"Connection: close" in head, await connection[0].read()) == (200, True, b"")


async def test_a_body_that_waits_to_be_asked_for() -> None:
    async with connected() as (_, connect):
        reader, writer = await connect()
        writer.write(b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert (await ask((reader, writer), b"abc"))[2] == b"POST /p? 3"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01 this is TLS\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"x-y: " + b"a" * 3000 + b"\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n" + b"a" * 2000, 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"a" * 2000, 413),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 400),
    ],
)
async def test_what_is_refused(data: bytes, status: int) -> None:
    async with connected(limits=Limits(body=1000, head=2000)) as (_, connect):
        connection = await connect()
        assert (await ask(connection, data))[0] == status
        assert await connection[0].read() == b"", "and the connection ends"


async def test_too_much_at_once_is_refused() -> None:
    async with connected(limits=Limits(body=1000, buffered=1500, connections=3)) as (server, connect):
        half = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"a" * 900
        first, second, third = [await connect() for _ in range(3)]
        # Answered, so that all three are known to be there.
        for each in (first, second, third):
            assert (await ask(each, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200
        fourth = await connect()
        assert await fourth[0].read() == b""
        first[1].write(half)
        while not server._buffered.bytes:  # noqa: ASYNC110 - what comes over a socket comes when it comes
            await asyncio.sleep(0)
        assert (await ask(second, half))[0] == 503
        assert await second[0].read() == b""
        assert (await ask(first, b"a" * 100))[2] == b"POST /? 1000"
        assert (await ask(third, half + b"a" * 100))[2] == b"POST /? 1000", "there is room again"


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost"])
async def test_who_says_nothing_is_not_waited_for(sent: bytes) -> None:
    async with connected(limits=Limits(idle=0.01, transfer=0.01)) as (_, connect):
        reader, writer = await connect()
        writer.write(sent)
        with pytest.raises(ConnectionResetError):
            if await reader.read() == b"":
                raise ConnectionResetError


async def test_the_end_waits_for_answers_that_are_under_way() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        asked.set()
        await go.wait()
        return Response(200, b"done")

    async with connected(slow) as (server, connect):
        idle, busy = await connect(), await connect()
        answer = asyncio.ensure_future(ask(busy, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
        await asked.wait()
        stopping = asyncio.ensure_future(server.stop(60.0))
        assert await idle[0].read() == b""
        go.set()
        assert (await answer)[2] == b"done"
        await stopping


async def test_but_not_for_ever() -> None:
    asked = asyncio.Event()

    async def stuck(request: Request) -> Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with connected(stuck) as (server, connect):
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asked.wait()
        await server.stop(0.0)
        with pytest.raises(ConnectionResetError):
            if await reader.read() == b"":
                raise ConnectionResetError
