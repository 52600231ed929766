"""The client's side of a connection, with a scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from setpoint.wire.client_connection import ClientConnection, open_connection
from setpoint.wire.http_exchange import IdleConnections, ResponseLost, encode_request


@asynccontextmanager
async def served(*answers: bytes, close: bool = False) -> AsyncIterator[ClientConnection]:
    """Answer each request with the next of `answers`; after the last one, close the connection or echo bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
        while not close and (piece := await reader.read(100)):
            writer.write(piece.upper())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connection = await open_connection("127.0.0.1", server.sockets[0].getsockname()[1], None)
    try:
        yield connection
    finally:
        connection.abort()
        server.close()


GET = encode_request("GET", "/", "x", [], b"")


async def whole(connection: ClientConnection, request: bytes = GET, *, has_body: bool = True) -> tuple[int, bytes]:
    exchange = connection.send(request, has_body=has_body)
    await connection.head(exchange)
    body = b""
    while piece := await connection.next_chunk(exchange):
        body += piece
    return exchange.status, body


async def test_a_connection_is_reused_and_header_names_are_unchanged() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nX-One: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    counted = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno"
    async with served(chunked, counted) as connection:
        exchange = connection.send(GET)
        await connection.head(exchange)
        assert exchange.headers[0] == ("X-One", "a")
        assert b"".join([await connection.next_chunk(exchange) for _ in range(3)]) == b"abc"
        assert connection.idle
        assert await whole(connection) == (404, b"no")


async def test_the_response_to_head_has_no_body() -> None:
    async with served(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n") as connection:
        assert await whole(connection, has_body=False) == (200, b"")
        assert not connection.idle


async def test_bytes_after_an_upgrade_belong_to_the_other_protocol() -> None:
    switching = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello"
    async with served(switching) as connection:
        exchange = connection.send(GET, offers_upgrade=True)
        await connection.head(exchange)
        assert exchange.status == 101 and not connection.idle
        raw = connection.upgraded()
        assert await raw.read() == b"hello"
        raw.write(b"shout")
        await raw.drained()
        assert await raw.read() == b"SHOUT"
        raw.close()
        assert await raw.read() == b""


async def test_an_upgrade_that_was_not_offered_is_an_error() -> None:
    switching = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"
    async with served(switching) as connection:
        exchange = connection.send(GET)
        with pytest.raises(ResponseLost, match="another protocol"):
            await connection.head(exchange)


async def test_a_truncated_response_is_an_error() -> None:
    async with served(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", close=True) as connection:
        with pytest.raises(ResponseLost, match="before its answer was complete"):
            await whole(connection)


async def test_only_reusable_connections_are_pooled() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    idle: IdleConnections[ClientConnection] = IdleConnections(1)
    async with served(answer) as first, served(answer) as second, served(answer.replace(b"1.1", b"1.0")) as closed:
        for connection in (first, second, closed):
            await whole(connection)
            idle.release(connection)
        assert idle.acquire() is first
        assert idle.acquire() is None
        assert second.lost and closed.lost


async def test_a_retired_connection_ends_after_its_exchange() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with served(answer, answer) as connection:
        exchange = connection.send(GET)
        connection.retire()
        await connection.head(exchange)
        assert await connection.next_chunk(exchange) == b"ok"
        assert connection.lost and not connection.idle
    async with served(answer, answer) as connection:
        connection.retire()
        assert connection.idle
        assert await whole(connection) == (200, b"ok")
        assert connection.lost and not connection.idle
    async with served(answer, answer) as connection:
        await whole(connection)
        connection.retire()
        assert connection.lost and not connection.idle
