"""Requests that are rejected before the handler."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from effort import tries
from http_harness import SMALL_LIMITS, Attach, LoopClock, MemoryTransport, Recorder, Serve, echo, settle, until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from setpoint.wire.message import Peer, Request, Response
from setpoint.wire.request_parser import RequestParser
from setpoint.wire.server import Server

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    ("status", "raw"),
    [
        (400, b"\x16\x03\x01\x02\x00\x01"),
        (400, b"GET\r\n\r\n"),
        (400, b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n"),
        (400, b"GET / HTTP/1.1\nHost: x\n\n"),
        (400, b"GET / HTTP/1.1\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost : x\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: x\r\nA: 1\r\n  folded\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: x\r\nA: a\x00b\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: x\r\nA: a\rb\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: x\r\n: a\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: x\r\nA\xc3\xa9: a\r\n\r\n"),
        # Two ways to say how long the body is.
        (400, POST + b"Content-Length: 3\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + GET),
        (400, POST + CHUNKED + b"Content-Length: 3\r\n\r\n0\r\n\r\n" + GET),
        (400, POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
        (400, POST + b"Content-Length: 3\r\nContent-Length: 30\r\n\r\nabc"),
        (400, POST + b"Content-Length: 3, 3\r\n\r\nabc"),
        (400, POST + b"Content-Length: +3\r\n\r\nabc"),
        (400, POST + b"Content-Length: -1\r\n\r\nabc"),
        (400, POST + b"Content-Length: 0x3\r\n\r\nabc"),
        (400, POST + b"Content-Length: 99999999999999999999999\r\n\r\n"),
        (400, POST.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n0\r\n\r\n"),
        (400, POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n"),
        (400, POST + CHUNKED + b"\r\n0x3\r\nabc\r\n0\r\n\r\n"),
        (400, POST + CHUNKED + b"\r\n3\nabc\r\n0\r\n\r\n"),
        (400, POST + CHUNKED + b"\r\n-3\r\nabc\r\n0\r\n\r\n"),
        (400, POST + CHUNKED + b"\r\nFFFFFFFFFFFFFFFFF\r\n"),
        (400, POST + CHUNKED + b"\r\n3\r\nabcd\r\n0\r\n\r\n"),
        (501, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        (501, POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        (501, POST + b"Transfer-Encoding: identity\r\n\r\n"),
        (417, POST + b"Expect: miracles\r\nContent-Length: 3\r\n\r\n"),
        (405, b"CONNECT host:1 HTTP/1.1\r\nHost: host:1\r\n\r\n"),
        (505, b"GET / HTTP/2.0\r\nHost: x\r\n\r\n"),
        (505, b"GET /\r\n\r\n"),
        (413, POST + b"Content-Length: 1001\r\n\r\n"),
        (413, POST + b"Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n"),
        (413, POST + CHUNKED + b"\r\n3e9\r\n" + b"x" * 1001 + b"\r\n"),
        (413, POST + CHUNKED + b"\r\n" + b"1f4\r\n" + b"x" * 500 + b"\r\n1f5\r\n" + b"x" * 501 + b"\r\n"),
        (413, b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 1001\r\n\r\n"),
        (431, b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: x\r\n"),
        (431, b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 5000),
        (431, b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"A%d: 1\r\n" % n for n in range(30))),
        (431, b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: 1\r\n" * 30),
        (431, POST + CHUNKED + b"\r\n0\r\nTrailer: " + b"a" * 5000),
        (431, POST + CHUNKED + b"\r\n5;" + b"a" * 5000),
    ],
)
async def test_invalid_requests_are_rejected(serve: Serve, status: int, raw: bytes) -> None:
    recorder = Recorder()
    served = await serve(recorder, limits=SMALL_LIMITS)
    client = await served.connect()
    client.send(raw)
    answer = await client.answer()
    assert answer.status == status
    assert answer.headers["connection"] == "close"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.body.startswith(b"%d " % status)
    client.writer.write_eof()
    assert await client.rest() == b""
    assert recorder.seen == []


async def test_earlier_pipelined_requests_are_answered(serve: Serve) -> None:
    said = await (await serve(echo)).exchange(GET + GET + b"garbage\r\n\r\n" + GET)
    assert said.count(b"HTTP/1.1 200 OK") == 2
    assert said.count(b"HTTP/1.1 400 Bad Request") == 1
    assert said.index(b"400 Bad") > said.rindex(b"200 OK")


async def test_the_application_words_the_413(serve: Serve) -> None:
    calls: list[tuple[Request | None, int, str]] = []

    def words(request: Request | None, status: int, text: str) -> Response:
        calls.append((request, status, text))
        return Response(status, b"{}", [("Content-Type", "application/json")])

    said = await (await serve(echo, limits=SMALL_LIMITS, on_error=words)).exchange(
        POST + b"Content-Length: 5000\r\n\r\n" + b"x" * 5000
    )
    assert said.startswith(b"HTTP/1.1 413 Request Entity Too Large\r\n")
    [(request, status, text)] = calls
    assert request is not None
    assert (request.method, request.body, status, text) == ("POST", b"", 413, "limit is 1000")


async def test_the_rest_of_a_large_body_is_discarded(attach: Attach) -> None:
    transport = attach(echo, limits=SMALL_LIMITS)
    await settle()
    transport.connection.data_received(POST + b"Content-Length: 100000000\r\n\r\n")
    for _ in range(100):
        transport.connection.data_received(b"x" * 65536)
    await settle()
    assert transport.sent.startswith(b"HTTP/1.1 413 ")
    assert transport.eof_sent
    assert not transport.closing, "the answer gets a moment to arrive"
    assert len(transport.connection._pending) == 0


async def test_a_truncated_upload_never_reaches_the_handler(serve: Serve) -> None:
    recorder = Recorder()
    served = await serve(recorder)
    for raw in (POST + b"Content-Length: 10\r\n\r\nabc", POST + CHUNKED + b"\r\n3\r\nabc\r\n", b"GET / HT"):
        client = await served.connect()
        client.send(raw)
        client.writer.write_eof()
        assert await client.rest() == b""
    assert recorder.seen == []


async def test_reading_pauses_with_many_pipelined_requests(attach: Attach) -> None:
    gate = asyncio.Event()

    async def slow(request: Request) -> Response:
        await gate.wait()
        return Response(200, b"ok")

    transport = attach(slow)
    await settle()
    transport.connection.data_received(GET)
    await settle()
    transport.connection.data_received(GET * 1000)
    assert transport.reading
    transport.connection.data_received(GET * 2000)
    assert not transport.reading
    gate.set()
    await until(lambda: transport.sent.count(b"HTTP/1.1 200") == 3001)
    await settle()
    assert transport.reading


_parts = st.sampled_from(
    [
        b"GET ",
        b"POST ",
        b"/",
        b" HTTP/1.1\r\n",
        b" HTTP/1.0\r\n",
        b"Host: x\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"Content-Length: 3\r\n",
        b"Content-Length: ",
        CHUNKED,
        b"Connection: close\r\n",
        b"Connection: Upgrade\r\n",
        b"Upgrade: x\r\n",
        b"Expect: 100-continue\r\n",
        b"3\r\nabc\r\n",
        b"0\r\n\r\n",
        b"abc",
        GET,
        POST,
    ]
)


@settings(max_examples=tries(120, 500), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.one_of(st.binary(max_size=40), _parts), max_size=20))
def test_arbitrary_bytes_neither_crash_nor_hang_the_server(pieces: list[bytes]) -> None:
    """Whatever comes, the connection ends once the client has ended its side, with whole answers or none."""

    async def converse() -> bytes:
        server = Server(echo, clock=LoopClock(), limits=SMALL_LIMITS)
        transport = MemoryTransport(server.connection())
        async with asyncio.timeout(5):
            for piece in pieces:
                transport.connection.data_received(piece)
                await asyncio.sleep(0)
            transport.connection.eof_received()
            await server.stop(4)
        assert transport.closing
        assert not server._tasks
        return bytes(transport.sent)

    said = asyncio.run(converse())
    assert said == b"" or said.startswith(b"HTTP/1.1 ")
    assert b"500 Internal" not in said


@settings(max_examples=tries(100, 300))
@given(data=st.lists(_parts, max_size=25).map(b"".join), cuts=st.lists(st.integers(0, 400), max_size=8))
def test_fragmentation_makes_no_difference(data: bytes, cuts: list[int]) -> None:
    def parsed(pieces: list[bytes]) -> list[object]:
        parser = RequestParser(SMALL_LIMITS, Peer())
        for piece in pieces:
            parser.feed(piece)
        return [
            (e.request and (e.request.method, e.request.path, e.request.headers, e.request.body), e.is_last, e.failure)
            for e in parser.ready
        ]

    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert parsed([data]) == parsed([data[a:b] for a, b in pairwise(edges) if a < b])
