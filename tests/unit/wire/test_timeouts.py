"""Timeouts of slow clients, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from http_harness import Attach, MemoryTransport, echo, settle, until

from setpoint.wire.message import Answer, Request, Response, StreamResponse, StreamWriter

pytestmark = pytest.mark.virtual_loop

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"


async def end_of(transport: MemoryTransport) -> float:
    start = asyncio.get_running_loop().time()
    await until(lambda: transport.connection.lost, every=0.25)
    return asyncio.get_running_loop().time() - start


async def trickle(transport: MemoryTransport, data: bytes, every: float) -> None:
    for index in range(len(data)):
        transport.connection.data_received(data[index : index + 1])
        await asyncio.sleep(every)
        if transport.closing:
            return


async def test_an_idle_connection_is_closed_without_a_response(attach: Attach) -> None:
    transport = attach(echo)
    assert 90 <= await end_of(transport) <= 92
    assert transport.sent == b""


async def test_every_response_restarts_the_idle_timeout(attach: Attach) -> None:
    transport = attach(echo)
    for _ in range(3):
        await asyncio.sleep(80)
        transport.connection.data_received(GET)
    await settle()
    assert 90 <= await end_of(transport) <= 92
    assert transport.sent.count(b"200 OK") == 3


async def test_a_slow_head_times_out(attach: Attach) -> None:
    transport = attach(echo)
    await settle()
    start = asyncio.get_running_loop().time()
    await trickle(transport, GET[:-2] + b"A: " + b"a" * 100, 0.9)
    assert 10 <= asyncio.get_running_loop().time() - start <= 18
    assert transport.sent.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert not transport.aborted


async def test_a_slow_body_times_out(attach: Attach) -> None:
    transport = attach(echo)
    await settle()
    transport.connection.data_received(POST)
    start = asyncio.get_running_loop().time()
    await trickle(transport, b"x" * 999, 2)
    assert 60 <= asyncio.get_running_loop().time() - start <= 66
    assert transport.sent.startswith(b"HTTP/1.1 408 Request Timeout\r\n")


async def test_a_slow_request_within_the_timeouts_is_answered(attach: Attach) -> None:
    transport = attach(echo)
    await settle()
    await trickle(transport, POST, 9.0 / len(POST))
    await trickle(transport, b"x" * 1000, 0.055)
    await settle()
    assert transport.sent.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_slow_handler_does_not_time_out_the_client(attach: Attach) -> None:
    async def handler(request: Request) -> Response:
        await asyncio.sleep(1000)
        return Response(200, b"at last")

    transport = attach(handler)
    transport.connection.data_received(GET)
    await asyncio.sleep(1001)
    assert transport.sent.endswith(b"at last")


async def test_a_client_that_does_not_read_a_response_is_disconnected(attach: Attach) -> None:
    async def handler(request: Request) -> Response:
        return Response(200, b"x" * 10_000_000)

    transport = attach(handler)
    transport.stuck = True
    transport.connection.data_received(GET)
    await settle()
    assert 59 <= await end_of(transport) <= 62
    assert transport.aborted


async def test_a_client_that_reads_slowly_is_not_disconnected(attach: Attach) -> None:
    async def handler(request: Request) -> Response:
        return Response(200, [b"x" * 65536] * 20)

    transport = attach(handler)
    transport.stuck = True
    transport.connection.data_received(GET)
    for _ in range(40):
        await asyncio.sleep(30)
        transport.take(25_000)
    assert not transport.closing
    transport.stuck = False
    transport.take(2_000_000)
    await settle()
    assert transport.sent.count(b"x") == 20 * 65536


async def test_a_client_that_does_not_read_a_stream_is_disconnected(attach: Attach) -> None:
    cancelled = False

    async def run(writer: StreamWriter) -> None:
        nonlocal cancelled
        try:
            while True:
                writer.write(b"x" * 10_000)
                await asyncio.sleep(1)
        except asyncio.CancelledError:
            cancelled = True
            raise

    async def handler(request: Request) -> Answer:
        return StreamResponse(200, [], run)

    transport = attach(handler)
    transport.connection.data_received(GET)
    await asyncio.sleep(1000)
    assert not transport.closing, "an idle or busy stream may last for ever"
    transport.stuck = True
    assert 60 <= await end_of(transport) <= 120
    await settle()
    assert transport.aborted
    assert cancelled


async def test_closing_does_not_wait_forever(attach: Attach) -> None:
    transport = attach(echo)
    transport.stuck = True
    transport.connection.data_received(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    await settle()
    assert transport.closing
    assert 59 <= await end_of(transport) <= 62
    assert transport.aborted


async def test_a_rejected_client_is_disconnected_after_the_linger_time(attach: Attach) -> None:
    transport = attach(echo)
    await settle()
    transport.connection.data_received(b"garbage\r\n\r\n")
    await settle()
    assert transport.eof_sent
    assert 0.5 <= await end_of(transport) <= 3


async def test_no_timer_runs_without_connections(attach: Attach) -> None:
    transport = attach(echo)
    server: Any = transport.connection.owner
    transport.abort()
    await asyncio.sleep(3)
    assert server._deadline_timer is None
