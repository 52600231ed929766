"""One connection of a server: passes its requests to the handler one after the other, and sends the answers in the same
order."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from setpoint.meta.caching import memoized
from setpoint.meta.tracebacks import drop_traceback
from setpoint.meta.x509.pem import peer_chain
from setpoint.wire import encoding
from setpoint.wire.limits import Limits
from setpoint.wire.message import (
    Answer,
    Handler,
    Peer,
    Request,
    Response,
    StreamResponse,
    UpgradeResponse,
)
from setpoint.wire.request_parser import SLICE, BodyBudget, ReceivedRequest, RequestParser
from setpoint.wire.send_buffer import SendBuffer, Signal
from setpoint.wire.server_answers import ChunkedStream, PlainStream, respond
from setpoint.wire.upgraded import UpgradedConnection

if TYPE_CHECKING:
    from setpoint.meta.clock import Clock
    from setpoint.wire.loop_slices import LoopSlicer

logger = logging.getLogger(__name__)

OnError = Callable[[Request | None, int, str], Answer]
NEVER: Final = float("inf")
_CLOSE_TIMEOUT: Final = 0.25
"""Seconds that a peer has, while the server stops, to answer the close of its TLS connection."""
_READ_COST: Final = 0.001
"""Seconds that reading and parsing takes on average where large pieces arrive."""
_REFUSAL_COST: Final = 0.0001
"""Seconds that it takes to refuse a client again."""


def _do_nothing() -> None:
    """Do nothing at a deadline that was never set."""


class Owner(Protocol):
    """The server of a connection."""

    handler: Handler
    limits: Limits
    clock: Clock
    date: encoding.DateHeader
    slicer: LoopSlicer
    body_budget: BodyBudget | None
    draining: bool
    stopping: bool

    def answer_for(self, request: Request | None, status: int, text: str) -> Response: ...

    def opened(self, connection: ServerConnection, run: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...

    def closed(self, connection: ServerConnection) -> None: ...


class ServerConnection(asyncio.Protocol):
    __slots__ = (
        "_closing",
        "_discarding_input",
        "_end",
        "_eof",
        "_last_was_refused",
        "_on_deadline",
        "_pending",
        "_reading_paused",
        "_sent_bytes_before",
        "_streaming",
        "_task",
        "_tls",
        "_transport",
        "_upgraded",
        "_waiter",
        "buffer",
        "deadline",
        "loop",
        "lost",
        "owner",
        "parser",
    )

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.deadline = NEVER
        """When `expire` is due, by the owner's monotonic clock."""
        self.lost = False
        self.owner = owner
        self._pending = bytearray()
        """Bytes that were received and are not parsed yet."""
        self._waiter: asyncio.Future[None] | None = None
        """Set while the task waits for a request; None while it handles one."""
        self._end = Signal()
        self._on_deadline: Callable[[], None] = _do_nothing
        self._eof = False
        """Whether the peer has closed its side of the connection."""
        self._closing = False
        self._discarding_input = False
        """Whether received bytes are dropped, because the last response ends the connection."""
        self._streaming = False
        self._upgraded: UpgradedConnection | None = None
        self._reading_paused = False
        self._last_was_refused = False
        """Whether the answer to the last request was 401 or 429."""
        self._sent_bytes_before = 0
        """The number of sent bytes when the write deadline was set."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.buffer = SendBuffer(self._transport, self.owner.slicer)
        self._tls = transport.get_extra_info("ssl_object") is not None
        self.parser = RequestParser(self.owner.limits, _peer(transport), self.owner.body_budget)
        self._transport.set_write_buffer_limits(self.owner.limits.write_buffer)
        self._on_deadline = self.abort
        self._task = self.owner.opened(self, self._run())

    def data_received(self, data: bytes) -> None:
        if self._upgraded is not None:
            self._upgraded.data_received(data)
            return
        if self._discarding_input or self._closing:
            return
        waiter = self._waiter
        if waiter is None or waiter.done():
            self._pending += data
            if len(self._pending) > self.owner.limits.pipelined:
                self.pause_reading()
            return
        if len(data) <= SLICE and not self._pending and not self.parser.in_long_head:
            self.parser.feed(data)
        else:
            self._pending += data
            self._parse_pending()
        if self.parser.ready:
            waiter.set_result(None)
            return
        self._await_more()
        if len(data) > SLICE:
            self.pause_reading()
            self.owner.slicer.defer(self._read_on, _READ_COST, unauthenticated=True)

    def eof_received(self) -> bool:
        self._eof = True
        if self._upgraded is not None:
            self._upgraded.end()
        elif self._streaming:
            self._task.cancel()
        else:
            self._wake()
        # A client that has closed its side may still wait for the answer. TLS has no such state: the transport accepts
        # nothing more from here on, and would log a warning for each attempt.
        if self._tls:
            self.buffer.drop()
        return not self._tls

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.deadline = NEVER
        self.buffer.drop()
        self._end.fire()
        self.owner.closed(self)
        if self._upgraded is not None:
            self._upgraded.end()
        elif self._streaming:
            self._task.cancel()
        self._wake()

    def pause_writing(self) -> None:
        self.buffer.pause()
        self._set_write_deadline()

    def resume_writing(self) -> None:
        if not self._closing:
            self.deadline = NEVER
        self.buffer.resume()

    # Called by the server.

    def shut_down(self) -> None:
        """End what can end at once, and signal the end to handlers of streams, because the server stops."""
        self._end.fire()
        if self._upgraded is not None:
            self._upgraded.end()
        self._wake()

    def expire(self) -> None:
        self.deadline = NEVER
        self._on_deadline()

    def cancel(self) -> None:
        self._task.cancel()
        self.abort()

    # Called by streams and upgraded connections.

    def send_raw(self, data: bytes) -> None:
        self.buffer.send(data)

    async def drained(self) -> None:
        await self.buffer.drained(self.loop)

    async def wait_until_ending(self) -> None:
        """Return when the peer is gone or the server stops."""
        if not (self.lost or self.owner.stopping):
            await self._end.wait(self.loop)

    def pause_reading(self) -> None:
        if not self._reading_paused and not self.lost:
            self._reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading_paused and not self.lost and not self._transport.is_closing():
            self._reading_paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        """Close the connection; what was written is still sent, within the write timeout."""
        if not self._closing and not self.lost:
            self._closing = True
            self.buffer.close()
            self._transport.close()
            self._set_write_deadline()

    def abort(self) -> None:
        self._closing = True
        if not self.lost:
            self.buffer.drop()
            self._transport.abort()

    # The reading side.

    def _read_on(self) -> None:
        if self._waiter is not None:
            self.resume_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _parse_pending(self) -> None:
        pending, parser = self._pending, self.parser
        while pending and not parser.ready and not parser.finished:
            size = parser.next_feed_size(pending)
            if not size:
                return
            piece = bytes(pending[:size])
            del pending[:size]
            parser.feed(piece)
        if parser.finished and not parser.ready:
            pending.clear()

    async def _next(self) -> ReceivedRequest | None:
        parser = self.parser
        while True:
            if parser.ready:
                self.deadline = NEVER
                return parser.ready.pop(0)
            if self._pending:
                self._parse_pending()
                if parser.ready:
                    continue
            if self.lost or self._eof or self._closing or (self.owner.stopping and parser.idle):
                return None
            self._on_deadline = self.close
            self.deadline = self.owner.clock.monotonic() + self.owner.limits.idle_timeout
            self._await_more()
            if self._reading_paused:
                self.resume_reading()
            await self._wait_for_wake()

    async def _wait_for_wake(self) -> None:
        self._waiter = self.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _await_more(self) -> None:
        """Set the deadline for the head or the body of a request that has begun and is not complete."""
        parser = self.parser
        if parser.idle:
            return
        limits = self.owner.limits
        expired, timeout = self._on_deadline, 0.0
        if not parser.in_body:
            expired, timeout = self._head_too_slow, limits.head_timeout
        else:
            expired, timeout = self._body_too_slow, limits.body_timeout
            if parser.wants_continue:
                parser.wants_continue = False
                self.buffer.send(encoding.CONTINUE)
        if self._on_deadline != expired:
            self._on_deadline = expired
            self.deadline = self.owner.clock.monotonic() + timeout

    def _head_too_slow(self) -> None:
        self._too_slow("reading the head took too long")

    def _body_too_slow(self) -> None:
        self._too_slow("reading the body took too long")

    def _too_slow(self, text: str) -> None:
        self.parser.finished = True
        self.parser.ready.append(ReceivedRequest(None, False, True, False, (408, text)))
        self._wake()

    # The writing side.

    def _set_write_deadline(self) -> None:
        self._sent_bytes_before = self.buffer.sent_bytes
        self._on_deadline = self._check_write_progress
        self.deadline = self.owner.clock.monotonic() + self.owner.limits.write_timeout

    def _check_write_progress(self) -> None:
        if self.buffer.sent_bytes > self._sent_bytes_before:
            self._set_write_deadline()  # the peer is slow, but reads
        else:
            self.abort()

    async def _run(self) -> None:
        try:
            while (received := await self._next()) is not None:
                keep = await self._serve(received)
                if self.buffer.backlogged:
                    await self.buffer.drained(self.loop)
                if not keep:
                    break
        except asyncio.CancelledError as cancelled:
            # Either the peer of a stream is gone or the server aborts this connection: both end it, and nothing else
            # depends on the cancellation of this task.
            drop_traceback(cancelled)
            self.abort()
        except Exception as error:
            logger.exception("connection failed")
            drop_traceback(error)
            self.abort()
        self.close()
        if self.owner.stopping and not self._transport.get_write_buffer_size():
            # Everything is sent; a peer that does not answer the close of the TLS connection must not delay the stop of
            # the server.
            self.loop.call_later(_CLOSE_TIMEOUT, self.abort)
        # When this task ends, the connection is gone.
        while not self.lost:
            await self._wait_for_wake()
        self._release()

    def _release(self) -> None:
        """Drop the references that tie this connection into cycles, so that it is freed without the collector."""
        self._on_deadline = _do_nothing
        self._upgraded = None
        self.parser.release()

    async def _serve(self, received: ReceivedRequest) -> bool:
        """Answer one request; False when the connection must end with it."""
        request = received.request
        if received.failure is not None:
            await self._refuse(request, *received.failure)
            return False
        assert request is not None
        if self._last_was_refused:
            await self.owner.slicer.wait(_REFUSAL_COST, unauthenticated=True)
        answer = await self._handle(request, received)
        self._last_was_refused = answer.status in (401, 429) if type(answer) is Response else False
        if self.lost:
            return False
        if type(answer) is Response:
            keep = not (received.is_last or self.owner.draining)
            keep = await respond(self, answer, request, received.http10, keep)
        elif type(answer) is StreamResponse:
            keep = await self._stream(answer, request, received)
        else:
            await self._upgrade(cast(UpgradeResponse, answer))
            return False
        if keep and received.upgrade:
            self._pending[:0] = self.parser.resume()
        return keep and not self._closing

    async def _handle(self, request: Request, received: ReceivedRequest) -> Answer:
        try:
            answer = await self.owner.handler(request)
            if isinstance(answer, UpgradeResponse) and not received.upgrade:
                raise TypeError("the handler upgrades a connection whose request does not offer it")
            return answer
        except asyncio.CancelledError:
            # Anything but a cancellation of this task is a failure of the handler.
            if self._task.cancelling():
                raise
            logger.exception("handler of %s %s was cancelled from within", request.method, request.path)
        except Exception:
            logger.exception("handler of %s %s failed", request.method, request.path)
        return self.owner.answer_for(request, 500, "")

    async def _stream(self, answer: StreamResponse, request: Request, received: ReceivedRequest) -> bool:
        http10 = received.http10
        keep = not (received.is_last or http10 or self.owner.draining)
        framing = "" if http10 else "Transfer-Encoding: chunked\r\n"
        date = self.owner.date.line(self.owner.clock.monotonic())
        connection = "" if keep else "Connection: close\r\n"
        own = encoding.header_lines(encoding.without_framing(answer.headers))
        self.buffer.send(encoding.head(answer.status, own, date, framing, connection))
        if request.method == "HEAD" or encoding.bodyless(answer.status):
            return keep
        self._streaming = True
        try:
            if self._eof:
                self._task.cancel()  # takes effect at the first wait
            await answer.run(PlainStream(self) if http10 else ChunkedStream(self))
        except Exception:
            logger.exception("stream of %s %s failed", request.method, request.path)
            self.abort()  # without the last chunk, so that the client knows that the response is incomplete
            return False
        finally:
            self._streaming = False
        if not http10:
            self.buffer.send(encoding.LAST_CHUNK)
        return keep and not self.owner.stopping

    async def _upgrade(self, answer: UpgradeResponse) -> None:
        headers = answer.headers
        if not any(name.lower() == "connection" for name, _ in headers):
            headers = [*headers, ("Connection", "Upgrade")]
        self.buffer.send(encoding.head(101, encoding.header_lines(headers)))
        raw = self._upgraded = UpgradedConnection(self, self.parser.leftover + bytes(self._pending))
        self._pending.clear()
        if self._eof or self.owner.stopping:
            raw.end()
        self.resume_reading()
        try:
            await answer.run(raw)
        except Exception:
            logger.exception("upgraded connection failed")

    async def _refuse(self, request: Request | None, status: int, text: str) -> None:
        answer = self.owner.answer_for(request, status, text)
        await respond(self, answer, request or _NO_REQUEST, False, False)
        if self.lost or self._eof:
            return
        # The client may still be sending. Closing with its bytes unread would reset the connection, and the reset could
        # overtake the answer: so they are read and dropped for a moment.
        self._discarding_input = True
        self._pending.clear()
        self.resume_reading()
        await self.buffer.drained(self.loop)
        if not self.lost and not self._transport.is_closing() and self._transport.can_write_eof():
            self._transport.write_eof()
        self._on_deadline = self._wake
        self.deadline = self.owner.clock.monotonic() + self.owner.limits.linger
        await self._wait_for_wake()


_NO_REQUEST: Final = Request("", "", "", {}, b"", Peer())


def _peer(transport: asyncio.BaseTransport) -> Peer:
    name = transport.get_extra_info("peername")
    is_ip = isinstance(name, tuple) and len(name) >= 2  # else a Unix socket
    peer = Peer(name[0], name[1], remote=remote_address(name[0])) if is_ip else Peer()
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    # Without verification `getpeercert` would return any certificate that the peer claims.
    if tls is not None and tls.context.verify_mode is not ssl.CERT_NONE:
        peer.certificate = tls.getpeercert(binary_form=True)
        if peer.certificate is not None:
            peer.intermediates = partial(_intermediates, tls)
    return peer


@memoized(maxsize=1024)
def remote_address(text: str) -> str:
    """Return the address of a peer in its shortest form, an IPv4-mapped one as IPv4 and without a zone; empty if it is
    a loopback address or none."""
    try:
        ip = ip_address(text.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return "" if ip.is_loopback else str(ip)


def _intermediates(tls: ssl.SSLObject) -> Sequence[bytes]:
    """Return the certificates that the peer has sent besides its own."""
    return peer_chain(tls)[1:]
