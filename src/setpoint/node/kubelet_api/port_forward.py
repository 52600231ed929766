"""`/portForward`: connections from a client to ports of a Pod, over each protocol that clients use for it.

- SPDY/3.1, protocol `portforward.k8s.io`: for every connection the client opens a stream for errors and one for data.
- The same within a WebSocket, `SPDY/3.1+portforward.k8s.io`: what kubectl prefers.
- A WebSocket with numbered channels, `v4.channel.k8s.io`: one connection for each port that the request names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from setpoint.meta.clock import Clock
from setpoint.node.kubelet_api.interface import (
    KubeletApiError,
    NodeHost,
    NodeRequest,
    NodeResponse,
    UpgradedResponse,
)
from setpoint.node.kubelet_api.logs import require_pod
from setpoint.node.kubelet_api.remote_streams import (
    WebSocketStreams,
    negotiate_spdy,
    negotiate_websocket,
)
from setpoint.wire.message import RawConnection
from setpoint.wire.spdy import (
    SpdyConnection,
    SpdyError,
    StreamData,
    StreamOpened,
    StreamReset,
    is_spdy,
)
from setpoint.wire.websocket import WebSocket, is_websocket

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_MAX_QUEUED_CHUNKS: Final = 2
"""The maximum of received chunks that are queued; a client that sends more has to wait. A chunk may be large."""


class ClientConnection:
    """A RawConnection: one of the connections that a client multiplexes."""

    def __init__(self, write: Callable[[bytes], None], drained: Callable[[], Awaitable[None]]) -> None:
        self._write = write
        self._drained = drained
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(_MAX_QUEUED_CHUNKS)
        self._ended = False

    async def feed(self, data: bytes) -> None:
        """Queue bytes that the client sent; empty bytes mean the end of its data. They are discarded after `end`."""
        if not self._ended:
            await self._chunks.put(data)

    def end(self) -> None:
        """Discard what the client has sent and sends from now on, so that it does not block other connections."""
        self._ended = True
        while not self._chunks.empty():
            self._chunks.get_nowait()

    def write(self, data: bytes) -> None:
        self._write(data)

    async def read(self) -> bytes:
        return await self._chunks.get()

    async def drained(self) -> None:
        await self._drained()

    def close(self) -> None:
        """The session that returns closes the connection."""


_SPDY: Final = "portforward.k8s.io"
_TUNNEL: Final = f"SPDY/3.1+{_SPDY}"
_CHANNELS: Final = ("v4.channel.k8s.io", "v4.base64.channel.k8s.io")
_MAX_PORTS: Final = 64


async def port_forward(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    pod = require_pod(host, parts[0], parts[1])
    forwarding = _Forwarding(host, pod)
    if is_websocket(request.headers):
        protocol, headers = negotiate_websocket(request.headers, (_TUNNEL, *_CHANNELS))
        if protocol == _TUNNEL:
            return UpgradedResponse(headers, lambda connection: forwarding.over_spdy(_Tunnel(WebSocket(connection))))
        ports = _ports(request)
        return UpgradedResponse(headers, partial(forwarding.over_channels, protocol, ports))
    if is_spdy(request.headers):
        headers = negotiate_spdy(request.header_values("x-stream-protocol-version"), (_SPDY,))[1]
        return UpgradedResponse(headers, forwarding.over_spdy)
    raise KubeletApiError(400, f"neither WebSocket nor SPDY/3.1: {request.headers.get('upgrade', 'nothing')}")


def _ports(request: NodeRequest) -> list[int]:
    """Parse the ports of the request. Raise KubeletApiError."""
    words = [word for value in request.query.get("port", ()) for word in value.split(",")]
    if not words:
        raise KubeletApiError(400, 'query parameter "port" is required')
    if len(words) > _MAX_PORTS:
        raise KubeletApiError(400, f"at most {_MAX_PORTS} ports can be forwarded by one request")
    return [_port(word) for word in words]


def _port(text: str) -> int:
    """Parse a port number. Raise KubeletApiError."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65536):
        raise KubeletApiError(400, f'unable to parse "{text[:20]}" as a port')
    return int(text)


class _Forwarded(NamedTuple):
    """A connection of a client over SPDY."""

    client: ClientConnection
    error_stream: int
    task: asyncio.Task[None]


class _Forwarding:
    """The connections to one Pod that a client multiplexes over one connection to its node."""

    def __init__(self, host: NodeHost, pod: Pod) -> None:
        self._host = host
        self._pod = pod

    async def _run_connection(self, port: int, connection: ClientConnection) -> str:
        """Run a connection to its end and return the message for its error stream; empty if there was no error."""
        error = await self._host.connect(self._pod, port)(connection)
        meta = self._pod["metadata"]
        return f"error forwarding port {port} to pod {meta['name']}, uid {meta['uid']}: {error}" if error else ""

    async def over_channels(self, protocol: str, ports: list[int], connection: RawConnection) -> None:
        """Forward over a WebSocket. Each port has a data and an error channel, which both begin with the port
        number."""
        streams = WebSocketStreams(WebSocket(connection), protocol)
        by_channel: dict[int, ClientConnection] = {}

        async def run_one(at: int, port: int) -> None:
            error = await self._run_connection(port, by_channel[2 * at])
            by_channel.pop(2 * at).end()
            if error:
                streams.write(2 * at + 1, error.encode())

        async def run_all() -> None:
            async with asyncio.TaskGroup() as connections:
                for at, port in enumerate(ports):
                    connections.create_task(run_one(at, port))

        for at, port in enumerate(ports):
            for channel in (2 * at, 2 * at + 1):
                streams.write(channel, port.to_bytes(2, "little"))
            by_channel[2 * at] = ClientConnection(partial(streams.write, 2 * at), streams.drained)
        async with asyncio.TaskGroup() as tasks:
            both = [tasks.create_task(run_all()), tasks.create_task(self._receive_channels(streams, by_channel))]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in both:
                task.cancel()
        with suppress(OSError):
            await streams.drained()
        streams.close()

    async def _receive_channels(self, streams: WebSocketStreams, by_channel: dict[int, ClientConnection]) -> None:
        while (received := await streams.receive()) is not None:
            found = by_channel.get(received.channel)
            if found is not None and received.data:
                await found.feed(received.data)

    async def over_spdy(self, connection: RawConnection) -> None:
        """Forward over SPDY. The client opens the error stream of a connection before its data stream, which starts
        it."""
        spdy = SpdyConnection(connection)
        errors: dict[str, int] = {}
        open_connections: dict[int, _Forwarded] = {}

        def end(stream: int, error: str) -> None:
            ended = open_connections.pop(stream)
            ended.client.end()
            spdy.write(ended.error_stream, error.encode(), last=True)
            spdy.write(stream, b"", last=True)

        async def run_one(stream: int, port: int) -> None:
            end(stream, await self._run_connection(port, open_connections[stream].client))
            with suppress(OSError):
                await spdy.drained()

        async with asyncio.TaskGroup() as tasks:
            with suppress(SpdyError, OSError):
                while (event := await spdy.receive()) is not None:
                    if isinstance(event, StreamOpened):
                        started = self._stream_opened(event, errors, spdy)
                        if started is not None:
                            error_stream, port = started
                            client = ClientConnection(partial(spdy.write, event.stream), spdy.drained)
                            task = tasks.create_task(run_one(event.stream, port))
                            open_connections[event.stream] = _Forwarded(client, error_stream, task)
                    elif (found := open_connections.get(event.stream)) is None:
                        if isinstance(event, StreamReset):
                            errors = {request: stream for request, stream in errors.items() if stream != event.stream}
                    elif isinstance(event, StreamReset):
                        found.task.cancel()
                        end(event.stream, "")
                    elif isinstance(event, StreamData):
                        await _feed(found.client, event)
            for each in open_connections.values():
                each.task.cancel()

    @staticmethod
    def _stream_opened(event: StreamOpened, errors: dict[str, int], spdy: SpdyConnection) -> tuple[int, int] | None:
        """Return the error stream and the port of the connection that this stream starts; None if it is an error
        stream, or invalid and refused."""
        request, kind = event.headers.get("requestid", ""), event.headers.get("streamtype", "")
        if kind == "error":
            errors[request] = event.stream
            return None
        error_stream = errors.pop(request, None)
        try:
            if kind == "data" and error_stream is not None:
                return error_stream, _port(event.headers.get("port", ""))
        except KubeletApiError:
            pass
        spdy.reset(event.stream)
        return None


async def _feed(connection: ClientConnection, event: StreamData) -> None:
    if event.data:
        await connection.feed(event.data)
    if event.last:
        await connection.feed(b"")


class _Tunnel:
    """A RawConnection over a WebSocket: each write is one message."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    def write(self, data: bytes) -> None:
        self._socket.send(data)

    async def read(self) -> bytes:
        while (message := await self._socket.receive()) is not None:
            if message:
                return message
        return b""

    async def drained(self) -> None:
        await self._socket.drained()

    def close(self) -> None:
        self._socket.close()
