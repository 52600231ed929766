"""The server side of a WebSocket, the streams of remote commands over it, and the terminal."""

from __future__ import annotations

import os

import orjson
import pytest
from scripted_wire import Wire

from setpoint.node.kubelet_api.interface import KubeletApiError
from setpoint.node.kubelet_api.remote_streams import STDOUT, SUCCESS, WebSocketStreams, failure, negotiate_websocket
from setpoint.node.kubelet_api.simulated_sessions import Terminal, for_terminal
from setpoint.wire.websocket import WebSocket

HANDSHAKE = {
    "upgrade": "websocket",
    "connection": "Upgrade",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def frame(code: int, payload: bytes, *, final: bool = True, mask: bool = True) -> bytes:
    size = len(payload)
    head = bytes((code | (0x80 if final else 0),))
    marked = 0x80 if mask else 0
    if size < 126:
        head += bytes((marked | size,))
    elif size < 65536:
        head += bytes((marked | 126,)) + size.to_bytes(2, "big")
    else:
        head += bytes((marked | 127,)) + size.to_bytes(8, "big")
    if not mask:
        return head + payload
    key = os.urandom(4)
    return head + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))


def test_handshake_of_the_rfc() -> None:
    protocol, headers = negotiate_websocket({**HANDSHAKE, "sec-websocket-protocol": "x, v4.channel.k8s.io"})
    assert protocol == "v4.channel.k8s.io"
    assert dict(headers)["Sec-WebSocket-Accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert dict(headers)["Sec-WebSocket-Protocol"] == protocol
    assert negotiate_websocket(HANDSHAKE)[0] == ""


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"sec-websocket-version": "8"}, 400),
        ({"sec-websocket-key": "short"}, 400),
        ({"sec-websocket-key": "?"}, 400),
        ({"sec-websocket-protocol": "other"}, 403),
    ],
)
def test_invalid_handshakes_are_rejected(changed: dict[str, str], status: int) -> None:
    with pytest.raises(KubeletApiError) as raised:
        negotiate_websocket({**HANDSHAKE, **changed})
    assert raised.value.status == status


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
async def test_messages_of_any_size_in_any_chunks(size: int) -> None:
    sent = frame(2, b"x" * size)
    cut = max(1, len(sent) // 3)
    pieces = [sent[at : at + cut] for at in range(0, len(sent), cut)]
    assert await WebSocket(Wire(*pieces)).receive() == b"x" * size


async def test_fragments_are_joined_and_pings_answered() -> None:
    wire = Wire(frame(2, b"ab", final=False) + frame(9, b"there?") + frame(0, b"cd"))
    socket = WebSocket(wire)
    assert await socket.receive() == b"abcd"
    assert wire.written == b"\x8a\x06there?"
    assert await socket.receive() is None


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(2, b"x", mask=False), 1002),
        (frame(0, b"x"), 1002),
        (frame(2, b"x", final=False) + frame(2, b"y"), 1002),
        (b"\xf2" + frame(2, b"x")[1:], 1002),
        (frame(9, b"x" * 126), 1002),
        (b"\x82\xff" + (1 << 40).to_bytes(8, "big"), 1009),
    ],
    ids=["unmasked", "nothing to go on with", "a message within a message", "unknown bits", "a long ping", "too long"],
)
async def test_protocol_errors_close_the_connection(sent: bytes, code: int) -> None:
    wire = Wire(sent)
    assert await WebSocket(wire).receive() is None
    assert wire.written[-4:] == b"\x88\x02" + code.to_bytes(2, "big")


async def test_streams_are_multiplexed_in_messages() -> None:
    wire = Wire(frame(2, b"\x00typed") + frame(2, b"\xff\x00"))
    streams = WebSocketStreams(WebSocket(wire), "v5.channel.k8s.io")
    assert await streams.receive() == (0, b"typed")
    assert await streams.receive() == (0, None)
    streams.write(STDOUT, b"said")
    streams.finish(failure(3))
    assert wire.written.startswith(b"\x82\x05\x01said")
    status = orjson.loads(wire.written[wire.written.index(b"{") : wire.written.rindex(b"}") + 1])
    assert status["reason"] == "NonZeroExitCode" and status["details"]["causes"][0]["message"] == "3"


async def test_older_subprotocols() -> None:
    wire = Wire(frame(1, b"0dHlwZWQ="))
    streams = WebSocketStreams(WebSocket(wire), "base64.channel.k8s.io")
    assert await streams.receive() == (0, b"typed")
    streams.write(STDOUT, b"said")
    assert wire.written == b"\x81\x091c2FpZA=="
    streams.finish(SUCCESS)
    assert wire.written.endswith(b"\x88\x02\x03\xe8"), "nothing but the end: all went well"


def test_terminal_echoes_input_and_passes_on_lines() -> None:
    terminal = Terminal()
    assert terminal.process_keys(b"lx") == (b"lx", b"")
    assert terminal.process_keys(b"\x7fs\r") == (b"\b \bs\r\n", b"ls\n")
    assert terminal.process_keys(b"abc\x15\x03") == (b"abc\b \b\b \b\b \b^C\r\n", b"")
    assert terminal.interrupted and not terminal.end_of_input
    assert terminal.process_keys("ä\x7f".encode()) == ("ä\b \b".encode(), b"")
    terminal.process_keys(b"\x04")
    assert terminal.end_of_input
    assert for_terminal(b"a\nb") == b"a\r\nb"
