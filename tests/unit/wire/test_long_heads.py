"""Long request heads, in any fragments."""

from __future__ import annotations

from itertools import pairwise

import pytest
from http_harness import Attach, Recorder, settle
from hypothesis import given
from hypothesis import strategies as st

from setpoint.wire.limits import Limits
from setpoint.wire.message import Peer
from setpoint.wire.request_parser import SLICE, RequestParser

LONG = b"x" * 40_000
HEAD = b"POST /a?b HTTP/1.1\r\nHost: h\r\nX-Long: " + LONG + b"\r\nContent-Length: 3\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n"


def feed(parser: RequestParser, pending: bytearray, data: bytes) -> None:
    pending += data
    while pending and not parser.finished and (size := parser.next_feed_size(pending)):
        piece = bytes(pending[:size])
        del pending[:size]
        parser.feed(piece)


def told(parser: RequestParser) -> list[tuple[str, str, bytes, int]]:
    return [
        (each.request.method, each.request.path, each.request.body, len(each.request.headers.get("x-long", "")))
        for each in parser.ready
        if each.request is not None
    ]


@given(st.lists(st.integers(0, len(HEAD) + 40), max_size=12), st.integers(0, 8))
def test_fragmentation_does_not_change_the_request(cuts: list[int], near: int) -> None:
    text = HEAD + b"abc"
    end = len(HEAD)
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts), *range(end - near, end)})
    parser, pending = RequestParser(Limits(), Peer()), bytearray()
    for start, stop in pairwise(places):
        feed(parser, pending, text[start:stop])
    assert told(parser) == [("POST", "/a", b"abc", 40_000)] and parser.idle
    feed(parser, pending, NEXT)
    assert told(parser)[1:] == [("GET", "/next", b"", 0)] and parser.idle


@pytest.mark.parametrize("more", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("piece", [1, SLICE, 2 * SLICE])
def test_the_end_of_a_head_may_arrive_at_the_long_head_threshold(more: int, piece: int) -> None:
    begin, end = b"GET /a HTTP/1.1\r\nHost: h\r\nX-Long: ", b"\r\n\r\n"
    text = begin + b"x" * (SLICE + more - len(begin) - len(end)) + end
    parser, pending = RequestParser(Limits(), Peer()), bytearray()
    for start in range(0, len(text), piece):
        feed(parser, pending, text[start : start + piece])
    assert [each[1] for each in told(parser)] == ["/a"]


@pytest.mark.parametrize("piece", [1000, 20_000, 2_000_000])
def test_heads_over_the_limit_are_rejected_early(piece: int) -> None:
    parser, pending = RequestParser(Limits(), Peer()), bytearray()
    text = b"GET / HTTP/1.1\r\nHost: h\r\nX-Long: " + b"x" * 1_500_000
    fed = 0
    for start in range(0, len(text), piece):
        if parser.ready:
            break
        feed(parser, pending, text[start : start + piece])
        fed += piece
    assert [each.failure for each in parser.ready] == [(431, "")]
    assert fed <= 1024 * 1024 + 2 * piece


async def test_reading_pauses_while_a_long_head_arrives(attach: Attach) -> None:
    recorder = Recorder()
    transport = attach(recorder)
    await settle()
    transport.connection.data_received(HEAD[:30_000])
    assert not transport.reading
    await settle()
    assert transport.reading
    transport.connection.data_received(HEAD[30_000:] + b"abc")
    await settle()
    assert [request.path for request in recorder.seen] == ["/a"] and transport.reading
