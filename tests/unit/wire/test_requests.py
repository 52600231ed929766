"""Parsing of valid requests."""

from __future__ import annotations

import asyncio

import pytest
from http_harness import Attach, Recorder, Serve, echo, settle

from setpoint.wire.message import Request, Response

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_a_request_arrives_as_it_was_sent(serve: Serve) -> None:
    recorder = Recorder()
    client = await (await serve(recorder)).connect()
    client.send(
        b"GET /a%2Fb/c?x=%20&y HTTP/1.1\r\nHOST: x\r\nX-One: 1 \t\r\nx-two: a\r\nX-Two: b\r\n"
        b"User-Agent: \xc3\xa9\r\n\r\n"
    )
    assert (await client.answer()).body == b"GET /a%2Fb/c [x=%20&y] 0"
    request = recorder.seen[0]
    assert request.headers == {"host": "x", "x-one": "1", "x-two": "a, b", "user-agent": "é"}
    assert request.repeated == {"x-two": ["a", "b"]}
    assert request.peer.address == "127.0.0.1"
    assert request.peer.port > 0
    assert request.peer.certificate is None


@pytest.mark.parametrize(
    ("address", "remote"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:0:0:0:0:0:7", "2001:db8::7"),
        ("fe80::1%eth0", "fe80::1"),
        ("127.0.0.1", ""),
        ("127.8.9.1", ""),
        ("::1", ""),
        ("::ffff:127.0.0.1", ""),
        ("", ""),
        ("/run/a.sock", ""),
    ],
)
async def test_the_remote_address_is_canonical_and_not_loopback(attach: Attach, address: str, remote: str) -> None:
    recorder = Recorder()
    client = attach(recorder, peername=(address, 4711))
    await settle()
    client.connection.data_received(GET)
    await settle()
    assert (recorder.seen[0].peer.address, recorder.seen[0].peer.remote) == (address, remote)


async def test_requests_of_one_connection_share_the_peer(serve: Serve) -> None:
    recorder = Recorder()
    client = await (await serve(recorder)).connect()
    for _ in range(3):
        client.send(GET)
        answer = await client.answer()
        assert answer.status == 200
        assert "connection" not in answer.headers
    assert len({id(r.peer) for r in recorder.seen}) == 1


async def test_pipelined_requests_are_answered_in_order(serve: Serve) -> None:
    running = 0

    async def handler(request: Request) -> Response:
        nonlocal running
        running += 1
        assert running == 1, "one at a time"
        if request.path == "/0":
            await asyncio.sleep(0)
        running -= 1
        return await echo(request)

    client = await (await serve(handler)).connect()
    bodies = b"".join(
        b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello" % number for number in range(3000)
    )
    client.send(bodies)
    for number in range(3000):
        assert (await client.answer()).body == b"POST /%d [] 5" % number


async def test_a_request_may_arrive_byte_by_byte(serve: Serve) -> None:
    client = await (await serve(echo)).connect()
    head = b"POST /a?b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    raw = head + b"3\r\nabc\r\n2;e=1\r\nde\r\n0\r\nT: 1\r\n\r\n"
    for index in range(len(raw)):
        client.send(raw[index : index + 1])
        await asyncio.sleep(0)
    assert (await client.answer()).body == b"POST /a [b] 5"


@pytest.mark.parametrize("size", [1, 1000, 16 * 1024, 200_000, 3 * 1024 * 1024])
@pytest.mark.parametrize("chunked", [False, True])
async def test_bodies_arrive_complete(serve: Serve, size: int, chunked: bool) -> None:
    recorder = Recorder()
    client = await (await serve(recorder)).connect()
    body = bytes(index % 251 for index in range(size))
    if chunked:
        pieces = [body[at : at + 70_000] for at in range(0, size, 70_000)]
        framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        client.send(b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n" + framed + b"0\r\n\r\n")
    else:
        client.send(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + body)
    assert (await client.answer()).status == 200
    assert recorder.seen[0].body == body
    client.send(GET)
    assert (await client.answer()).status == 200
    assert recorder.seen[1].body == b""


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"http://host:1/p/q?r", "/p/q", "r"),
        (b"https://host", "/", ""),
        (b"http://host?q=/x", "/", "q=/x"),
        (b"/p?u=http://x/", "/p", "u=http://x/"),
        (b"//double", "//double", ""),
        (b"*", "*", ""),
    ],
)
async def test_forms_of_the_request_target(serve: Serve, target: bytes, path: str, query: str) -> None:
    recorder = Recorder()
    client = await (await serve(recorder)).connect()
    client.send(b"OPTIONS " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    await client.answer()
    assert (recorder.seen[0].path, recorder.seen[0].query) == (path, query)


async def test_connection_close_is_honoured(serve: Serve) -> None:
    served = await serve(echo)
    said = await served.exchange(
        b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    assert said.count(b"HTTP/1.1 200") == 1
    assert b"\r\nConnection: close\r\n" in said


async def test_http_1_0_requests(serve: Serve) -> None:
    served = await serve(echo)
    said = await served.exchange(b"GET /a HTTP/1.0\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Connection: close" in said
    client = await served.connect()
    client.send(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert (await client.answer()).headers["connection"] == "keep-alive"
    client.send(GET)
    assert (await client.answer()).status == 200


async def test_a_half_closed_client_receives_the_response(serve: Serve) -> None:
    client = await (await serve(echo)).connect()
    client.send(GET + GET)
    client.writer.write_eof()
    assert (await client.rest()).count(b"HTTP/1.1 200") == 2


async def test_continue_is_sent_before_the_body_is_read(serve: Serve) -> None:
    client = await (await serve(echo)).connect()
    expecting = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n"
    client.send(GET + expecting)
    assert (await client.answer()).body == b"GET /a [] 0"
    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"abc")
    assert (await client.answer()).body == b"POST / [] 3"
    # No need to tell a client that has not waited.
    client.send(expecting + b"abc")
    assert (await client.answer()).body == b"POST / [] 3"
    # Nor HTTP/1.0.
    client.send(expecting.replace(b"1.1", b"1.0") + b"abc")
    assert (await client.answer()).status == 200


async def test_an_upgrade_offer_on_a_request_with_a_body_is_ignored(serve: Serve) -> None:
    recorder = Recorder()
    client = await (await serve(recorder)).connect()
    offer = b"Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    client.send(b"POST /1 HTTP/1.1\r\n" + offer + b"Content-Length: 4\r\n\r\nbo")
    await asyncio.sleep(0)
    client.send(b"dy" + GET)
    assert (await client.answer()).body == b"POST /1 [] 4"
    assert (await client.answer()).body == b"GET /a [] 0"
    client.send(b"POST /2 HTTP/1.1\r\n" + offer + b"Transfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n0\r\n\r\n" + GET)
    assert (await client.answer()).body == b"POST /2 [] 2"
    assert (await client.answer()).body == b"GET /a [] 0"
    # Without a body the handler may take it up; when it does not, HTTP goes on.
    client.send(b"GET /3 HTTP/1.1\r\n" + offer + b"\r\n" + GET)
    assert (await client.answer()).body == b"GET /3 [] 0"
    assert (await client.answer()).body == b"GET /a [] 0"
    assert ["upgrade" in r.headers for r in recorder.seen] == [False, False, False, False, True, False]
