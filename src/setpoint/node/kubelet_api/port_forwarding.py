"""`/portForward`: connections from a client's machine to ports of a Pod, over any protocol that clients use for it.

- SPDY/3.1, protocol `portforward.k8s.io`: for every connection the client opens a stream for errors and one for data.
- The same within a WebSocket, `SPDY/3.1+portforward.k8s.io`: what kubectl prefers.
- A WebSocket with numbered channels, `v4.channel.k8s.io`: one connection for each port that the request names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from setpoint.meta.clock import Clock
from setpoint.meta.websocket import is_websocket
from setpoint.node.kubelet_api import spdy_streams
from setpoint.node.kubelet_api.container_logs import named_pod
from setpoint.node.kubelet_api.forwarded_connection import ForwardedConnection
from setpoint.node.kubelet_api.host import NodeHost, Obj
from setpoint.node.kubelet_api.messages import Duplex, NodeAnswer, NodeRequest, Refused, Switched
from setpoint.node.kubelet_api.remote_streams import WebSocketStreams
from setpoint.node.kubelet_api.spdy import Data, Ended, Opened, SpdyConnection, SpdyError
from setpoint.node.kubelet_api.websocket import WebSocket, accepted

_SPDY: Final = "portforward.k8s.io"
_TUNNEL: Final = f"SPDY/3.1+{_SPDY}"
_CHANNELS: Final = ("v4.channel.k8s.io", "v4.base64.channel.k8s.io")
_MOST_PORTS: Final = 64


def port_forward(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeAnswer:
    pod = named_pod(host, parts[0], parts[1])
    forwarding = _Forwarding(host, pod, clock)
    if is_websocket(request.headers):
        protocol, headers = accepted(request.headers, (_TUNNEL, *_CHANNELS))
        if protocol == _TUNNEL:
            return Switched(headers, lambda connection: forwarding.over_spdy(_Tunnel(WebSocket(connection))))
        ports = _ports(request)
        return Switched(headers, partial(forwarding.over_channels, protocol, ports))
    if spdy_streams.is_spdy(request.headers):
        headers = spdy_streams.accepted(request.repeated("x-stream-protocol-version"), (_SPDY,))[1]
        return Switched(headers, forwarding.over_spdy)
    raise Refused(400, f"neither WebSocket nor SPDY/3.1: {request.headers.get('upgrade', 'nothing')}")


def _ports(request: NodeRequest) -> list[int]:
    """Raises Refused."""
    words = [word for value in request.query.get("port", ()) for word in value.split(",")]
    if not words:
        raise Refused(400, 'query parameter "port" is required')
    if len(words) > _MOST_PORTS:
        raise Refused(400, f"at most {_MOST_PORTS} ports can be forwarded by one request")
    return [_port(word) for word in words]


def _port(text: str) -> int:
    """Raises Refused."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65536):
        raise Refused(400, f'unable to parse "{text[:20]}" as a port')
    return int(text)


class _Forwarding:
    """All connections to one Pod that a client makes over one connection to its node."""

    def __init__(self, host: NodeHost, pod: Obj, clock: Clock) -> None:
        self._host = host
        self._pod = pod
        self._clock = clock

    def _connect(self, port: int, write: Callable[[bytes], None]) -> ForwardedConnection:
        return ForwardedConnection(port, partial(self._host.deliver, self._pod), self._clock, write)

    async def _carried(self, port: int, connection: ForwardedConnection) -> str:
        """Run a connection to its end and return what goes to the stream for errors; empty if nothing went wrong."""
        why = ""
        if not self._host.listens(self._pod, port):
            why = f"failed to connect to localhost:{port}: dial tcp4 127.0.0.1:{port}: connect: connection refused"
        why = why or await connection.run()
        meta = self._pod["metadata"]
        return f"error forwarding port {port} to pod {meta['name']}, uid {meta['uid']}: {why}" if why else ""

    async def over_channels(self, protocol: str, ports: list[int], connection: Duplex) -> None:
        """Each port has two channels, which begin with the number of the port: data, and then errors."""
        streams = WebSocketStreams(WebSocket(connection), protocol)
        carried: dict[int, ForwardedConnection] = {}

        async def carry(at: int, port: int) -> None:
            error = await self._carried(port, carried[2 * at])
            if error:
                streams.write(2 * at + 1, error.encode())

        async def carry_all() -> None:
            async with asyncio.TaskGroup() as connections:
                for at, port in enumerate(ports):
                    connections.create_task(carry(at, port))

        for at, port in enumerate(ports):
            for channel in (2 * at, 2 * at + 1):
                streams.write(channel, port.to_bytes(2, "little"))
            carried[2 * at] = self._connect(port, partial(streams.write, 2 * at))
        async with asyncio.TaskGroup() as tasks:
            both = [tasks.create_task(carry_all()), tasks.create_task(self._receive_channels(streams, carried))]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in both:
                task.cancel()
        with suppress(OSError):
            await streams.drained()
        streams.close()

    async def _receive_channels(self, streams: WebSocketStreams, carried: dict[int, ForwardedConnection]) -> None:
        while (received := await streams.receive()) is not None:
            found = carried.get(received.channel)
            if found is not None and received.data:
                await found.feed(received.data)

    async def over_spdy(self, connection: Duplex) -> None:
        """A connection begins when its stream for data is there; the one for errors comes before it."""
        spdy = SpdyConnection(connection)
        errors: dict[str, int] = {}
        carried: dict[int, ForwardedConnection] = {}

        async def carry(stream: int, error_stream: int, port: int) -> None:
            error = await self._carried(port, carried[stream])
            del carried[stream]
            spdy.write(error_stream, error.encode(), last=True)
            spdy.write(stream, b"", last=True)
            with suppress(OSError):
                await spdy.drained()

        async with asyncio.TaskGroup() as tasks:
            running: set[asyncio.Task[None]] = set()
            with suppress(SpdyError, OSError):
                while (event := await spdy.receive()) is not None:
                    if isinstance(event, Opened):
                        begun = self._opened(event, errors, spdy)
                        if begun is not None:
                            error_stream, port = begun
                            carried[event.stream] = self._connect(port, partial(spdy.write, event.stream))
                            task = tasks.create_task(carry(event.stream, error_stream, port))
                            running.add(task)
                            task.add_done_callback(running.discard)
                    elif (found := carried.get(event.stream)) is not None:
                        await _feed(found, event)
                    elif isinstance(event, Ended):
                        errors = {request: stream for request, stream in errors.items() if stream != event.stream}
            for task in running:
                task.cancel()

    @staticmethod
    def _opened(event: Opened, errors: dict[str, int], spdy: SpdyConnection) -> tuple[int, int] | None:
        """Return the stream for errors and the port of a connection that begins with this stream; None if it does
        not, or makes no sense and is refused."""
        request, kind = event.headers.get("requestid", ""), event.headers.get("streamtype", "")
        if kind == "error":
            errors[request] = event.stream
            return None
        error_stream = errors.pop(request, None)
        try:
            if kind == "data" and error_stream is not None:
                return error_stream, _port(event.headers.get("port", ""))
        except Refused:
            pass
        spdy.reset(event.stream)
        return None


async def _feed(connection: ForwardedConnection, event: Data | Ended) -> None:
    if isinstance(event, Data) and event.data:
        await connection.feed(event.data)
    if isinstance(event, Ended) or event.last:
        await connection.feed(b"")


class _Tunnel:
    """A Duplex within a WebSocket: what is written together goes as one message."""

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
