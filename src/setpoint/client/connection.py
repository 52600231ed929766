"""One HTTP/1.1 client connection: one exchange at a time, with backpressure on reads."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from typing import Final, cast

import httptools

from setpoint.client.transport import Unreachable

READ_AHEAD: Final = 1024 * 1024
"""Bytes of a body that are buffered before reading is paused."""
LONGEST_HEAD: Final = 256 * 1024


class Exchange:
    """The response to one request, as far as it has arrived."""

    __slots__ = (
        "_waiter", "chunks", "closes", "complete", "failure", "headers", "headers_done", "inflate", "size", "status",
    )  # fmt: skip

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.headers_done = False
        self.chunks: deque[bytes] = deque()
        self.size = 0
        self.complete = False
        self.closes = False
        """Whether the end of the connection is the end of the body."""
        self.failure = ""
        """Why the response ends early; empty if it does not. This is a text, because a stored exception would reference
        the frames it was raised in, and they this object."""
        self.inflate: zlib._Decompress | None = None
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


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        """The parser, set between `connection_made` and `connection_lost` only: it references methods of this object,
        which is a cycle."""
        self._exchange: Exchange | None = None
        self._head_size = 0
        self._reading = True
        self.lost = False
        self.answered = False
        """Whether any byte of the response to the last request has arrived."""

    # -- for the pool ---------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether the connection can be used for another request."""
        return not self.lost and self._exchange is None and self._transport is not None

    def send(self, data: bytes) -> Exchange:
        assert self._transport is not None and self._exchange is None
        self._exchange = exchange = Exchange()
        self._head_size = 0
        self.answered = False
        self._transport.write(data)
        return exchange

    async def head(self, exchange: Exchange) -> None:
        """Wait for the status and the headers."""
        while not exchange.headers_done:
            if exchange.failure:
                raise Unreachable(exchange.failure)
            await exchange.changed()

    async def next_chunk(self, exchange: Exchange) -> bytes:
        """Return the next chunk of the body, or b"" at its end."""
        while not exchange.chunks:
            if exchange.failure:
                raise Unreachable(exchange.failure)
            if exchange.complete:
                return b""
            if not self._reading:
                self._resume()
            await exchange.changed()
        chunk = exchange.chunks.popleft()
        exchange.size -= len(chunk)
        if not self._reading and exchange.size < READ_AHEAD // 2:
            self._resume()
        return chunk

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self.lost = True

    def _resume(self) -> None:
        self._reading = True
        if self._transport is not None and not self.lost:
            self._transport.resume_reading()

    # -- asyncio.Protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            self.close()  # data without a request
            return
        self.answered = True
        if not exchange.headers_done:
            self._head_size += len(data)
            if self._head_size > LONGEST_HEAD + len(data):
                self._fail("the server sent headers without end")
                return
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the server switched to another protocol without being asked to")
        except (httptools.HttpParserError, zlib.error) as error:
            self._fail(f"the server's answer is not HTTP: {error}")
        if exchange.size > READ_AHEAD and not exchange.complete and self._reading:
            assert self._transport is not None
            self._reading = False
            self._transport.pause_reading()
        exchange.wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._transport = self._parser = None
        exchange = self._exchange
        if exchange is None or exchange.complete:
            return
        if exchange.closes and error is None:
            self._finish(exchange)
        else:
            why = f": {error}" if error is not None else ""
            self._fail(f"the server closed the connection before its answer was complete{why}")
        exchange.wake()

    def _fail(self, why: str) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.failure = why
            exchange.wake()
        self.close()

    # -- httptools ------------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        assert self._exchange is not None
        self._exchange.headers.append((name.decode("latin-1").lower(), value.decode("utf-8", "replace")))

    def on_headers_complete(self) -> None:
        exchange = self._exchange
        assert exchange is not None and self._parser is not None
        status = self._parser.get_status_code()
        if status < 200:
            exchange.headers.clear()
            return
        exchange.status = status
        exchange.headers_done = True
        names = dict(exchange.headers)
        exchange.closes = "content-length" not in names and "transfer-encoding" not in names
        if names.get("content-encoding") == "gzip":
            exchange.inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def on_body(self, data: bytes) -> None:
        exchange = self._exchange
        assert exchange is not None
        if exchange.inflate is not None:
            data = exchange.inflate.decompress(data)
            if not data:
                return
        exchange.chunks.append(data)
        exchange.size += len(data)

    def on_message_complete(self) -> None:
        exchange = self._exchange
        if exchange is None or not exchange.headers_done:
            return  # an interim response (1xx)
        if self._parser is not None and not self._parser.should_keep_alive():
            self.lost = True
        self._finish(exchange)

    def _finish(self, exchange: Exchange) -> None:
        if exchange.inflate is not None and not exchange.inflate.eof:
            exchange.failure = "the server's compressed answer breaks off"
            self.lost = True
        exchange.complete = True
        self._exchange = None
        if self.lost and self._transport is not None:
            self._transport.close()
        elif not self._reading:
            self._resume()
