"""Responses as they are written to the connection."""

from __future__ import annotations

import asyncio
import gzip
import logging

import pytest
from http_harness import EPOCH, Attach, Serve, settle, until

from setpoint.wire.encoding import BLOCK, LARGE, DateHeader, blocks, decode_chunks, gzipped
from setpoint.wire.message import Answer, Request, Response, encode_chunk

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
GZIP = b"GET /a HTTP/1.1\r\nHost: x\r\nAccept-Encoding: deflate, gzip\r\n\r\n"


def always(answer: Answer):  # type: ignore[no-untyped-def]
    async def handler(request: Request) -> Answer:
        return answer

    return handler


async def test_a_complete_response(attach: Attach) -> None:
    transport = attach(always(Response(201, b"{}", [("Content-Type", "application/json"), ("Audit-Id", "1")])))
    await settle()
    transport.connection.data_received(GET)
    await settle()
    said = bytes(transport.sent)
    assert said.startswith(b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nAudit-Id: 1\r\nDate: ")
    assert said.endswith(b" GMT\r\nContent-Length: 2\r\n\r\n{}")
    assert b"Server:" not in said


def test_the_date_header_is_computed_once_a_second() -> None:
    class Still:
        asked = 0

        def now(self):  # type: ignore[no-untyped-def]
            self.asked += 1
            return EPOCH.replace(microsecond=250_000, second=self.asked)

    clock = Still()
    date = DateHeader(clock)  # type: ignore[arg-type]
    assert date.line(10.0) == "Date: Thu, 01 Jan 2026 00:00:01 GMT\r\n"
    assert date.line(10.7) == "Date: Thu, 01 Jan 2026 00:00:01 GMT\r\n"
    assert date.line(10.76) == "Date: Thu, 01 Jan 2026 00:00:02 GMT\r\n"
    assert clock.asked == 2


@pytest.mark.parametrize("size", [0, 10, 100_000, 5_000_000])
@pytest.mark.parametrize("in_pieces", [False, True])
async def test_bodies_of_any_size(serve: Serve, size: int, in_pieces: bool) -> None:
    whole = bytes(index % 256 for index in range(1000)) * (size // 1000) + b"." * (size % 1000)
    body = [whole[at : at + 777] for at in range(0, size, 777)] if in_pieces else whole
    client = await (await serve(always(Response(200, body)))).connect()
    client.send(GET + GET)
    for _ in range(2):
        answer = await client.answer()
        assert answer.headers["content-length"] == str(size)
        assert answer.body == whole


async def test_responses_to_head_have_no_body(serve: Serve) -> None:
    client = await (await serve(always(Response(200, b"12345", [("X-A", "b")])))).connect()
    client.send(GET.replace(b"GET", b"HEAD") + GET)
    answer = await client.answer(has_body=False)
    assert (answer.headers["content-length"], answer.headers["x-a"]) == ("5", "b")
    assert (await client.answer()).body == b"12345"


@pytest.mark.parametrize("status", [204, 304])
async def test_statuses_without_a_body(serve: Serve, status: int) -> None:
    client = await (await serve(always(Response(status, b"")))).connect()
    client.send(GET + GET)
    for _ in range(2):
        answer = await client.answer(has_body=False)
        assert answer.status == status
        assert "content-length" not in answer.headers


async def test_large_responses_are_gzipped_if_accepted(serve: Serve) -> None:
    body = b'{"kind":"Pod"},' * 20_000
    client = await (await serve(always(Response(200, [body[:9], body[9:]])))).connect()
    client.send(GZIP)
    answer = await client.answer()
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["vary"] == "accept-encoding"
    assert "content-length" not in answer.headers
    assert gzip.decompress(answer.body) == body
    client.send(GZIP.replace(b"GET", b"HEAD"))
    assert (await client.answer(has_body=False)).headers["content-encoding"] == "gzip"
    for unasked in (
        GET,
        GZIP.replace(b" gzip", b" gzip;q=0"),
        GZIP.replace(b"1.1", b"1.0").replace(b"Host", b"Connection: keep-alive\r\nHost"),
    ):
        client.send(unasked)
        answer = await client.answer()
        assert "content-encoding" not in answer.headers
        assert answer.body == body


@pytest.mark.parametrize(
    "response",
    [
        Response(200, b"x" * 128 * 1024),
        Response(200, b"x" * 200_000, [("content-encoding", "br")]),
    ],
)
async def test_responses_that_are_not_gzipped(serve: Serve, response: Response) -> None:
    client = await (await serve(always(response))).connect()
    client.send(GZIP)
    answer = await client.answer()
    assert answer.headers.get("content-encoding") != "gzip"
    assert "vary" not in answer.headers
    assert answer.body == response.body


async def test_compression_yields_to_other_tasks() -> None:
    pieces = list(gzipped([b"x" * (10 * BLOCK)]))
    assert len(pieces) == 11
    assert gzip.decompress(b"".join(pieces)) == b"x" * (10 * BLOCK)


def test_small_pieces_are_joined_and_large_ones_are_not() -> None:
    large = b"L" * BLOCK
    pieces = [b"a", b"b", large, *[b"c" * 1000] * 100]
    gathered = list(blocks(pieces))
    assert b"".join(gathered) == b"".join(pieces)
    assert gathered[0] == b"ab"
    assert gathered[1] is large
    assert len(gathered) == 4
    huge = bytes(range(256)) * 8000
    assert b"".join(blocks([huge])) == huge
    assert max(map(len, blocks([huge]))) <= LARGE


def test_chunks_can_be_decoded() -> None:
    assert (
        decode_chunks(encode_chunk(b"abc") + encode_chunk(b"\r\n") + encode_chunk(b"x" * 300))
        == b"abc\r\n" + b"x" * 300
    )


async def test_the_handler_may_close_the_connection(serve: Serve) -> None:
    said = await (await serve(always(Response(429, b"", [("connection", "close")])))).exchange(GET + GET)
    assert said.count(b"HTTP/1.1 429") == 1
    assert said.lower().count(b"connection: close") == 1


async def test_header_values_cannot_add_headers_or_change_the_framing(serve: Serve) -> None:
    headers = [("Warning", "a\r\nX-Evil: 1\r\n\r\n<body>"), ("Content-Length", "99"), ("Transfer-Encoding", "chunked")]
    client = await (await serve(always(Response(200, b"ok", headers)))).connect()
    client.send(GET)
    answer = await client.answer()
    assert "x-evil" not in answer.headers
    assert "transfer-encoding" not in answer.headers
    assert answer.headers["warning"] == "a  x-evil: 1    <body>"
    assert answer.body == b"ok"


async def test_a_failed_handler_gives_a_500_without_details(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: Request) -> Response:
        if request.path == "/cancelled":
            raise asyncio.CancelledError
        raise RuntimeError("secret")

    client = await (await serve(handler)).connect()
    with caplog.at_level(logging.ERROR):
        client.send(GET.replace(b"/a", b"/a?token=hidden"))
        answer = await client.answer()
    assert (answer.status, answer.body) == (500, b"500 Internal Server Error")
    assert [record.getMessage() for record in caplog.records] == ["handler of GET /a failed"]
    client.send(GET.replace(b"/a", b"/cancelled"))
    assert (await client.answer()).status == 500, "the connection goes on"


async def test_on_error_writes_the_500_and_may_fail(serve: Serve) -> None:
    def words(request: Request | None, status: int, text: str) -> Response:
        assert request is not None
        if request.path == "/a":
            raise ValueError("twice")
        return Response(status, b"sorry")

    async def handler(request: Request) -> Response:
        raise RuntimeError

    client = await (await serve(handler, on_error=words)).connect()
    client.send(GET + GET.replace(b"/a", b"/b"))
    assert (await client.answer()).body == b"500 Internal Server Error"
    assert (await client.answer()).body == b"sorry"


async def test_a_handler_completes_after_its_client_disconnects(serve: Serve) -> None:
    started, go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        started.set()
        await go.wait()
        await asyncio.sleep(0)
        ended.set()
        return Response(200, b"nobody reads this")

    served = await serve(handler)
    client = await served.connect()
    client.send(GET)
    await started.wait()
    client.writer.transport.abort()
    await until(lambda: all(connection._eof for connection in served.server._connections))
    go.set()
    await ended.wait()
