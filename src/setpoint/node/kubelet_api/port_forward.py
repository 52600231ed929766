"""`/portForward`: connections from a client to ports of a Pod, over each protocol that clients use for it.

- SPDY/3.1, protocol `portforward.k8s.io`: for every connection the client opens a stream for errors and one for data.
- The same within a WebSocket, `SPDY/3.1+portforward.k8s.io`: what kubectl prefers.
- A WebSocket with numbered channels, `v4.channel.k8s.io`: one connection for each port that the request names.

Simulated servers implement HTTP/1.1 only. A server that listens but whose responses are not simulated accepts the
connection and closes it when the first bytes arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

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
from setpoint.node.runtime.network import ConnectionFailure, PodRequest, PodResponse
from setpoint.wire.encoding import CONTINUE, DateHeader, bodyless, head, header_lines, status_line
from setpoint.wire.limits import Limits
from setpoint.wire.message import Peer, RawConnection, Request
from setpoint.wire.request_parser import SLICE, ReceivedRequest, RequestParser
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

_LIMITS: Final = Limits(head=64 * 1024, body=4 * 1024 * 1024)
_MAX_QUEUED_CHUNKS: Final = 2
"""The maximum of received chunks that are queued; a client that sends more has to wait. A chunk may be large."""

Deliver = Callable[[PodRequest], PodResponse | ConnectionFailure]


class ForwardedConnection:
    """Parses the requests of one connection and writes the responses of the Pod's server."""

    def __init__(self, port: int, deliver: Deliver, clock: Clock, write: Callable[[bytes], None]) -> None:
        self._port = port
        self._deliver = deliver
        self._clock = clock
        self._write = write
        self._date = DateHeader(clock)
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(_MAX_QUEUED_CHUNKS)

    async def feed(self, data: bytes) -> None:
        """Queue bytes that the client sent; empty bytes mean the end of its data."""
        await self._chunks.put(data)

    async def run(self) -> str:
        """Respond to requests until either side closes the connection. Return the error that broke it; empty if there
        was none."""
        parser = RequestParser(_LIMITS, Peer())
        try:
            while chunk := await self._chunks.get():
                for start in range(0, len(chunk), SLICE):
                    parser.feed(chunk[start : start + SLICE])
                    error = await self._respond_to_all(parser)
                    if error or parser.finished:
                        return error
            return ""
        finally:
            parser.release()

    async def _respond_to_all(self, parser: RequestParser) -> str:
        """Respond to the requests that are complete. Return the error that broke the connection; empty if there was
        none."""
        while parser.ready:
            received = parser.ready.pop(0)
            if received.failure is not None:
                status, text = received.failure
                self._write_response(PodResponse(status, text or _phrase(status)), closing=True)
                continue
            assert received.request is not None
            error = await self._respond(received.request, received)
            if error:
                return error
            if received.upgrade:  # simulated servers accept no other protocol
                parser.feed(parser.resume())
        if parser.wants_continue:
            parser.wants_continue = False
            self._write(CONTINUE)
        return ""

    async def _respond(self, request: Request, received: ReceivedRequest) -> str:
        target = PodRequest(self._port, request.path or "/", request.query, request.method, body=request.body)
        response = self._deliver(target)
        if isinstance(response, ConnectionFailure):
            return f"read tcp4 127.0.0.1:{self._port}: read: {response.value.lower()}"
        if response.delay:
            await self._clock.sleep(response.delay)
        self._write_response(
            response, closing=received.is_last, http10=received.http10, without_body=request.method == "HEAD"
        )
        return ""

    def _write_response(
        self, response: PodResponse, *, closing: bool, http10: bool = False, without_body: bool = False
    ) -> None:
        body = response.body.encode("utf-8", "surrogateescape")
        length = "" if bodyless(response.status) else f"Content-Length: {len(body)}\r\n"
        connection = "Connection: close\r\n" if closing else "Connection: keep-alive\r\n" if http10 else ""
        date = self._date.line(self._clock.monotonic())
        content_type = header_lines([("Content-Type", response.content_type)])
        self._write(
            head(response.status, content_type, date, length, connection)
            + (body if length and not without_body else b"")
        )


def _phrase(status: int) -> str:
    return status_line(status).rstrip().split(" ", 2)[2]


_SPDY: Final = "portforward.k8s.io"
_TUNNEL: Final = f"SPDY/3.1+{_SPDY}"
_CHANNELS: Final = ("v4.channel.k8s.io", "v4.base64.channel.k8s.io")
_MAX_PORTS: Final = 64


def port_forward(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    pod = require_pod(host, parts[0], parts[1])
    forwarding = _Forwarding(host, pod, clock)
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


class _Forwarding:
    """The connections to one Pod that a client multiplexes over one connection to its node."""

    def __init__(self, host: NodeHost, pod: Pod, clock: Clock) -> None:
        self._host = host
        self._pod = pod
        self._clock = clock

    def _connect(self, port: int, write: Callable[[bytes], None]) -> ForwardedConnection:
        return ForwardedConnection(port, partial(self._host.deliver, self._pod), self._clock, write)

    async def _run_connection(self, port: int, connection: ForwardedConnection) -> str:
        """Run a connection to its end and return the message for its error stream; empty if there was no error."""
        error = ""
        if not self._host.listens(self._pod, port):
            error = f"failed to connect to localhost:{port}: dial tcp4 127.0.0.1:{port}: connect: connection refused"
        error = error or await connection.run()
        meta = self._pod["metadata"]
        return f"error forwarding port {port} to pod {meta['name']}, uid {meta['uid']}: {error}" if error else ""

    async def over_channels(self, protocol: str, ports: list[int], connection: RawConnection) -> None:
        """Forward over a WebSocket. Each port has a data and an error channel, which both begin with the port
        number."""
        streams = WebSocketStreams(WebSocket(connection), protocol)
        by_channel: dict[int, ForwardedConnection] = {}

        async def run_one(at: int, port: int) -> None:
            error = await self._run_connection(port, by_channel[2 * at])
            if error:
                streams.write(2 * at + 1, error.encode())

        async def run_all() -> None:
            async with asyncio.TaskGroup() as connections:
                for at, port in enumerate(ports):
                    connections.create_task(run_one(at, port))

        for at, port in enumerate(ports):
            for channel in (2 * at, 2 * at + 1):
                streams.write(channel, port.to_bytes(2, "little"))
            by_channel[2 * at] = self._connect(port, partial(streams.write, 2 * at))
        async with asyncio.TaskGroup() as tasks:
            both = [tasks.create_task(run_all()), tasks.create_task(self._receive_channels(streams, by_channel))]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in both:
                task.cancel()
        with suppress(OSError):
            await streams.drained()
        streams.close()

    async def _receive_channels(self, streams: WebSocketStreams, by_channel: dict[int, ForwardedConnection]) -> None:
        while (received := await streams.receive()) is not None:
            found = by_channel.get(received.channel)
            if found is not None and received.data:
                await found.feed(received.data)

    async def over_spdy(self, connection: RawConnection) -> None:
        """Forward over SPDY. The client opens the error stream of a connection before its data stream, which starts
        it."""
        spdy = SpdyConnection(connection)
        errors: dict[str, int] = {}
        by_stream: dict[int, ForwardedConnection] = {}

        async def run_one(stream: int, error_stream: int, port: int) -> None:
            error = await self._run_connection(port, by_stream[stream])
            del by_stream[stream]
            spdy.write(error_stream, error.encode(), last=True)
            spdy.write(stream, b"", last=True)
            with suppress(OSError):
                await spdy.drained()

        async with asyncio.TaskGroup() as tasks:
            running: set[asyncio.Task[None]] = set()
            with suppress(SpdyError, OSError):
                while (event := await spdy.receive()) is not None:
                    if isinstance(event, StreamOpened):
                        started = self._stream_opened(event, errors, spdy)
                        if started is not None:
                            error_stream, port = started
                            by_stream[event.stream] = self._connect(port, partial(spdy.write, event.stream))
                            task = tasks.create_task(run_one(event.stream, error_stream, port))
                            running.add(task)
                            task.add_done_callback(running.discard)
                    elif (found := by_stream.get(event.stream)) is not None:
                        await _feed(found, event)
                    elif isinstance(event, StreamReset):
                        errors = {request: stream for request, stream in errors.items() if stream != event.stream}
            for task in running:
                task.cancel()

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


async def _feed(connection: ForwardedConnection, event: StreamData | StreamReset) -> None:
    if isinstance(event, StreamData) and event.data:
        await connection.feed(event.data)
    if isinstance(event, StreamReset) or event.last:
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
