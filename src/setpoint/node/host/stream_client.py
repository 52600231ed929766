"""A client of the streaming server of a container runtime: the streams of a command over SPDY/3.1.

The protocol is SPDY rather than WebSocket, because the runtimes' WebSocket protocol cannot end the standard input of a
command while its output continues.
"""

from __future__ import annotations

from collections import deque
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from setpoint.meta.clock import Clock
from setpoint.node.kubelet_api.interface import StreamOptions
from setpoint.node.kubelet_api.remote_streams import RESIZE, STATUS, STDERR, STDIN, STDOUT, Received
from setpoint.tasks import within
from setpoint.wire.client_connection import ClientConnection, open_connection
from setpoint.wire.forwarding import truncated_response
from setpoint.wire.http_exchange import encode_request
from setpoint.wire.message import RawConnection
from setpoint.wire.spdy import SpdyConnection, SpdyError, StreamAccepted, StreamData, StreamReset

_PROTOCOL: Final = "v4.channel.k8s.io"
_STREAM_TYPES: Final = {STATUS: "error", STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr", RESIZE: "resize"}
"""The `streamtype` header of each channel, in the order in which Kubernetes clients open them."""
_SETUP_TIMEOUT: Final = 30.0
_MAX_ERROR: Final = 64 * 1024
_MAX_FRAME: Final = 32 * 1024
_MAX_EARLY: Final = 64
"""Events that may arrive before all streams are accepted."""


class StreamServerError(Exception):
    """The streaming server refused the request, or did not answer as it should."""


class RemoteProcess:
    """The streams of a command that runs in a container, or of a container's main program."""

    def __init__(self, connection: RawConnection, channels: list[int]) -> None:
        self._connection = connection
        self._spdy = SpdyConnection(connection, is_client=True)
        self._streams = {channel: self._spdy.open({"streamtype": _STREAM_TYPES[channel]}) for channel in channels}
        self._channels = {stream: channel for channel, stream in self._streams.items()}
        self._pending: deque[Received] = deque()

    async def accepted(self) -> None:
        """Wait until the server has accepted all streams: it discards what it receives before. Raise
        StreamServerError."""
        missing = set(self._channels)
        while missing:
            try:
                event = await self._spdy.receive()
            except SpdyError as error:
                raise StreamServerError(str(error)) from None
            if event is None or isinstance(event, StreamReset) or len(self._pending) > _MAX_EARLY:
                raise StreamServerError("the streaming server of the container runtime refused the streams")
            if isinstance(event, StreamAccepted):
                missing.discard(event.stream)
            elif isinstance(event, StreamData):
                self._add(event)

    def write(self, channel: int, data: bytes) -> None:
        """Send data on a channel; ignored if the channel was not opened."""
        stream = self._streams.get(channel)
        if stream is not None:
            for at in range(0, len(data), _MAX_FRAME):
                self._spdy.write(stream, data[at : at + _MAX_FRAME])

    def close_channel(self, channel: int) -> None:
        """End what is sent on a channel; the others stay open."""
        stream = self._streams.get(channel)
        if stream is not None:
            self._spdy.write(stream, b"", last=True)

    async def drained(self) -> None:
        """Wait until the server has read what was written. Raise OSError if it is gone."""
        await self._connection.drained()

    async def receive(self) -> Received | None:
        """Return what the command writes next, on any channel, or the end of a channel; None when the connection has
        ended."""
        while not self._pending:
            try:
                event = await self._spdy.receive()
            except SpdyError:
                return None
            if event is None:
                return None
            if isinstance(event, StreamData):
                self._add(event)
            elif isinstance(event, StreamReset) and event.stream in self._channels:
                self._pending.append(Received(self._channels[event.stream], None))
        return self._pending.popleft()

    def close(self) -> None:
        self._spdy.close(0)
        self._connection.close()

    def _add(self, event: StreamData) -> None:
        channel = self._channels.get(event.stream)
        if channel is None:
            return
        if event.data:
            self._pending.append(Received(channel, event.data))
        if event.last:
            self._pending.append(Received(channel, None))


async def open_process(url: str, options: StreamOptions, clock: Clock) -> RemoteProcess:
    """Connect to a command at a URL that the runtime has returned. Raise StreamServerError, or OSError."""
    try:
        return await within(clock, _SETUP_TIMEOUT, _open(url, options))
    except TimeoutError:
        raise StreamServerError("timed out waiting for the streaming server of the container runtime") from None


async def _open(url: str, options: StreamOptions) -> RemoteProcess:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    if parts.scheme != "http" or not _is_loopback(host):
        raise StreamServerError("the streaming server of the container runtime must listen on a loopback address")
    connection = await open_connection(host, port, None)
    try:
        upgraded = await _upgrade(connection, parts.path + (f"?{parts.query}" if parts.query else ""), parts.netloc)
        requested = {STATUS: True, STDIN: options.stdin, STDOUT: options.stdout, STDERR: options.stderr}
        channels = [channel for channel, is_open in {**requested, RESIZE: options.tty}.items() if is_open]
        process = RemoteProcess(upgraded, channels)
        await process.accepted()
        return process
    except BaseException:
        connection.abort()
        raise


async def _upgrade(connection: ClientConnection, target: str, host: str) -> RawConnection:
    """Upgrade a connection to SPDY. Raise StreamServerError, or OSError."""
    headers = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", _PROTOCOL)]
    exchange = connection.send(encode_request("POST", target, host, headers, b""), offers_upgrade=True)
    await connection.head(exchange)
    if exchange.status != 101:
        response = await truncated_response(connection, exchange, _MAX_ERROR)
        text = response.whole_body.decode("utf-8", "replace").strip()
        raise StreamServerError(f"unable to upgrade connection: {text or exchange.status}")
    protocol = next((value for name, value in exchange.headers if name.lower() == "x-stream-protocol-version"), "")
    if protocol != _PROTOCOL:
        raise StreamServerError(f"the streaming server of the container runtime chose protocol {protocol!r}")
    return connection.upgraded()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
