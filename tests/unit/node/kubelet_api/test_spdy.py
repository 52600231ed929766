"""Both sides of SPDY/3.1, and the streams of remote commands over it."""

from __future__ import annotations

import zlib
from struct import pack

import orjson
import pytest
from connection_pair import connection_pair
from scripted_wire import Wire

from setpoint.node.kubelet_api.interface import KubeletApiError
from setpoint.node.kubelet_api.remote_streams import SPDY_PROTOCOLS, SUCCESS, SpdyStreams, negotiate_spdy
from setpoint.wire.spdy import (
    DICTIONARY,
    SpdyConnection,
    SpdyError,
    StreamAccepted,
    StreamData,
    StreamOpened,
    StreamReset,
)


class Client:
    """Builds the frames that a client sends."""

    def __init__(self) -> None:
        self._packing = zlib.compressobj(zdict=DICTIONARY)

    def open(self, stream: int, **headers: str) -> bytes:
        block = pack(">I", len(headers))
        for name, value in headers.items():
            block += pack(">I", len(name)) + name.encode() + pack(">I", len(value)) + value.encode()
        packed = self._packing.compress(block) + self._packing.flush(zlib.Z_SYNC_FLUSH)
        return control(1, pack(">IIH", stream, 0, 0) + packed)


def control(kind: int, payload: bytes, version: int = 3) -> bytes:
    return pack(">HHI", 0x8000 | version, kind, len(payload)) + payload


def data(stream: int, payload: bytes, last: bool = False) -> bytes:
    return pack(">II", stream, (1 << 24 if last else 0) | len(payload)) + payload


def frames(raw: bytes) -> list[tuple[int, int, bytes]]:
    found = []
    while raw:
        first, second = int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:8], "big")
        size = second & 0xFFFFFF
        found.append((first, second >> 24, raw[8 : 8 + size]))
        raw = raw[8 + size :]
    return found


def test_compression_dictionary() -> None:
    assert len(DICTIONARY) == 1423
    assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2


async def test_streams_are_accepted_and_carry_data() -> None:
    client = Client()
    wire = Wire(client.open(1, streamtype="error") + client.open(3, streamtype="stdout") + data(3, b"x", last=True))
    connection = SpdyConnection(wire)
    assert await connection.receive() == StreamOpened(1, {"streamtype": "error"})
    assert await connection.receive() == StreamOpened(3, {"streamtype": "stdout"})
    assert await connection.receive() == StreamData(3, b"x", True)
    assert await connection.receive() is None
    replies = frames(wire.written)
    assert [(first, payload[:4]) for first, _, payload in replies] == [
        (0x80030002, pack(">I", 1)),
        (0x80030002, pack(">I", 3)),
    ]
    unpacking = zlib.decompressobj(zdict=DICTIONARY)
    assert [unpacking.decompress(payload[4:]) for _, _, payload in replies] == [bytes(4)] * 2


async def test_pings_are_answered_and_unknown_frames_ignored() -> None:
    wire = Wire(control(4, bytes(12)) + control(9, bytes(8)) + control(6, pack(">I", 7)) + control(7, bytes(8)))
    assert await SpdyConnection(wire).receive() is None
    assert frames(wire.written) == [(0x80030006, 0, pack(">I", 7))]


@pytest.mark.parametrize(
    "raw",
    [
        control(1, b"short"),
        control(1, pack(">IIH", 1, 0, 0) + b"not packed"),
        control(6, bytes(4), version=2),
        Client().open(2, streamtype="even"),
        pack(">II", 1, 0xFFFFFF),
        Client().open(1, **{f"name{i}": "v" * 1000 for i in range(100)}),
    ],
)
async def test_protocol_errors_end_the_connection(raw: bytes) -> None:
    with pytest.raises(SpdyError):
        await SpdyConnection(Wire(raw)).receive()


async def test_streams_of_a_command() -> None:
    client = Client()
    sent = [client.open(number, streamtype=kind) for number, kind in ((1, "error"), (3, "stdin"), (5, "stdout"))]
    wire = Wire(*sent, data(3, b"typed"), data(3, b"", last=True))
    streams = SpdyStreams(SpdyConnection(wire), SPDY_PROTOCOLS[0])
    assert await streams.open([0, 1, 3])
    assert await streams.receive() == (0, b"typed")
    assert await streams.receive() == (0, None)
    wire.written = b""
    streams.write(1, b"said")
    streams.write(2, b"nobody asked for this")
    streams.finish(SUCCESS)
    told = frames(wire.written)
    assert told[0] == (5, 0, b"said")
    assert told[1][0] == 1 and orjson.loads(told[1][2]) == SUCCESS
    assert told[2:4] == [(5, 1, b""), (1, 1, b"")]
    assert told[4][0] == 0x80030007


async def test_client_that_never_opens_its_streams() -> None:
    streams = SpdyStreams(SpdyConnection(Wire(Client().open(1, streamtype="error"))), SPDY_PROTOCOLS[0])
    assert not await streams.open([1, 3])


def test_protocol_negotiation() -> None:
    assert negotiate_spdy(["v4.channel.k8s.io", "v3.channel.k8s.io"])[0] == "v4.channel.k8s.io"
    assert negotiate_spdy(["channel.k8s.io, v3.channel.k8s.io"])[0] == "v3.channel.k8s.io"
    assert negotiate_spdy([])[0] == "channel.k8s.io"
    with pytest.raises(KubeletApiError):
        negotiate_spdy(["other"])


async def test_a_client_opens_streams_and_ends_them_one_by_one() -> None:
    here, there = connection_pair()
    client, server = SpdyConnection(here, is_client=True), SpdyConnection(there)
    assert [client.open({"StreamType": kind}) for kind in ("error", "stdin")] == [1, 3]
    assert await server.receive() == StreamOpened(1, {"streamtype": "error"})
    assert await server.receive() == StreamOpened(3, {"streamtype": "stdin"})
    assert [await client.receive(), await client.receive()] == [StreamAccepted(1), StreamAccepted(3)]
    client.write(3, b"typed")
    client.write(3, b"", last=True)
    assert [await server.receive(), await server.receive()] == [
        StreamData(3, b"typed", False),
        StreamData(3, b"", True),
    ]
    server.write(3, b"still open")
    server.reset(1)
    assert [await client.receive(), await client.receive()] == [StreamData(3, b"still open", False), StreamReset(1)]
    there.write(control(6, pack(">I", 2)) + control(6, pack(">I", 3)))
    server.close(3)
    assert await client.receive() is None
    assert frames(await there.read()) == [(0x80030006, 0, pack(">I", 2))], "clients answer pings of the server only"


async def test_headers_that_follow_are_decompressed() -> None:
    """All headers of a connection share one compression context."""
    client = Client()
    later = client.open(1, streamtype="error")
    headers = control(8, later[8:12] + client.open(3, more="x")[18:])
    wire = Wire(later + headers + client.open(3, streamtype="stdout"))
    connection = SpdyConnection(wire)
    assert await connection.receive() == StreamOpened(1, {"streamtype": "error"})
    assert await connection.receive() == StreamOpened(3, {"streamtype": "stdout"})


async def test_a_server_must_not_open_streams() -> None:
    with pytest.raises(SpdyError):
        await SpdyConnection(Wire(Client().open(2, streamtype="x")), is_client=True).receive()
