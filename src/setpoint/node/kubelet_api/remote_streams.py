"""The streams of a command in a container over WebSocket or SPDY: stdin, stdout, stderr, terminal size, exit status."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import orjson

from setpoint.meta.objects import Obj
from setpoint.node.kubelet_api.interface import Headers, KubeletApiError
from setpoint.wire.spdy import SpdyConnection, SpdyError, SpdyEvent, StreamAccepted, StreamData, StreamOpened
from setpoint.wire.websocket import HandshakeError, WebSocket, accept_handshake

STDIN, STDOUT, STDERR, STATUS, RESIZE = range(5)
_CLOSE_STREAM: Final = 255
_V5, _V4, _V4_BASE64 = "v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"
WEBSOCKET_PROTOCOLS: Final = (_V5, _V4, _V4_BASE64, "channel.k8s.io", "base64.channel.k8s.io", "")
SPDY_PROTOCOLS: Final = (_V4, "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
_WITH_STATUS: Final = (_V5, _V4, _V4_BASE64)
"""The protocols whose last message is a Status, not a text."""
_SPDY_CHANNELS: Final = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": STATUS, "resize": RESIZE}
"""Channels by the `streamtype` header of a stream."""

SUCCESS: Obj = {"metadata": {}, "status": "Success"}


def negotiate_websocket(headers: Mapping[str, str], known: Sequence[str] = WEBSOCKET_PROTOCOLS) -> tuple[str, Headers]:
    """Return the subprotocol and the headers of the response. Raise KubeletApiError."""
    try:
        return accept_handshake(headers, known)
    except HandshakeError as error:
        raise KubeletApiError(error.status, error.text) from None


def negotiate_spdy(offered: Sequence[str], known: Sequence[str] = SPDY_PROTOCOLS) -> tuple[str, Headers]:
    """Return the protocol, the first of `known` that the client offers, and the headers of the response.

    Raise KubeletApiError.
    """
    names = [each.strip() for line in offered for each in line.split(",")]
    chosen = next((each for each in known if each in names), None)
    if not any(names):
        chosen = known[-1]  # an old client, from before protocols had names
    if chosen is None:
        raise KubeletApiError(
            403, f"unable to upgrade: unable to negotiate protocol: client supports {names}, server accepts {known}"
        )
    return chosen, [("Upgrade", "SPDY/3.1"), ("Connection", "Upgrade"), ("X-Stream-Protocol-Version", chosen)]


class Received(NamedTuple):
    channel: int
    data: bytes | None
    """None means that the client has closed this channel."""


class RemoteStreams(Protocol):
    def write(self, channel: int, data: bytes) -> None: ...

    async def drained(self) -> None: ...

    async def receive(self) -> Received | None:
        """Return what the client sends next; None if it is gone."""
        ...

    def finish(self, status: Obj) -> None:
        """Send how the command ended. Nothing is written after this."""
        ...


class WebSocketStreams:
    """A RemoteStreams. Each message begins with its channel number, as a byte or, in the Base64 protocols, a digit."""

    def __init__(self, socket: WebSocket, protocol: str) -> None:
        self._socket = socket
        self._protocol = protocol
        self._base64 = "base64" in protocol

    def write(self, channel: int, data: bytes) -> None:
        if self._base64:
            self._socket.send(b"%d%b" % (channel, b64encode(data)), text=True)
        else:
            self._socket.send(bytes((channel,)) + data)

    async def drained(self) -> None:
        await self._socket.drained()

    async def receive(self) -> Received | None:
        while (message := await self._socket.receive()) is not None:
            if not message:
                continue
            if self._base64:
                try:
                    return Received(message[0] - ord("0"), b64decode(message[1:], validate=True))
                except NotBase64:
                    continue
            if message[0] == _CLOSE_STREAM and self._protocol == _V5:
                if len(message) == 2:
                    return Received(message[1], None)
                continue
            return Received(message[0], message[1:])
        return None

    def close(self) -> None:
        self._socket.close()

    def finish(self, status: Obj) -> None:
        if self._protocol in _WITH_STATUS:
            self.write(STATUS, orjson.dumps(status))
        elif status["status"] != "Success":
            self.write(STATUS, status["message"].encode())
        self._socket.close()


class SpdyStreams:
    """A RemoteStreams. Each channel is a SPDY stream, whose headers say which."""

    def __init__(self, connection: SpdyConnection, protocol: str) -> None:
        self._connection = connection
        self._protocol = protocol
        self._streams: dict[int, int] = {}
        """The stream of each open channel."""
        self._channels: dict[int, int] = {}
        """The channel of each stream."""
        self._pending: list[Received] = []
        """Data that was received and not returned yet."""

    async def open(self, channels: Collection[int]) -> bool:
        """Wait until the client has opened all of these channels; return False if it is gone before."""
        while not all(channel in self._streams for channel in channels):
            if not await self._receive_event():
                return False
        return True

    def write(self, channel: int, data: bytes) -> None:
        stream = self._streams.get(channel)
        if stream is not None:
            self._connection.write(stream, data)

    async def drained(self) -> None:
        await self._connection.drained()

    async def receive(self) -> Received | None:
        while not self._pending:
            if not await self._receive_event():
                return None
        return self._pending.pop(0)

    def finish(self, status: Obj) -> None:
        if self._protocol == _V4:
            self.write(STATUS, orjson.dumps(status))
        elif status["status"] != "Success":
            self.write(STATUS, status["message"].encode())
        for channel in (STDOUT, STDERR, STATUS):
            if channel in self._streams:
                self._connection.write(self._streams[channel], b"", last=True)
        self._connection.close(max(self._channels, default=0))

    async def _receive_event(self) -> bool:
        """Process what the client does next; return False if it is gone or violates the protocol."""
        try:
            event = await self._connection.receive()
        except SpdyError:
            return False
        if event is not None:
            self._process(event)
        return event is not None

    def _process(self, event: SpdyEvent) -> None:
        if isinstance(event, StreamAccepted):
            return
        if isinstance(event, StreamOpened):
            channel = _SPDY_CHANNELS.get(event.headers.get("streamtype", ""))
            if channel is not None:
                self._streams[channel] = event.stream
                self._channels[event.stream] = channel
            return
        channel = self._channels.get(event.stream)
        if channel is None:
            return
        if isinstance(event, StreamData) and event.data:
            self._pending.append(Received(channel, event.data))
        if not isinstance(event, StreamData) or event.last:
            self._pending.append(Received(channel, None))


def failure(exit_code: int) -> Obj:
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {exit_code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(exit_code)}]},
    }


def internal_error(why: str) -> Obj:
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {why}",
        "reason": "InternalError",
        "details": {"causes": [{"message": why}]},
        "code": 500,
    }
