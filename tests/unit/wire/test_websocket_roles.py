"""A WebSocket client and a WebSocket server, connected with each other."""

from __future__ import annotations

import asyncio

import pytest

from setpoint.wire.websocket import (
    HandshakeError,
    WebSocket,
    accept_handshake,
    accept_value,
    encode_frame,
    offer_handshake,
)


class Pipe:
    """One end of a connection within the process."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[bytes] = asyncio.Queue()
        self.peer: Pipe

    def write(self, data: bytes) -> None:
        self.peer.received.put_nowait(data)

    async def read(self) -> bytes:
        return await self.received.get()

    async def drained(self) -> None: ...

    def close(self) -> None:
        self.peer.received.put_nowait(b"")


@pytest.fixture
def pipes() -> tuple[Pipe, Pipe]:
    one, other = Pipe(), Pipe()
    one.peer, other.peer = other, one
    return one, other


def test_the_handshake_of_a_client_is_accepted() -> None:
    key, headers = offer_handshake(["v5", "v4"])
    protocol, answer = accept_handshake(dict(headers), ["v4", ""])
    assert protocol == "v4"
    assert dict(answer)["Sec-WebSocket-Accept"] == accept_value(key)
    with pytest.raises(HandshakeError, match="not supported"):
        accept_handshake(dict(headers), ["v3"])


def test_the_accept_value_of_the_rfc() -> None:
    assert accept_value("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 300_000])
async def test_messages_of_any_size_in_both_directions(pipes: tuple[Pipe, Pipe], size: int) -> None:
    client, server = WebSocket(pipes[0], is_client=True), WebSocket(pipes[1])
    message = bytes(number % 251 for number in range(size))
    client.send(message)
    assert await server.receive() == message
    server.send(message, text=True)
    assert await client.receive() == message


async def test_a_close_is_answered_and_nothing_follows_it(pipes: tuple[Pipe, Pipe]) -> None:
    client, server = WebSocket(pipes[0], is_client=True), WebSocket(pipes[1])
    server.send(b"last")
    server.close()
    server.send(b"too late")
    assert await client.receive() == b"last"
    assert await client.receive() is None and client.failure == ""
    assert await server.receive() is None and server.failure == ""


async def test_a_lost_connection_is_not_a_close(pipes: tuple[Pipe, Pipe]) -> None:
    client = WebSocket(pipes[0], is_client=True)
    pipes[1].close()
    assert await client.receive() is None
    assert client.failure == "the connection was closed in the middle of the session"


async def test_only_clients_mask_their_messages(pipes: tuple[Pipe, Pipe]) -> None:
    client, server = WebSocket(pipes[0], is_client=True), WebSocket(pipes[1])
    pipes[1].write(encode_frame(2, b"x", b"mask"))
    assert await client.receive() is None and client.failure == "the peer violated WebSocket"
    pipes[0].received.put_nowait(b"")
    pipes[0].write(encode_frame(2, b"x"))
    await pipes[1].read()  # the close frame of the client
    assert await server.receive() is None and server.failure == "the peer violated WebSocket"


async def test_messages_over_the_limit_are_rejected(pipes: tuple[Pipe, Pipe]) -> None:
    client, server = WebSocket(pipes[0], is_client=True), WebSocket(pipes[1], max_message=10)
    client.send(b"x" * 11)
    assert await server.receive() is None and "too long" in server.failure
