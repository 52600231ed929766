"""HTTP/1.1 on one connection to a server, without I/O: requests as bytes, and responses as far as they have arrived."""

from __future__ import annotations

import socket
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import httptools

if TYPE_CHECKING:
    from asyncio import Future

_MAX_HEAD: Final = 256 * 1024
CLOSED_EARLY: Final = "the server closed the connection before its answer was complete"


class ResponseLost(ConnectionError):
    """A response did not arrive completely: the connection was lost, or the server violated HTTP. Whether the server
    has processed the request is unknown. The message is one sentence for users."""


class Exchange:
    """A request that was sent, and its response as far as it has arrived."""

    __slots__ = (
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
        "waiter",
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
        self.waiter: Future[None] | None = None
        """Completed when more of the response has arrived; None if no task waits for it."""

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class HttpExchanges(ABC):
    """The state of a connection: one exchange at a time. Subclasses send and receive the bytes."""

    def __init__(self, *, decompress: bool = False) -> None:
        """Gzip bodies are decompressed if `decompress` is set; otherwise they are passed on unchanged."""
        self.lost = False
        self.answered = False
        """Whether any byte of the response to the last request has arrived."""
        self._decompress = decompress
        self._parser: httptools.HttpResponseParser | None = None
        """The parser, set between `_connected` and `_disconnected` only: it references methods of this object, which is
        a cycle."""
        self._exchange: Exchange | None = None
        self._head_size = 0
        self._retired = False

    # -- for subclasses to implement -----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def _socket(self) -> socket.socket | None:
        """The socket; None if the connection is lost, or is not over a network."""

    @abstractmethod
    def _write(self, data: bytes) -> None:
        """Send bytes to the server."""

    @abstractmethod
    async def _receive(self, exchange: Exchange) -> None:
        """Return when more of the response has arrived, or the connection is lost."""

    @abstractmethod
    def _switched(self, rest: bytes) -> None:
        """Called when the server has accepted an upgrade; `rest` has been received after its response."""

    @abstractmethod
    def abort(self) -> None:
        """Close the connection at once."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection after what was written is sent."""

    # -- for the owner of the connection -------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether the connection can be used for another request."""
        return not self.lost and self._exchange is None and self._parser is not None

    def send(self, data: bytes, *, has_body: bool = True, offers_upgrade: bool = False) -> Exchange:
        """Send an encoded request."""
        assert self._exchange is None
        self._exchange = exchange = Exchange(has_body, offers_upgrade)
        self._head_size = 0
        self.answered = False
        if self._parser is None:
            self._fail(CLOSED_EARLY)
        else:
            self._write(data)
        return exchange

    async def head(self, exchange: Exchange) -> None:
        """Wait for the status and the headers. Raise ResponseLost."""
        while not exchange.headers_done:
            if exchange.failure:
                raise ResponseLost(exchange.failure)
            await self._receive(exchange)

    async def next_chunk(self, exchange: Exchange) -> bytes:
        """Return the next chunk of the body, or b"" at its end. Raise ResponseLost."""
        while not exchange.chunks:
            if exchange.failure:
                raise ResponseLost(exchange.failure)
            if exchange.complete:
                return b""
            await self._receive(exchange)
        chunk = exchange.chunks.popleft()
        exchange.size -= len(chunk)
        return chunk

    def enable_tcp_keepalive(self) -> None:
        """Let the system detect a lost peer: a watch may be idle for a long time."""
        sock = self._socket
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

    # -- for subclasses to call ----------------------------------------------------------------------------------------

    def _connected(self) -> None:
        self._parser = httptools.HttpResponseParser(self)

    def _disconnected(self, error: Exception | None) -> None:
        """Record that the connection is lost, by an error or by its end."""
        self.lost = True
        self._parser = None
        exchange = self._exchange
        if exchange is None or exchange.complete:
            return
        if exchange.closes and error is None:
            self._finish(exchange)
        else:
            self._fail(f"{CLOSED_EARLY}: {error}" if error is not None else CLOSED_EARLY)
        exchange.wake()

    def _parse(self, exchange: Exchange, data: bytes) -> None:
        """Process bytes that were received after a request."""
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
                self._switched(data[switched.args[0] :])
            else:
                self._fail("the server switched to another protocol although none was offered")
        except (httptools.HttpParserError, zlib.error) as error:
            self._fail(f"the server's answer is not HTTP: {error}")
        exchange.wake()

    def _fail(self, why: str) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.failure = why
            exchange.wake()
        self.abort()

    # -- callbacks of httptools ----------------------------------------------------------------------------------------

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
        if self.lost:
            self.close()


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


C = TypeVar("C", bound=HttpExchanges)


class IdleConnections(Generic[C]):
    """Connections to one server that wait for the next request."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._connections: list[C] = []

    def acquire(self) -> C | None:
        """Return the connection that was used last, or None if there is none."""
        while self._connections:
            connection = self._connections.pop()
            if connection.idle:
                return connection
        return None

    def release(self, connection: C) -> None:
        """Store a connection for the next request if it can be used again; otherwise close it."""
        if connection.idle and len(self._connections) < self._limit:
            self._connections.append(connection)
        else:
            connection.abort()

    def close(self) -> None:
        for connection in self._connections:
            connection.abort()
        self._connections.clear()
