"""A small HTTP(S) server for webhooks, metrics and probes; not meant for the public internet.

Everything that a peer controls is bounded: the number of connections, the size of headers and bodies, and the time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from ssl import SSLContext, SSLError
from typing import NamedTuple
from urllib.parse import unquote

import httptools

log = logging.getLogger("setpoint.operator.http")

_AT_ONCE = 64 * 1024


class Limits(NamedTuple):
    body: int = 64 * 1024
    head: int = 64 * 1024
    connections: int = 256
    buffered: int = 256 * 1024 * 1024
    """Bytes of incomplete request bodies, over all connections."""
    idle: float = 90.0
    """Seconds between two requests on a connection."""
    transfer: float = 30.0
    """Seconds for a request to arrive, and for a response to be sent."""
    handshake: float = 10.0


@dataclass(slots=True)
class Request:
    method: str = ""
    path: str = ""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    keep_alive: bool = True


@dataclass(slots=True)
class Response:
    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"


Handler = Callable[[Request], Awaitable[Response]]


class HttpServer:
    def __init__(self, handler: Handler, *, ssl: SSLContext | None = None, limits: Limits | None = None) -> None:
        self._handler = handler
        self._ssl = ssl
        self._limits = limits or Limits()
        self._listener: asyncio.Server | None = None
        self._stopping = False
        self._connections: dict[asyncio.Task[None], bool] = {}
        """The open connections; true while a request is being handled."""
        self._buffered = _Buffered()

    async def start(self, host: str, port: int) -> int:
        """Listen on `host`, or on all addresses if it is empty, and return the port. Raise OSError if that fails."""
        self._listener = await asyncio.start_server(
            self._serve, host or None, port, ssl=self._ssl, limit=_AT_ONCE,
            ssl_handshake_timeout=self._limits.handshake if self._ssl else None,
        )  # fmt: skip
        found: int = self._listener.sockets[0].getsockname()[1]
        return found

    async def stop(self, grace: float) -> None:
        """Stop listening; requests in progress may finish within `grace` seconds."""
        self._stopping = True
        if self._listener is not None:
            self._listener.close()
        for task, busy in tuple(self._connections.items()):
            if not busy:
                task.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=grace)
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._stopping or len(self._connections) >= self._limits.connections:
            writer.transport.abort()
            return
        self._connections[task] = False
        incoming = _Incoming(self._limits, self._buffered)
        try:
            await self._exchange_all(task, incoming, reader, writer)
            writer.close()
        except (OSError, TimeoutError, SSLError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            incoming.release()
            del self._connections[task]

    async def _exchange_all(
        self,
        task: asyncio.Task[None],
        incoming: _Incoming,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        while not self._stopping:
            request = await self._next(incoming, reader, writer)
            if request is None:
                return
            if isinstance(request, Response):
                _write(writer, request, Request(keep_alive=False))
                await writer.drain()
                return
            self._connections[task] = True
            try:
                response = await self._handler(request)
            except Exception:
                log.exception("%s %s failed", request.method, request.path)
                response = Response(500, b"internal error\n")
            request.keep_alive = request.keep_alive and not self._stopping
            _write(writer, response, request)
            async with asyncio.timeout(self._limits.transfer):
                await writer.drain()
            self._connections[task] = False
            if not request.keep_alive:
                return

    async def _next(
        self, incoming: _Incoming, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Request | Response | None:
        """Return the next request, an error response to an invalid one, or None at the end. Raise TimeoutError."""
        limit = asyncio.timeout(self._limits.idle)
        async with limit:
            while not incoming.complete:
                began = incoming.begun
                data = await reader.read(_AT_ONCE)
                if not data:
                    return None
                refusal = incoming.feed(data)
                if refusal is not None:
                    return refusal
                if incoming.begun and not began:
                    limit.reschedule(asyncio.get_running_loop().time() + self._limits.transfer)
                if incoming.expects_continue:
                    incoming.expects_continue = False
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return incoming.complete.popleft()


class _Buffered:
    bytes = 0


class _Incoming:
    """Parses the requests of one connection."""

    def __init__(self, limits: Limits, buffered: _Buffered) -> None:
        self._limits = limits
        self._buffered = buffered
        self._parser = httptools.HttpRequestParser(self)
        self._request = Request()
        self._url = b""
        self._pieces: list[bytes] = []
        self._head = self._size = 0
        self._in_head = True
        self._refusal: Response | None = None
        self.begun = False
        self.expects_continue = False
        """Whether the peer waits for `100 Continue` before it sends the body."""
        self.complete: deque[Request] = deque()

    def feed(self, data: bytes) -> Response | None:
        self.begun = True
        if self._in_head:
            self._head += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return Response(400, b"this connection stays HTTP/1.1\n")
        except httptools.HttpParserError:
            return self._refusal or Response(400, b"this is not HTTP/1.1\n")
        if self._in_head and self._head > self._limits.head:
            return Response(431, b"the head of the request is too long\n")
        return self._refusal

    def release(self) -> None:
        """Release the buffered bytes of an incomplete request."""
        self._buffered.bytes -= self._size
        self._size = 0

    # -- httptools ----------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._request, self._url, self._pieces = Request(), b"", []
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._request.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._in_head, self._head = False, 0
        self.expects_continue = self._request.headers.get("expect", "").lower() == "100-continue"

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        self._buffered.bytes += len(body)
        if self._size > self._limits.body:
            self._refusal = Response(413, b"the body of the request is too long\n")
        elif self._buffered.bytes > self._limits.buffered:
            self._refusal = Response(503, b"there are too many requests at once\n")
        if self._refusal is not None:
            self._pieces.clear()
            return
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        request = self._request
        path, _, request.query = self._url.decode("latin-1").partition("?")
        request.path = unquote(path)
        request.method = self._parser.get_method().decode("latin-1")
        request.keep_alive = self._parser.should_keep_alive()
        request.body = b"".join(self._pieces)
        self.release()
        self.complete.append(request)
        self.begun = False


def _write(writer: asyncio.StreamWriter, response: Response, request: Request) -> None:
    phrase = HTTPStatus(response.status).phrase
    end = "" if request.keep_alive else "Connection: close\r\n"
    head = (
        f"HTTP/1.1 {response.status} {phrase}\r\nContent-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n{end}\r\n"
    )
    writer.write(head.encode("latin-1") + (b"" if request.method == "HEAD" else response.body))
