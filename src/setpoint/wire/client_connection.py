"""One HTTP/1.1 connection to a server: one exchange at a time, with backpressure on reads, and upgrades."""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections import deque
from collections.abc import Iterable
from typing import Final, cast

import httptools

from setpoint.wire.tls import TlsClient
from setpoint.wire.upgraded import UpgradedConnection

READ_AHEAD: Final = 1024 * 1024
"""Bytes of a body that are buffered before reading is paused."""
_MAX_HEAD: Final = 256 * 1024


class ResponseLost(ConnectionError):
    """A response did not arrive completely: the connection was lost, or the server violated HTTP. Whether the server
    has processed the request is unknown. The message is one sentence for users."""


class Exchange:
    """A request that was sent, and its response as far as it has arrived."""

    __slots__ = (
        "_waiter",
        "chunks",
        "closes",
        "complete",
        "decompressor",
        "failure",
        "has_body",
        "headers",
        "headers_done",
        "offers_upgrade",
        "size",
        "status",
    )

    def __init__(self, has_body: bool, offers_upgrade: bool) -> None:
        self.has_body = has_body
        """Whether the response has a body; false for HEAD."""
        self.offers_upgrade = offers_upgrade
        """Whether the request offers to switch to another protocol."""
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        """Names, as sent, and values."""
        self.headers_done = False
        self.chunks: deque[bytes] = deque()
        self.size = 0
        """Bytes of `chunks`."""
        self.complete = False
        self.closes = False
        """Whether the end of the connection is the end of the body."""
        self.failure = ""
        """Why the response ends early; empty if it does not. This is a text, because a stored exception would reference
        the frames it was raised in, and they this object."""
        self.decompressor: zlib._Decompress | None = None
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def changed(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class ClientConnection(asyncio.Protocol):
    def __init__(self, *, decompress: bool = False) -> None:
        """Gzip bodies are decompressed if `decompress` is set; otherwise they are passed on unchanged."""
        self.loop = asyncio.get_running_loop()
        self.lost = False
        self.answered = False
        """Whether any byte of the response to the last request has arrived."""
        self._decompress = decompress
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        """The parser, set between `connection_made` and `connection_lost` only: it references methods of this object,
        which is a cycle."""
        self._exchange: Exchange | None = None
        self._upgraded: UpgradedConnection | None = None
        self._head_size = 0
        self._reading = True
        self._retired = False
        self._drained = asyncio.Event()
        self._drained.set()

    @property
    def idle(self) -> bool:
        """Whether the connection can be used for another request."""
        return not self.lost and self._exchange is None and self._upgraded is None and self._transport is not None

    def send(self, data: bytes, *, has_body: bool = True, offers_upgrade: bool = False) -> Exchange:
        """Send an encoded request."""
        assert self._exchange is None
        self._exchange = exchange = Exchange(has_body, offers_upgrade)
        self._head_size = 0
        self.answered = False
        if self._transport is None:
            self._fail("the server closed the connection before its answer was complete")
        else:
            self._transport.write(data)
        return exchange

    async def head(self, exchange: Exchange) -> None:
        """Wait for the status and the headers. Raise ResponseLost."""
        while not exchange.headers_done:
            if exchange.failure:
                raise ResponseLost(exchange.failure)
            await exchange.changed()

    async def next_chunk(self, exchange: Exchange) -> bytes:
        """Return the next chunk of the body, or b"" at its end. Raise ResponseLost."""
        while not exchange.chunks:
            if exchange.failure:
                raise ResponseLost(exchange.failure)
            if exchange.complete:
                return b""
            if not self._reading:
                self.resume_reading()
            await exchange.changed()
        chunk = exchange.chunks.popleft()
        exchange.size -= len(chunk)
        if not self._reading and exchange.size < READ_AHEAD // 2:
            self.resume_reading()
        return chunk

    def upgraded(self) -> UpgradedConnection:
        """Return the connection after the server has accepted an upgrade, that is, answered with 101."""
        assert self._upgraded is not None
        return self._upgraded

    def enable_tcp_keepalive(self) -> None:
        """Let the system detect a lost peer: a watch may be idle for a long time."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is None:
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def retire(self) -> None:
        """Close the connection after the present exchange, or after the first one if it is new."""
        self._retired = True
        if self.idle and self.answered:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        self.lost = True

    # Called by the upgraded connection.

    def send_raw(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    async def drained(self) -> None:
        await self._drained.wait()

    def pause_reading(self) -> None:
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            if self._transport is not None and not self.lost and not self._transport.is_closing():
                self._transport.resume_reading()

    def close(self) -> None:
        """Close the connection after what was written is sent."""
        if self._transport is not None:
            self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        if self._upgraded is not None:
            self._upgraded.data_received(data)
            return
        exchange = self._exchange
        if exchange is None:
            self.abort()  # data without a request
            return
        self.answered = True
        if not exchange.headers_done:
            self._head_size += len(data)
            if self._head_size > _MAX_HEAD + len(data):
                self._fail("the server sent headers without end")
                return
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as switched:
            if exchange.status == 101:
                self._exchange, self._parser = None, None
                self._upgraded = UpgradedConnection(self, data[switched.args[0] :])
            else:
                self._fail("the server switched to another protocol although none was offered")
        except (httptools.HttpParserError, zlib.error) as error:
            self._fail(f"the server's answer is not HTTP: {error}")
        if exchange.size > READ_AHEAD and not exchange.complete:
            self.pause_reading()
        exchange.wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._transport = self._parser = None
        self._drained.set()
        if self._upgraded is not None:
            self._upgraded.end()
            return
        exchange = self._exchange
        if exchange is None or exchange.complete:
            return
        if exchange.closes and error is None:
            self._finish(exchange)
        else:
            why = f": {error}" if error is not None else ""
            self._fail(f"the server closed the connection before its answer was complete{why}")
        exchange.wake()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def _fail(self, why: str) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.failure = why
            exchange.wake()
        self.abort()

    # Callbacks of httptools.

    def on_header(self, name: bytes, value: bytes) -> None:
        assert self._exchange is not None
        self._exchange.headers.append((name.decode("latin-1"), value.decode("utf-8", "replace")))

    def on_headers_complete(self) -> None:
        exchange = self._exchange
        assert exchange is not None and self._parser is not None
        status = self._parser.get_status_code()
        if status < 200 and not (status == 101 and exchange.offers_upgrade):
            exchange.headers.clear()
            return
        exchange.status = status
        exchange.headers_done = True
        values = {name.lower(): value for name, value in exchange.headers}
        exchange.closes = "content-length" not in values and "transfer-encoding" not in values
        if self._decompress and values.get("content-encoding") == "gzip":
            exchange.decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16)
        if not exchange.has_body:
            # The parser expects a body all the same: this connection cannot be used again.
            self.lost = True
            self._finish(exchange)

    def on_body(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            return  # after the answer to HEAD
        if exchange.decompressor is not None:
            data = exchange.decompressor.decompress(data)
            if not data:
                return
        exchange.chunks.append(data)
        exchange.size += len(data)

    def on_message_complete(self) -> None:
        exchange = self._exchange
        if exchange is None or not exchange.headers_done or exchange.status == 101:
            return  # an interim response (1xx), or the start of another protocol
        if self._parser is not None and not self._parser.should_keep_alive():
            self.lost = True
        self._finish(exchange)

    def _finish(self, exchange: Exchange) -> None:
        if exchange.has_body and exchange.decompressor is not None and not exchange.decompressor.eof:
            exchange.failure = "the server's compressed answer breaks off"
            self.lost = True
        exchange.complete = True
        self._exchange = None
        self.lost |= self._retired
        if self.lost and self._transport is not None:
            self._transport.close()
        elif not self._reading:
            self.resume_reading()


async def open_connection(
    host: str,
    port: int,
    tls: TlsClient | None,
    server_name: str = "",
    alternative_name: str = "",
    *,
    decompress: bool = False,
) -> ClientConnection:
    """Connect to a server, whose certificate must be valid for `server_name`, by default the host, or for
    `alternative_name`.

    Raise ServerCertificateError, ssl.SSLError or OSError.
    """

    def new() -> ClientConnection:
        return ClientConnection(decompress=decompress)

    if tls is not None:
        return (await tls.connect(new, host, port, server_name, alternative_name))[1]
    return (await asyncio.get_running_loop().create_connection(new, host, port))[1]


def encode_request(
    method: str, target: str, host: str, headers: Iterable[tuple[str, str]], body: bytes, fixed: str = ""
) -> bytes:
    """Return a request as bytes; `fixed` are header lines that are encoded already.

    Raise ValueError for line breaks, which would allow to inject headers or requests.
    """
    lines = [f"{name}: {value}\r\n" for name, value in headers]
    text = "".join(lines)
    if text.count("\n") != len(lines) or text.count("\r") != len(lines) or any(each in target for each in "\r\n "):
        raise ValueError("a header or a path with a line break or a space in it")
    length = f"content-length: {len(body)}\r\n" if body or method in ("POST", "PUT", "PATCH") else ""
    return f"{method} {target} HTTP/1.1\r\nhost: {host}\r\n{fixed}{text}{length}\r\n".encode("utf-8", "replace") + body


class IdleConnections:
    """Connections to one server that wait for the next request."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._connections: list[ClientConnection] = []

    def acquire(self) -> ClientConnection | None:
        """Return the connection that was used last, or None if there is none."""
        while self._connections:
            connection = self._connections.pop()
            if connection.idle:
                return connection
        return None

    def release(self, connection: ClientConnection) -> None:
        """Store a connection for the next request if it can be used again; otherwise close it."""
        if connection.idle and len(self._connections) < self._limit:
            self._connections.append(connection)
        else:
            connection.abort()

    def close(self) -> None:
        for connection in self._connections:
            connection.abort()
        self._connections.clear()
