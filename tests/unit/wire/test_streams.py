"""Streamed responses, upgraded connections, and the graceful shutdown that ends them."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest
from http_harness import Attach, Serve, Served, echo, settle, until

from setpoint.wire.message import (
    Answer,
    RawConnection,
    Request,
    Response,
    StreamResponse,
    StreamWriter,
    UpgradeResponse,
    encode_chunk,
)

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
UPGRADE = b"POST /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"


class Watch:
    """A handler whose stream says `first`, then waits for the end."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.writers: list[StreamWriter] = []

    async def run(self, writer: StreamWriter) -> None:
        self.writers.append(writer)
        writer.write(b"first")
        writer.write(b"")
        try:
            await writer.closed()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        writer.write(b"last")

    async def __call__(self, request: Request) -> Answer:
        return StreamResponse(200, [("Content-Type", "application/json")], self.run)


async def test_a_stream_is_chunked_and_the_connection_stays_open(serve: Serve) -> None:
    gate = asyncio.Event()

    async def run(writer: StreamWriter) -> None:
        await gate.wait()
        writer.write(b"one")
        writer.write_chunks(encode_chunk(b"two") + encode_chunk(b"three"))
        await writer.drained()
        assert writer.buffered == 0

    async def handler(request: Request) -> Answer:
        return StreamResponse(200, [("X-A", "b")], run) if request.path == "/a" else await echo(request)

    client = await (await serve(handler)).connect()
    client.send(GET + b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n")
    head = await client.head()  # before anything is written
    assert (head.status, head.headers["transfer-encoding"], head.headers["x-a"]) == (200, "chunked", "b")
    gate.set()
    assert [await client.chunk() for _ in range(4)] == [b"one", b"two", b"three", b""]
    assert (await client.answer()).body == b"GET /b [] 0"


async def test_http_1_0_streams_until_close_without_chunks(serve: Serve) -> None:
    async def run(writer: StreamWriter) -> None:
        writer.write(b"one")
        writer.write_chunks(encode_chunk(b"two") + encode_chunk(b"three"))

    async def handler(request: Request) -> Answer:
        return StreamResponse(200, [], run)

    client = await (await serve(handler)).connect()
    client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    head = await client.head()
    assert "transfer-encoding" not in head.headers
    assert head.headers["connection"] == "close"
    assert await client.rest() == b"onetwothree"


async def test_head_of_a_stream_does_not_run_it(serve: Serve) -> None:
    watch = Watch()
    client = await (await serve(watch)).connect()
    client.send(GET.replace(b"GET", b"HEAD") + GET)
    await client.head()
    await client.head()
    assert await client.chunk() == b"first"
    assert len(watch.writers) == 1


@pytest.mark.parametrize("rude", [False, True])
async def test_a_stream_is_cancelled_when_its_client_disconnects(serve: Serve, rude: bool) -> None:
    watch = Watch()
    served = await serve(watch)
    client = await served.connect()
    client.send(GET)
    await client.head()
    await client.chunk()
    if rude:
        client.writer.transport.abort()
    else:
        client.close()
    await watch.cancelled.wait()
    await until(lambda: not served.server._tasks)
    watch.writers[0].write(b"into the void")
    assert watch.writers[0].buffered == 0


async def test_a_failed_stream_has_no_last_chunk(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async def run(writer: StreamWriter) -> None:
        writer.write(b"one")
        await writer.drained()
        await asyncio.sleep(0)
        raise RuntimeError("secret")

    async def handler(request: Request) -> Answer:
        return StreamResponse(200, [], run)

    client = await (await serve(handler)).connect()
    with caplog.at_level(logging.ERROR):
        client.send(GET)
        await client.head()
        said = b""
        with contextlib.suppress(ConnectionResetError):
            said = await client.rest()
    assert b"0\r\n\r\n" not in said
    assert [record.getMessage() for record in caplog.records] == ["stream of GET /a failed"]


async def test_buffered_and_drained_reflect_the_transport(attach: Attach) -> None:
    state: list[str] = []
    writers: list[StreamWriter] = []

    async def run(writer: StreamWriter) -> None:
        writers.append(writer)
        for _ in range(400):
            writer.write(b"x" * 1024)
        state.append("waiting")
        await writer.drained()
        state.append("drained")

    async def handler(request: Request) -> Answer:
        return StreamResponse(200, [], run)

    transport = attach(handler)
    transport.stuck = True
    transport.connection.data_received(GET)
    await settle()
    assert state == ["waiting"]
    assert 100 * 1024 < writers[0].buffered < 200 * 1024
    transport.take(150 * 1024)
    await settle()
    assert state == ["waiting"]
    transport.take(80 * 1024)
    await settle()
    assert state == ["waiting", "drained"]


async def test_an_upgraded_connection_belongs_to_the_handler(serve: Serve) -> None:
    async def run(raw: RawConnection) -> None:
        while data := await raw.read():
            raw.write(data.upper())
            await raw.drained()
        raw.write(b"bye")

    async def handler(request: Request) -> Answer:
        return UpgradeResponse([("Upgrade", "SPDY/3.1")], run)

    client = await (await serve(handler)).connect()
    client.send(UPGRADE + b"early ")
    head = await client.head()
    assert (head.status, head.headers) == (101, {"upgrade": "spdy/3.1", "connection": "upgrade"})
    client.send(b"GET / HTTP/1.1\r\n\r\n")
    expected = b"EARLY GET / HTTP/1.1\r\n\r\n"
    assert await client.reader.readexactly(len(expected)) == expected
    large = b"z" * 3_000_000
    client.send(large)
    assert await client.reader.readexactly(len(large)) == large.upper()
    client.writer.write_eof()
    assert await client.rest() == b"bye"


async def test_an_upgrade_that_was_not_offered_is_an_error(serve: Serve) -> None:
    async def handler(request: Request) -> Answer:
        return UpgradeResponse([], lambda raw: asyncio.sleep(0))

    client = await (await serve(handler)).connect()
    client.send(GET)
    assert (await client.answer()).status == 500


async def test_reading_pauses_while_the_upgraded_handler_is_behind(attach: Attach) -> None:
    gate = asyncio.Event()
    total = 0

    async def run(raw: RawConnection) -> None:
        nonlocal total
        await gate.wait()
        while data := await raw.read():
            total += len(data)
        with pytest.raises(ConnectionResetError):
            await raw.drained()

    async def handler(request: Request) -> Answer:
        return UpgradeResponse([], run)

    transport = attach(handler)
    transport.connection.data_received(UPGRADE)
    await settle()
    for _ in range(5):
        transport.connection.data_received(b"x" * 65536)
    assert not transport.reading
    gate.set()
    await settle()
    assert transport.reading
    transport.abort()
    await settle()
    assert total == 5 * 65536


# Stopping.


async def stopped(served: Served, grace: float = 5) -> None:
    await served.server.stop(grace)
    assert not served.server._tasks
    assert not served.server._connections


async def test_stop_closes_idle_connections_and_accepts_no_more(serve: Serve) -> None:
    served = await serve(echo)
    fresh, used = await served.connect(), await served.connect()
    used.send(GET)
    await used.answer()
    await stopped(served)
    assert await fresh.rest() == b""
    assert await used.rest() == b""
    with pytest.raises(OSError):
        await asyncio.open_connection(*served.address)


async def test_a_draining_server_answers_and_ends_each_connection(serve: Serve) -> None:
    watch = Watch()

    async def handler(request: Request) -> Answer:
        return await watch(request) if request.path == "/watch" else await echo(request)

    served = await serve(handler)
    idle, watching = await served.connect(), await served.connect()
    watching.send(GET.replace(b"/a", b"/watch"))
    await watching.head()
    assert await watching.chunk() == b"first"
    served.server.drain()
    for client in (idle, await served.connect()):
        client.send(GET)
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await client.rest() == b""
    assert not watch.cancelled.is_set()
    await stopped(served)
    assert await watching.rest() == encode_chunk(b"last") + b"0\r\n\r\n"


async def test_stop_lets_requests_finish(serve: Serve) -> None:
    started, go = asyncio.Event(), asyncio.Event()
    size = 4_000_000

    async def handler(request: Request) -> Response:
        started.set()
        await go.wait()
        return Response(200, b"x" * size)

    served = await serve(handler)
    client, partial = await served.connect(), await served.connect()
    partial.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
    client.send(GET + GET)
    await started.wait()
    async with asyncio.TaskGroup() as group:
        stop = group.create_task(stopped(served))
        await settle()
        assert not stop.done()
        go.set()
        partial.send(b"b")
        for one in (client, partial):
            answer = await one.answer()
            assert (len(answer.body), answer.headers["connection"]) == (size, "close")
            assert await one.rest() == b""


async def test_stop_ends_streams_with_their_last_chunk(serve: Serve) -> None:
    watch = Watch()
    served = await serve(watch)
    clients = [await served.connect() for _ in range(5)]
    for client in clients:
        client.send(GET)
        await client.head()
        assert await client.chunk() == b"first"
    await stopped(served)
    for client in clients:
        assert await client.rest() == encode_chunk(b"last") + b"0\r\n\r\n"
    assert not watch.cancelled.is_set()


async def test_after_the_grace_period_all_connections_are_closed(serve: Serve) -> None:
    ends: list[str] = []

    async def forever(_: object) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async def handler(request: Request) -> Answer:
        if request.path == "/exec":
            return UpgradeResponse([], forever)
        if request.path == "/stream":
            return StreamResponse(200, [], forever)
        await forever(None)
        raise AssertionError

    served = await serve(handler)
    for raw in (GET, GET.replace(b"/a", b"/stream"), UPGRADE):
        client = await served.connect()
        client.send(raw)
    await until(lambda: len(served.server._connections) == 3)
    await settle()
    await stopped(served, grace=0.01)
    assert ends == ["cancelled"] * 3


async def test_stop_closes_upgraded_connections(serve: Serve) -> None:
    async def run(raw: RawConnection) -> None:
        assert await raw.read() == b""
        raw.write(b"bye")

    async def handler(request: Request) -> Answer:
        return UpgradeResponse([], run)

    served = await serve(handler)
    client = await served.connect()
    client.send(UPGRADE)
    await client.head()
    await stopped(served)
    assert await client.rest() == b"bye"
