"""The client side of a WebSocket, and the Kubernetes streams that are multiplexed over it."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Sequence
from typing import Final

from setpoint.client.failures import failure
from setpoint.client.sender import Sender
from setpoint.client.transport import Reply, Unreachable, header
from setpoint.client.upgraded import Upgraded
from setpoint.meta.errors import ApiError
from setpoint.meta.websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, accepts, frame, goodbye

_LONGEST_MESSAGE: Final = 64 * 1024 * 1024
_LONGEST_PIECE: Final = 32 * 1024
"""The maximum payload of one message in bytes: servers need not accept longer ones."""


async def open_socket(sender: Sender, path: str, query: str, protocols: Sequence[str]) -> WebSocket:
    """Open a WebSocket. Raise ApiError if the server refuses, and Unreachable if there is none."""
    key = b64encode(os.urandom(16)).decode()
    asked = [
        ("upgrade", "websocket"),
        ("connection", "Upgrade"),
        ("sec-websocket-key", key),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", ", ".join(protocols)),
    ]
    answer = await sender.upgrade(path, query, asked)
    if isinstance(answer, Reply):
        raise _refusal(answer)
    if header(answer.headers, "sec-websocket-accept") != accepts(key):
        answer.close()
        raise Unreachable("the server switched to a protocol other than WebSocket")
    return WebSocket(answer, header(answer.headers, "sec-websocket-protocol"))


def _refusal(answer: Reply) -> ApiError:
    found = failure(answer)
    text = answer.body[:2048].decode("utf-8", "replace").strip()
    if answer.status < 400 or not text.startswith("{"):
        found.message = f"unable to upgrade connection: {text or found.message}"
        found.reason = ""
    return found


class WebSocket:
    """Sends and receives whole messages, in order. One task may send while another receives."""

    def __init__(self, connection: Upgraded, protocol: str) -> None:
        self.protocol = protocol
        self._connection = connection
        self._closed = False

    async def send(self, data: bytes) -> None:
        """Send one message. Raise Unreachable."""
        self._write(frame(BINARY, data, os.urandom(4)))
        try:
            await self._connection.writer.drain()
        except OSError as error:
            raise Unreachable(f"the connection is gone: {error}") from None

    async def receive(self) -> bytes | None:
        """Return the next message; None at the end. Raise Unreachable if the connection is lost without a close
        frame."""
        message = bytearray()
        while True:
            final, code, payload = await self._frame()
            if code == CLOSE:
                if not self._closed:
                    self._write(frame(CLOSE, payload[:2], os.urandom(4)))
                    self._closed = True
                return None
            if code == PING:
                self._write(frame(PONG, payload, os.urandom(4)))
            elif code in (CONTINUATION, 1, BINARY):
                message += payload
                if len(message) > _LONGEST_MESSAGE:
                    raise Unreachable("the server sent a message without end")
                if final:
                    return bytes(message)

    def close(self) -> None:
        """Close the connection, immediately and idempotently."""
        if not self._closed:
            self._closed = True
            end = goodbye()
            self._write(frame(CLOSE, end[2:], os.urandom(4)))
        self._connection.writer.close()

    def _write(self, data: bytes) -> None:
        self._connection.writer.write(data)

    async def _frame(self) -> tuple[bool, int, bytes]:
        first, second = await self._exactly(2)
        size = second & 0x7F
        if size > 125:
            size = int.from_bytes(await self._exactly(2 if size == 126 else 8), "big")
        if size > _LONGEST_MESSAGE or second & 0x80:
            raise Unreachable("the server sent an invalid WebSocket frame")
        return bool(first & 0x80), first & 0x0F, await self._exactly(size)

    async def _exactly(self, size: int) -> bytes:
        try:
            return await self._connection.reader.readexactly(size)
        except (EOFError, OSError):
            raise Unreachable("the server closed the connection in the middle of the session") from None


class Channels:
    """Several streams in one WebSocket: every message begins with its channel number."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def send(self, channel: int, data: bytes) -> None:
        view = memoryview(data)
        for at in range(0, len(data), _LONGEST_PIECE):
            await self._socket.send(bytes((channel,)) + view[at : at + _LONGEST_PIECE])

    async def end(self, channel: int) -> None:
        """Close one channel for sending."""
        if self._socket.protocol == V5:
            await self._socket.send(bytes((_CLOSE, channel)))

    async def receive(self) -> tuple[int, bytes] | None:
        """Return a channel and the data that arrived on it; None when all channels have ended."""
        while (message := await self._socket.receive()) is not None:
            if len(message) > 1:
                return message[0], message[1:]
        return None

    def close(self) -> None:
        self._socket.close()


V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
_CLOSE = 255
