"""WebSockets to the API server, and the Kubernetes streams that are multiplexed over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from setpoint.client.failures import failure
from setpoint.client.sender import Sender
from setpoint.client.transport import Reply, Unreachable, header
from setpoint.meta.errors import ApiError
from setpoint.wire.message import RawConnection
from setpoint.wire.websocket import WebSocket, accept_value, offer_handshake

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, RESIZE = range(5)
"""The channels of exec and attach."""
_CLOSE: Final = 255
"""The channel on which v5 announces that another channel is closed."""
_MAX_RECEIVED: Final = 64 * 1024 * 1024
_MAX_SENT: Final = 32 * 1024
"""The maximum payload of one message in bytes: servers need not accept longer ones."""


class Channels:
    """Several streams in one WebSocket: every message begins with its channel number."""

    def __init__(self, connection: RawConnection, protocol: str) -> None:
        self._connection = connection
        self._socket = WebSocket(connection, is_client=True, protocol=protocol, max_message=_MAX_RECEIVED)

    async def send(self, channel: int, data: bytes) -> None:
        """Send data on a channel. Raise Unreachable."""
        view = memoryview(data)
        for at in range(0, len(data), _MAX_SENT):
            await self._send(bytes((channel,)) + view[at : at + _MAX_SENT])

    async def end(self, channel: int) -> None:
        """Close one channel for sending. Raise Unreachable."""
        if self._socket.protocol == V5:
            await self._send(bytes((_CLOSE, channel)))

    async def receive(self) -> tuple[int, bytes] | None:
        """Return a channel and the data that arrived on it; None when all channels have ended.

        Raise Unreachable if the connection is lost before.
        """
        while (message := await self._socket.receive()) is not None:
            if len(message) > 1:
                return message[0], message[1:]
        if self._socket.failure:
            raise Unreachable(f"the session with the server broke off: {self._socket.failure}")
        return None

    def close(self) -> None:
        """Close the WebSocket and the connection; what was sent before still arrives."""
        self._socket.close()
        self._connection.close()

    async def _send(self, message: bytes) -> None:
        self._socket.send(message)
        try:
            await self._socket.drained()
        except OSError as error:
            raise Unreachable(f"the connection is gone: {error}") from None


async def open_channels(sender: Sender, path: str, query: str, protocols: Sequence[str]) -> Channels:
    """Open a WebSocket. Raise ApiError if the server refuses, and Unreachable if there is none."""
    key, headers = offer_handshake(protocols)
    answer = await sender.upgrade(path, query, headers)
    if isinstance(answer, Reply):
        raise _refusal(answer)
    if header(answer.headers, "sec-websocket-accept") != accept_value(key):
        answer.connection.close()
        raise Unreachable("the server switched to a protocol other than WebSocket")
    return Channels(answer.connection, header(answer.headers, "sec-websocket-protocol"))


def _refusal(answer: Reply) -> ApiError:
    found = failure(answer)
    text = answer.body[:2048].decode("utf-8", "replace").strip()
    if answer.status < 400 or not text.startswith("{"):
        found.message = f"unable to upgrade connection: {text or found.message}"
        found.reason = ""
    return found
