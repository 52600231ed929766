"""The HTTP/2 client connection against a scripted peer: frames in any pieces, flow control, faults."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.testing.virtual_time import run_virtual
from setpoint.wire.grpc import Channel, GrpcError
from setpoint.wire.http2 import Http2Connection
from setpoint.wire.http2_headers import literal
from setpoint.wire.http2_stream import Http2Stream, StreamFailed

DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
HEAD = literal(":path", "/x")
OK = literal(":status", "200")
TRAILERS = literal("grpc-status", "0")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def settings(**values: int) -> bytes:
    numbers = {"max_streams": 3, "window": 4, "max_frame": 5}
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", numbers[name], value) for name, value in values.items()))


class Peer(asyncio.Transport):
    """A transport that records frames."""

    def __init__(self, **options: float) -> None:
        super().__init__()
        self.sent = bytearray()
        self.closed = False
        self.connection = Http2Connection(**options)
        self.connection.connection_made(self)

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """Return the frames sent since the last call, without the preface."""
        data, found = bytes(self.sent).removeprefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), []
        self.sent.clear()
        while data:
            length, flags, stream = struct.unpack(">IBI", data[:9])
            kind, length = length & 255, length >> 8
            found.append((kind, flags, stream, data[9 : 9 + length]))
            data = data[9 + length :]
        return found

    async def receive(self, *frames: bytes) -> list[tuple[int, int, int, bytes]]:
        self.connection.data_received(b"".join(frames))
        await asyncio.sleep(0)
        return self.frames()


class Recorder:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def on_headers(self, headers: Mapping[str, str]) -> None:
        self.calls.append(dict(headers))

    def on_data(self, data: bytes) -> None:
        self.calls.append(data)

    def on_end(self, trailers: Mapping[str, str]) -> None:
        self.calls.append(("end", dict(trailers)))

    def on_failure(self, failure: StreamFailed) -> None:
        self.calls.append((str(failure), failure.may_be_processed))

    @property
    def data(self) -> bytes:
        return b"".join(call for call in self.calls if isinstance(call, bytes))


async def opened(**values: int) -> tuple[Peer, Http2Stream, Recorder]:
    """A peer with these settings, and one stream."""
    peer, recorder = Peer(), Recorder()
    await peer.receive(settings(**values))
    stream = peer.connection.open(HEAD, recorder)
    return peer, stream, recorder


ANSWER = b"".join(
    (
        settings(),
        frame(HEADERS, 0, 1, OK[:5]),
        frame(CONTINUATION, END_HEADERS, 1, OK[5:]),
        frame(DATA, 0, 1, b"one"),
        frame(PING, 0, 0, b"12345678"),
        frame(DATA, PADDED, 1, b"\x04two" + bytes(4)),
        frame(20, 0, 1, b"an unknown frame"),
        frame(DATA, 0, 7, b"of an unknown stream"),
        frame(HEADERS, END | END_HEADERS, 1, TRAILERS),
    )
)


@given(st.lists(st.integers(0, len(ANSWER)), max_size=12))
def test_frames_may_arrive_in_any_pieces(cuts: list[int]) -> None:
    async def receive() -> None:
        peer, recorder = Peer(), Recorder()
        peer.connection.open(HEAD, recorder)
        edges = [0, *sorted(cuts), len(ANSWER)]
        for begin, end in pairwise(edges):
            peer.connection.data_received(ANSWER[begin:end])
        await asyncio.sleep(0.02)
        assert recorder.calls == [{":status": "200"}, b"one", b"two", ("end", {"grpc-status": "0"})]
        assert (PING, ACK, 0, b"12345678") in peer.frames()

    run_virtual(receive)


async def test_data_waits_for_the_windows_of_the_stream_and_of_the_connection() -> None:
    peer, stream, _ = await opened(window=10)
    stream.send(b"x" * 25, end=True)
    await asyncio.sleep(0)
    assert [sent[1:] for sent in peer.frames() if sent[0] == DATA] == [(0, 1, b"x" * 10)]
    sent = await peer.receive(frame(WINDOW, 0, 1, struct.pack(">I", 12)))
    assert sent == [(DATA, 0, 1, b"x" * 12)]
    sent = await peer.receive(settings(window=20))
    assert (DATA, END, 1, b"xxx") in sent
    other, large = Recorder(), b"y" * 70_000
    second = peer.connection.open(HEAD, other)
    peer.connection.data_received(frame(WINDOW, 0, 3, struct.pack(">I", 100_000)))
    second.send(large)
    await asyncio.sleep(0)
    assert sum(len(sent[3]) for sent in peer.frames() if sent[0] == DATA) == 65_535 - 25
    sent = await peer.receive(frame(WINDOW, 0, 0, struct.pack(">I", 10_000)))
    assert sum(len(one[3]) for one in sent) == 70_000 - 65_535 + 25


async def test_data_waits_for_the_socket() -> None:
    peer, stream, _ = await opened()
    peer.connection.pause_writing()
    stream.send(b"x", end=True)
    await asyncio.sleep(0)
    assert not [sent for sent in peer.frames() if sent[0] == DATA]
    peer.connection.resume_writing()
    await asyncio.sleep(0)
    assert peer.frames() == [(DATA, END, 1, b"x")]


async def test_streams_wait_for_the_concurrency_limit() -> None:
    peer, _, first = await opened(max_streams=1)
    second = Recorder()
    waiting, dropped = peer.connection.open(HEAD, second), peer.connection.open(HEAD, Recorder())
    waiting.send(b"x", end=True)
    dropped.reset()
    await asyncio.sleep(0)
    assert [sent[2] for sent in peer.frames() if sent[0] == HEADERS] == [1]
    sent = await peer.receive(frame(HEADERS, END | END_HEADERS, 1, TRAILERS))
    assert first.calls == [("end", {"grpc-status": "0"})]
    assert [one[:3] for one in sent] == [(RST, 0, 1), (HEADERS, END_HEADERS, 3), (DATA, END, 3)]


async def test_whether_a_failed_request_may_have_been_processed() -> None:
    peer, _, first = await opened(max_streams=3)
    second, third, waiting = Recorder(), Recorder(), Recorder()
    for recorder in (second, third, waiting):
        peer.connection.open(HEAD, recorder)
    await peer.receive(frame(RST, 0, 1, struct.pack(">I", 7)))
    assert first.calls == [("the peer refused the stream", False)]
    await peer.receive(frame(GOAWAY, 0, 0, struct.pack(">II", 3, 0) + b"bye"))
    reason = "the peer is closing the connection (code 0, bye)"
    assert (third.calls, waiting.calls, second.calls) == ([(reason, False)], [(reason, False)], [])
    with pytest.raises(StreamFailed, match="closing") as refused:
        peer.connection.open(HEAD, Recorder())
    assert not refused.value.may_be_processed
    assert not peer.closed
    await peer.receive(frame(RST, 0, 3, struct.pack(">I", 2)))
    assert second.calls == [("stream reset with code 2", True)]
    assert peer.closed


async def test_a_lost_connection_fails_everything_once() -> None:
    peer, stream, recorder = await opened()
    peer.connection.connection_lost(OSError("reset by peer"))
    peer.connection.connection_lost(None)
    stream.send(b"late")
    stream.reset()
    assert recorder.calls == [("the connection was lost: reset by peer", True)]
    assert peer.connection.failure == "the connection was lost: reset by peer"


@pytest.mark.parametrize(
    "bad",
    [
        struct.pack(">IBI", 20_000 << 8, 0, 1),
        frame(HEADERS, 0, 1, OK) + frame(DATA, 0, 1),
        frame(CONTINUATION, END_HEADERS, 1, OK),
        frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff"),
        frame(HEADERS, END_HEADERS, 1, b"\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        frame(DATA, PADDED, 1, b"\x05abc"),
        frame(WINDOW, 0, 0, b"\0\0\0\0"),
        frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff"),
        frame(WINDOW, 0, 0, b"\0"),
        frame(SETTINGS, 0, 0, b"12345"),
        settings(max_frame=1),
        frame(GOAWAY, 0, 0, b""),
        frame(5, 0, 1, b""),
        frame(HEADERS, 0, 1, bytes(16_000)) + frame(CONTINUATION, 0, 1, bytes(16_000)) * 5,
    ],
)
async def test_protocol_violations_close_the_connection(bad: bytes) -> None:
    peer, _, recorder = await opened()
    sent = await peer.receive(bad + frame(DATA, 0, 1, b"never seen"))
    assert sent[-1][0] == GOAWAY and peer.closed
    assert len(recorder.calls) == 1
    assert recorder.calls[0][0].startswith("the peer violated HTTP/2: it sent ")


@given(st.binary(max_size=200))
def test_random_bytes_never_raise(junk: bytes) -> None:
    async def receive() -> None:
        peer, _, recorder = await opened()
        peer.connection.data_received(junk)
        peer.connection.connection_lost(None)
        assert len([call for call in recorder.calls if isinstance(call, tuple)]) == 1

    run_virtual(receive)


@pytest.mark.parametrize(
    ("begin", "what"),
    [
        (b"HTTP/1.1 400 Bad Request", "an answer of HTTP/1"),
        (b"\x15\x03\x01\x00\x02\x02F\x00\x00\x00", "a record of TLS"),
    ],
)
async def test_a_peer_of_another_protocol_is_an_error(begin: bytes, what: str) -> None:
    peer, _, recorder = await opened()
    await peer.receive(begin)
    assert recorder.calls == [(f"the peer violated HTTP/2: it sent {what}", True)]


def test_pings_are_answered_soon_and_not_at_once() -> None:
    """An answer at once would make a server of gRPC send the next ping with its next frame."""

    def ping(number: int) -> bytes:
        return frame(PING, 0, 0, b"%08d" % number)

    async def receive() -> None:
        peer, stream, _ = await opened()
        await asyncio.sleep(1)
        peer.frames()
        assert await peer.receive(ping(1), ping(2)) == []
        stream.send(b"x")
        await asyncio.sleep(0)
        assert peer.frames() == [(DATA, 0, 1, b"x")]
        await asyncio.sleep(0.02)
        assert peer.frames() == [(PING, ACK, 0, b"00000001"), (PING, ACK, 0, b"00000002")]
        assert len(await peer.receive(*map(ping, range(100)))) >= 90, "only a few wait"
        await asyncio.sleep(0.02)
        assert len(peer.frames()) <= 10
        await peer.receive(ping(4))
        peer.connection.close()
        await asyncio.sleep(1)

    run_virtual(receive)


async def test_requests_of_one_iteration_are_written_together_up_to_a_number() -> None:
    peer = Peer()
    await peer.receive(settings())
    for _ in range(20):
        peer.connection.open(HEAD, Recorder(), body=b"body")
    assert [stream for kind, _, stream, _ in peer.frames() if kind == HEADERS] == [1 + 2 * n for n in range(16)]
    await asyncio.sleep(0)
    assert [stream for kind, _, stream, _ in peer.frames() if kind == HEADERS] == [1 + 2 * n for n in range(16, 20)]


async def test_a_request_can_be_written_at_once() -> None:
    peer, _, recorder = await opened()
    await asyncio.sleep(0)
    peer.frames()
    peer.connection.open(HEAD, recorder, body=b"x", at_once=True)
    assert peer.frames() == [(HEADERS, END_HEADERS, 3, HEAD), (DATA, END, 3, b"x")]
    await asyncio.sleep(0)
    assert peer.frames() == []
    peer.connection.open(HEAD, recorder)
    assert peer.frames() == []
    peer.connection.open(HEAD, recorder, body=b"", at_once=True)
    assert peer.frames() == [(HEADERS, END_HEADERS, 5, HEAD), (HEADERS, END_HEADERS, 7, HEAD), (DATA, END, 7, b"")]


@given(st.binary(max_size=40_000), st.integers(0, 70_000), st.integers(0, 70_000), st.booleans())
def test_a_request_with_its_body_equals_one_in_two_steps(body: bytes, window: int, more: int, at_once: bool) -> None:
    """Whatever the windows allow is sent in the same frames."""

    async def sent(*, in_one_step: bool) -> list[tuple[int, int, int, bytes]]:
        peer, _, _ = await opened(window=window)
        peer.frames()
        if in_one_step:
            peer.connection.open(HEAD, Recorder(), body=body, at_once=at_once)
        else:
            peer.connection.open(HEAD, Recorder()).send(body, end=True)
        await asyncio.sleep(0)
        frames = peer.frames()
        peer.connection.data_received(frame(WINDOW, 0, 3, struct.pack(">I", more + 1)))
        await asyncio.sleep(0)
        return frames + peer.frames()

    async def compare() -> None:
        assert await sent(in_one_step=True) == await sent(in_one_step=False)

    run_virtual(compare)


def test_a_silent_peer_is_pinged_and_disconnected() -> None:
    async def wait() -> None:
        peer, recorder = Peer(keepalive=30, keepalive_timeout=10), Recorder()
        await asyncio.sleep(300)
        assert PING not in [sent[0] for sent in peer.frames()], "without streams: servers forbid it"
        peer.connection.open(HEAD, recorder)
        await asyncio.sleep(31)
        assert [sent[0] for sent in peer.frames()].count(PING) == 1
        await peer.receive(frame(PING, ACK, 0, b"setpoint"))
        await asyncio.sleep(31)
        assert [sent[0] for sent in peer.frames()] == [PING]
        await asyncio.sleep(10)
        assert recorder.calls == [("the peer sent nothing for 40 s and did not answer a ping", True)]
        assert peer.closed

    run_virtual(wait)


def test_a_peer_that_owes_an_answer_is_pinged_earlier() -> None:
    async def wait() -> None:
        peer, recorder = Peer(keepalive=30, keepalive_timeout=10), Recorder()
        peer.connection.open(HEAD, recorder, asyncio.get_running_loop().time() + 100)
        await asyncio.sleep(6.3)
        assert [sent[0] for sent in peer.frames()].count(PING) == 1
        await peer.receive(frame(PING, ACK, 0, b"setpoint"))
        await asyncio.sleep(29)
        assert peer.frames() == [], "pings are at least 30 s apart"
        await asyncio.sleep(1.5)
        assert [sent[0] for sent in peer.frames()] == [PING]
        await asyncio.sleep(10)
        assert peer.closed

    run_virtual(wait)


def test_a_refused_call_is_repeated_until_its_deadline() -> None:
    class Busy(Peer):
        """Refuses the first 25 streams, and answers the next one."""

        refused = 0

        def write(self, data: Any) -> None:
            super().write(data)
            for kind, _, stream, _ in self.frames():
                if kind == HEADERS:
                    self.refused += 1
                    refusal = frame(RST, 0, stream, struct.pack(">I", 7))
                    message = frame(DATA, 0, stream, b"\x00\x00\x00\x00\x01x")
                    answer = frame(HEADERS, END_HEADERS, stream, OK) + message
                    answer += frame(HEADERS, END | END_HEADERS, stream, TRAILERS)
                    received = refusal if self.refused <= 25 else answer
                    asyncio.get_running_loop().call_soon(self.connection.data_received, received)

    async def call() -> None:
        channel = Channel(Busy().connection, "http://peer", {})
        assert await channel.unary("/test.Service/Echo", b"", timeout=30) == b"x"
        channel = Channel(Busy().connection, "http://peer", {})
        with pytest.raises(GrpcError, match="the peer refused the stream"):
            await channel.unary("/test.Service/Echo", b"", timeout=1)

    run_virtual(call)


def test_a_stream_fails_at_its_deadline() -> None:
    async def wait() -> None:
        peer = Peer(keepalive=30, keepalive_timeout=10)
        await peer.receive(settings(max_streams=1))
        sent, waiting, later = Recorder(), Recorder(), Recorder()
        now = asyncio.get_running_loop().time()
        peer.connection.open(HEAD, sent, now + 2)
        peer.connection.open(HEAD, waiting, now + 1)
        peer.connection.open(HEAD, later, now + 90)
        await asyncio.sleep(1.3)
        assert (sent.calls, waiting.calls) == ([], [("there was no answer in time", False)])
        peer.frames()
        await asyncio.sleep(1)
        assert sent.calls == [("there was no answer in time", True)]
        assert [sent_frame[0] for sent_frame in peer.frames()] == [RST, HEADERS], (
            "the peer may stop, and the next begins"
        )
        assert later.calls == [] and not peer.closed

    run_virtual(wait)
