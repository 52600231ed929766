"""One connection: bytes in, requests to the handler one after the other, answers out in the same order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from setpoint.apiserver.http import encoding
from setpoint.apiserver.http.answering import respond
from setpoint.apiserver.http.limits import Limits
from setpoint.apiserver.http.message import (
    Answer,
    Handler,
    Peer,
    Request,
    Response,
    StreamResponse,
    UpgradeResponse,
)
from setpoint.apiserver.http.outgoing import Outgoing
from setpoint.apiserver.http.parsing import SLICE, Exchange, RequestParser
from setpoint.apiserver.http.peers import peer_of
from setpoint.apiserver.http.streams import ChunkedStream, Hijacked, PlainStream, Signal
from setpoint.meta.tracebacks import drop_traceback

if TYPE_CHECKING:
    from setpoint.apiserver.turns import Turns
    from setpoint.meta.clock import Clock

logger = logging.getLogger(__name__)

OnError = Callable[[Request | None, int, str], Answer]
NEVER: Final = float("inf")
_GOODBYE: Final = 0.25
_READING: Final = 0.001
"""Seconds that it takes to read on where much is coming in."""
_REFUSING: Final = 0.0001
"""Seconds that it takes to refuse somebody who was refused before."""


def _nothing() -> None:
    """Do nothing when a deadline passes that was never set."""


class Owner(Protocol):
    """What a connection needs of its server."""

    handler: Handler
    limits: Limits
    clock: Clock
    date: encoding.DateHeader
    turns: Turns
    stopping: bool

    def answer_for(self, request: Request | None, status: int, text: str) -> Response: ...

    def opened(self, connection: Connection, run: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...

    def closed(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    __slots__ = (
        "_closing", "_deaf", "_end", "_eof", "_expired", "_hijacked", "_mark", "_pending", "_reading_paused",
        "_refused", "_streaming", "_task", "_tls", "_transport", "_waiter",
        "deadline", "loop", "lost", "outgoing", "owner", "parser",
    )  # fmt: skip

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.deadline = NEVER
        """When `expire` is due, by the owner's monotonic clock."""
        self.lost = False
        self.owner = owner
        self._pending = bytearray()  # received, not parsed yet
        self._waiter: asyncio.Future[None] | None = None  # set while the task waits for a request: else it is busy
        self._end = Signal()
        self._expired: Callable[[], None] = _nothing
        self._eof = False  # the peer sends no more
        self._closing = False
        self._deaf = False  # what still comes in is not looked at
        self._streaming = False
        self._hijacked: Hijacked | None = None
        self._reading_paused = False
        self._refused = False  # the last request, to come again later or as somebody else
        self._mark = 0

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.outgoing = Outgoing(self._transport, self.owner.turns)
        peer = peer_of(transport)
        self._tls = transport.get_extra_info("ssl_object") is not None
        self.parser = RequestParser(self.owner.limits, peer)
        self._transport.set_write_buffer_limits(self.owner.limits.write_buffer)
        self._expired = self.abort
        self._task = self.owner.opened(self, self._run())

    def data_received(self, data: bytes) -> None:
        if self._hijacked is not None:
            self._hijacked.received(data)
            return
        if self._deaf or self._closing:
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
            self.owner.turns.later(self._read_on, _READING, stranger=True)

    def eof_received(self) -> bool:
        self._eof = True
        if self._hijacked is not None:
            self._hijacked.ended()
        elif self._streaming:
            self._task.cancel()
        else:
            self._wake()
        # A client that has sent all it wants may still wait for the answer. TLS has no such state: the transport takes
        # nothing more from here on, and would log a warning for each attempt.
        if self._tls:
            self.outgoing.drop()
        return not self._tls

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.deadline = NEVER
        self.outgoing.drop()
        self._end.fire()
        self.owner.closed(self)
        if self._hijacked is not None:
            self._hijacked.ended()
        elif self._streaming:
            self._task.cancel()
        self._wake()

    def pause_writing(self) -> None:
        self.outgoing.pause()
        self._watch_the_writing()

    def resume_writing(self) -> None:
        if not self._closing:
            self.deadline = NEVER
        self.outgoing.resume()

    # What the server calls.

    def shut_down(self) -> None:
        """The server stops: end what can end at once, let the rest see that it is time."""
        self._end.fire()
        if self._hijacked is not None:
            self._hijacked.ended()
        self._wake()

    def expire(self) -> None:
        self.deadline = NEVER
        self._expired()

    def cancel(self) -> None:
        self._task.cancel()
        self.abort()

    # What the streams call.

    async def ending(self) -> None:
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
        """What was written still goes out, within the time a write may take."""
        if not self._closing and not self.lost:
            self._closing = True
            self.outgoing.close()
            self._transport.close()
            self._watch_the_writing()

    def abort(self) -> None:
        self._closing = True
        if not self.lost:
            self.outgoing.drop()
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
            size = parser.wants(pending)
            if not size:
                return
            piece = bytes(pending[:size])
            del pending[:size]
            parser.feed(piece)
        if parser.finished and not parser.ready:
            pending.clear()

    async def _next(self) -> Exchange | None:
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
            self._expired = self.close
            self.deadline = self.owner.clock.monotonic() + self.owner.limits.idle_timeout
            self._await_more()
            if self._reading_paused:
                self.resume_reading()
            await self._woken()

    async def _woken(self) -> None:
        self._waiter = self.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _await_more(self) -> None:
        """A request has begun and is not complete: it gets so long for its head, and so long for its body."""
        parser = self.parser
        if parser.idle:
            return
        limits = self.owner.limits
        expired, timeout = self._expired, 0.0
        if not parser.in_body:
            expired, timeout = self._head_too_slow, limits.head_timeout
        else:
            expired, timeout = self._body_too_slow, limits.body_timeout
            if parser.wants_continue:
                parser.wants_continue = False
                self.outgoing.send(encoding.CONTINUE)
        if self._expired != expired:
            self._expired = expired
            self.deadline = self.owner.clock.monotonic() + timeout

    def _head_too_slow(self) -> None:
        self._too_slow("reading the head took too long")

    def _body_too_slow(self) -> None:
        self._too_slow("reading the body took too long")

    def _too_slow(self, text: str) -> None:
        self.parser.finished = True
        self.parser.ready.append(Exchange(None, False, True, False, (408, text)))
        self._wake()

    # The writing side.

    def _watch_the_writing(self) -> None:
        self._mark = self.outgoing.taken
        self._expired = self._writing_stalled
        self.deadline = self.owner.clock.monotonic() + self.owner.limits.write_timeout

    def _writing_stalled(self) -> None:
        if self.outgoing.taken > self._mark:
            self._watch_the_writing()  # slow, but it reads
        else:
            self.abort()

    async def _run(self) -> None:
        try:
            while (exchange := await self._next()) is not None:
                keep = await self._serve(exchange)
                if self.outgoing.behind:
                    await self.outgoing.drained(self.loop)
                if not keep:
                    break
        except asyncio.CancelledError as cancelled:
            # Either the peer of a stream is gone or the server gives up on us: both end the connection, and nobody
            # else waits for this task to be cancelled.
            drop_traceback(cancelled)
            self.abort()
        except Exception as error:
            logger.exception("connection failed")
            drop_traceback(error)
            self.abort()
        self.close()
        if self.owner.stopping and not self._transport.get_write_buffer_size():
            # Everything is said; a peer that does not answer the TLS goodbye must not hold up the end of the server.
            self.loop.call_later(_GOODBYE, self.abort)
        # Whoever waits for this task may rely on it: the connection is gone.
        while not self.lost:
            await self._woken()
        self._release()

    def _release(self) -> None:
        """Drop the references that tie this connection into cycles, so that it is freed without the collector."""
        self._expired = _nothing
        self._hijacked = None
        self.parser.release()

    async def _serve(self, exchange: Exchange) -> bool:
        """Answer one request; False when the connection must end with it."""
        request = exchange.request
        if exchange.failure is not None:
            await self._refuse(request, *exchange.failure)
            return False
        assert request is not None
        if self._refused:
            await self.owner.turns.wait(_REFUSING, stranger=True)
        answer = await self._handle(request, exchange)
        self._refused = answer.status in (401, 429) if type(answer) is Response else False
        if self.lost:
            return False
        if type(answer) is Response:
            keep = not (exchange.last or self.owner.stopping)
            keep = await respond(self, answer, request, exchange.http10, keep)
        elif type(answer) is StreamResponse:
            keep = await self._stream(answer, request, exchange)
        else:
            await self._upgrade(cast(UpgradeResponse, answer))
            return False
        if keep and exchange.upgrade:
            self._pending[:0] = self.parser.resume()
        return keep and not self._closing

    async def _handle(self, request: Request, exchange: Exchange) -> Answer:
        try:
            answer = await self.owner.handler(request)
            if isinstance(answer, UpgradeResponse) and not exchange.upgrade:
                raise TypeError("an upgrade was answered to a request that offers none")
            return answer
        except asyncio.CancelledError:
            # Only a cancellation of this very task is one; anything else is the handler's own failure.
            if self._task.cancelling():
                raise
            logger.exception("handler of %s %s was cancelled from within", request.method, request.path)
        except Exception:
            logger.exception("handler of %s %s failed", request.method, request.path)
        return self.owner.answer_for(request, 500, "")

    async def _stream(self, answer: StreamResponse, request: Request, exchange: Exchange) -> bool:
        http10 = exchange.http10
        keep = not (exchange.last or http10 or self.owner.stopping)
        framing = "" if http10 else "Transfer-Encoding: chunked\r\n"
        date = self.owner.date.line(self.owner.clock.monotonic())
        connection = "" if keep else "Connection: close\r\n"
        own = encoding.header_lines(encoding.without_framing(answer.headers))
        self.outgoing.send(encoding.head(answer.status, own, date, framing, connection))
        if request.method == "HEAD" or encoding.bodyless(answer.status):
            return keep
        self._streaming = True
        try:
            if self._eof:
                self._task.cancel()  # takes effect at the first wait
            await answer.run(PlainStream(self) if http10 else ChunkedStream(self))
        except Exception:
            logger.exception("stream of %s %s failed", request.method, request.path)
            self.abort()  # without the last chunk, so that the client knows that something is missing
            return False
        finally:
            self._streaming = False
        if not http10:
            self.outgoing.send(encoding.LAST_CHUNK)
        return keep and not self.owner.stopping

    async def _upgrade(self, answer: UpgradeResponse) -> None:
        headers = answer.headers
        if not any(name.lower() == "connection" for name, _ in headers):
            headers = [*headers, ("Connection", "Upgrade")]
        self.outgoing.send(encoding.head(101, encoding.header_lines(headers)))
        raw = self._hijacked = Hijacked(self, self.parser.rest + bytes(self._pending))
        self._pending.clear()
        if self._eof or self.owner.stopping:
            raw.ended()
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
        # overtake the answer: so read them into nothing for a moment.
        self._deaf = True
        self._pending.clear()
        self.resume_reading()
        await self.outgoing.drained(self.loop)
        if not self.lost and not self._transport.is_closing() and self._transport.can_write_eof():
            self._transport.write_eof()
        self._expired = self._wake
        self.deadline = self.owner.clock.monotonic() + self.owner.limits.linger
        await self._woken()


_NO_REQUEST: Final = Request("", "", "", {}, b"", Peer())
