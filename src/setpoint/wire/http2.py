"""The client side of an HTTP/2 connection (RFC 9113), with what gRPC needs: many streams, flow control, keepalive.

Guarantees to the receiver of a stream:

- Exactly one of `on_end` and `on_failure` is called, once, after everything else.
- `on_failure` says whether the peer may have processed the request. It certainly has not if the request was never sent,
  if the peer refused the stream, or if the peer announced with GOAWAY that it stopped before it.
- Callbacks run on the event loop, never within `open` or `send`.
- A stream that has not ended by its deadline is reset and fails with DeadlineExceeded. One timer for
  each connection checks all deadlines, so a call costs no timer.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import deque
from collections.abc import Mapping
from typing import cast

from setpoint.wire.http2_frames import (
    ACK,
    CANCEL,
    CONTINUATION,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    FRAME_HEAD,
    GOAWAY,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    MalformedFrame,
    frame,
    number_of,
    other_protocol,
    without_padding,
)
from setpoint.wire.http2_headers import HeaderDecoder
from setpoint.wire.http2_stream import STREAM_WINDOW, DeadlineExceeded, Http2Stream, Receiver, StreamFailed

_DEFAULT_WINDOW = 65_535
_MAX_WINDOW = 2**31 - 1
_CONNECTION_WINDOW = 64 << 20
_MAX_FRAME = 16_384
"""The largest frame that the peer may send: the protocol's default."""
_MAX_STREAM_ID = 2**31 - 1
_REFUSALS = ("BAD_CERTIFICATE", "CERTIFICATE_REQUIRED", "UNKNOWN_CA", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED")
"""Alerts of TLS with which a peer refuses a client's certificate."""
_DEFERRED_ACKS, _ACK_DELAY = 16, 0.01
"""Pings of the peer are answered after so many seconds, or when so many have arrived. gRPC's servers measure the
connection with a ping whenever data arrives and the last ping is answered: if that is at once, there is one for nearly
every call, which costs both sides a write."""
_MAX_COLLECTED = 32
"""Requests of one iteration of the event loop are written together when they have so many frames, two each. With fewer,
a peer like etcd spends more on each request; with more, it waits while this process makes the others."""
_TICK = 0.25
"""Seconds between checks of the deadlines and of the peer, while there are streams."""


class Http2Connection(asyncio.Protocol):
    """One connection to a server. Use `loop.create_connection(Http2Connection, ...)`, then await `ready`."""

    def __init__(self, keepalive: float = 30.0, keepalive_timeout: float = 10.0) -> None:
        """A silent peer is pinged while there are streams: after `keepalive` seconds, or a fifth of that if it owes an
        answer with a deadline. Servers demand that pings are not frequent, so `keepalive` seconds are between two. The
        peer is given up if it sends nothing for `keepalive_timeout` seconds after a ping."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.ready: asyncio.Future[None] = self._loop.create_future()
        """Done when the peer's settings have arrived; fails with StreamFailed if they never do."""
        self.failure: str | None = None
        """Why no further stream can be opened: the connection is lost or draining; None while it is usable."""
        self.unresponsive = False
        """Whether the connection was given up because the peer did not answer a ping."""
        self._streams: dict[int, Http2Stream] = {}
        self._waiting: deque[Http2Stream] = deque()
        """Streams whose headers are not sent yet, because the peer allows no more streams at a time."""
        self._next_id = 1
        self._max_streams = 100
        self._max_frame = _MAX_FRAME
        self._initial_window = _DEFAULT_WINDOW
        self._window = _DEFAULT_WINDOW
        self._blocked: dict[Http2Stream, None] = {}
        """Streams with data that waits for a window or for the socket, in order."""
        self._writable = True
        self._received = bytearray()
        self._unacknowledged = 0
        self._block: tuple[int, int, bytes] | None = None
        """Stream, flags and content of a header block that continues in further frames."""
        self._headers = HeaderDecoder()
        self._out: list[bytes] = []
        self._acks: list[bytes] = []
        """Answers to pings that are not sent yet."""
        self._ack_timer: asyncio.TimerHandle | None = None
        self._keepalive, self._keepalive_timeout = keepalive, keepalive_timeout
        self._last_received = self._loop.time()
        self._last_ping = -keepalive
        self._timer: asyncio.TimerHandle | None = None
        """Runs while there are streams."""

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclass
        self._transport = transport
        settings = struct.pack(">HIHIHI", HEADER_TABLE_SIZE, 0, ENABLE_PUSH, 0, INITIAL_WINDOW_SIZE, STREAM_WINDOW)
        enlarged = struct.pack(">I", _CONNECTION_WINDOW - _DEFAULT_WINDOW)
        transport.write(PREFACE + frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, enlarged))

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, ssl.SSLError) and any(alert in str(error) for alert in _REFUSALS):
            self._lose(f"the peer did not accept the client certificate ({error.reason})")
        else:
            self._lose(f"the connection was lost: {error}" if error else "the peer closed the connection")

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._pump_blocked()

    def data_received(self, data: bytes) -> None:
        self._last_received = self._loop.time()
        if self._received:
            self._received += data
            data = bytes(self._received)
            self._received.clear()
        at, end = 0, len(data)
        while end - at >= FRAME_HEAD.size and self._transport is not None:
            length_and_kind, flags, stream = FRAME_HEAD.unpack_from(data, at)
            length, begin = length_and_kind >> 8, at + FRAME_HEAD.size
            if length > _MAX_FRAME:
                return self._protocol_error(other_protocol(data[at : at + 5]) or f"a frame of {length} bytes")
            if end - begin < length:
                break
            at = begin + length
            try:
                self._on_frame(length_and_kind & 0xFF, flags, stream & _MAX_STREAM_ID, data[begin:at])
            except MalformedFrame as problem:
                return self._protocol_error(str(problem))
        if at < end and self._transport is not None:
            self._received += data[at:]
        return None

    # -- for callers --------------------------------------------------------------------------------------------------

    def open(
        self,
        head: bytes,
        receiver: Receiver,
        deadline: float | None = None,
        body: bytes | None = None,
        *,
        at_once: bool = False,
    ) -> Http2Stream:
        """Open a stream with a header block (see `http2_headers.literal`). Raise StreamFailed if none can be opened.

        `deadline` is a time of the event loop. `body` is the whole body of the request; without it, use `send`. With
        `at_once` the request is written now, and not at the end of this iteration of the event loop or with the last
        of several requests."""
        if self.failure is not None:
            raise StreamFailed(self.failure, may_be_processed=False)
        stream = Http2Stream(self, head, receiver, deadline)
        if body is not None:
            stream.outgoing.append(body)
            stream.sending_ends = True
        if self._timer is None:
            self._last_received = max(self._last_received, self._loop.time())
            self._timer = self._loop.call_later(_TICK, self._tick)
        if len(self._streams) < self._max_streams and not self._waiting:
            if at_once and not self._out:
                self._out.append(b"")  # nothing is scheduled: it is written below
            self._start(stream)
            if at_once or len(self._out) >= _MAX_COLLECTED:
                self._flush()
        else:
            self._waiting.append(stream)
        return stream

    def close(self) -> None:
        """Close the connection; open streams fail."""
        if self._transport is not None:
            self._write(frame(GOAWAY, 0, 0, struct.pack(">II", 0, NO_ERROR)))
            self._lose("the connection was closed")

    def retire(self, reason: str) -> None:
        """Open no further streams, and close the connection when the open ones have ended."""
        self._drain(reason)
        if not self._streams and not self._waiting:
            self.close()

    def cancel(self, stream: Http2Stream) -> None:
        stream.receiver = None
        if stream.id == 0:
            self._waiting.remove(stream)
            return
        self._write(frame(RST_STREAM, 0, stream.id, struct.pack(">I", CANCEL)))
        self._remove(stream)

    def pump(self, stream: Http2Stream) -> None:
        """Send as much of the stream's data as the windows and the socket allow."""
        if stream.id == 0:
            return
        while stream.outgoing:
            data = stream.outgoing[0]
            count = min(len(data), self._max_frame, self._window, stream.window) if self._writable else 0
            if count <= 0 and (data or not self._writable):
                self._blocked[stream] = None
                return
            if count == len(data):
                part = data
                stream.outgoing.popleft()
            else:
                whole = memoryview(data)  # a slice of it copies nothing
                part, stream.outgoing[0] = whole[:count], whole[count:]
            self._window -= count
            stream.window -= count
            last = stream.sending_ends and not stream.outgoing
            self._write(frame(DATA, END_STREAM if last else 0, stream.id, part))
        self._blocked.pop(stream, None)

    # -- sending ------------------------------------------------------------------------------------------------------

    def _start(self, stream: Http2Stream) -> None:
        stream.id = self._next_id
        self._next_id += 2
        if self._next_id > _MAX_STREAM_ID:
            self._drain("the connection has used all stream identifiers")
        stream.window = self._initial_window
        self._streams[stream.id] = stream
        head, rest = stream.head[: self._max_frame], stream.head[self._max_frame :]
        self._write(frame(HEADERS, 0 if rest else END_HEADERS, stream.id, head))
        while rest:
            part, rest = rest[: self._max_frame], rest[self._max_frame :]
            self._write(frame(CONTINUATION, 0 if rest else END_HEADERS, stream.id, part))
        self.pump(stream)

    def _start_waiting(self) -> None:
        while self._waiting and len(self._streams) < self._max_streams:
            self._start(self._waiting.popleft())

    def _pump_blocked(self) -> None:
        for stream in list(self._blocked):
            if not self._writable or self._window <= 0:
                return
            self.pump(stream)

    def _write(self, data: bytes) -> None:
        """Write at the end of this iteration of the loop, together with everything else of it."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _acknowledge(self, data: bytes) -> None:
        """Answer a ping, after a short time."""
        self._acks.append(data)
        if len(self._acks) == _DEFERRED_ACKS:
            self._send_acks()
        elif self._ack_timer is None:
            self._ack_timer = self._loop.call_later(_ACK_DELAY, self._send_acks)

    def _send_acks(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        self._ack_timer = None
        self._write(b"".join(self._acks))
        self._acks.clear()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None:
            self._transport.write(b"".join(out))

    # -- receiving ----------------------------------------------------------------------------------------------------

    def _on_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block is not None and kind != CONTINUATION:
            raise MalformedFrame("a header block that is not continued")
        if kind == DATA:
            self._on_data(flags, number, payload)
        elif kind == HEADERS:
            block = without_padding(flags, payload) if flags & PADDED else payload
            self._on_block(number, flags, block[5:] if flags & PRIORITY else block)
        elif kind == CONTINUATION:
            if self._block is None or self._block[0] != number:
                raise MalformedFrame("a continuation of no header block")
            begun = self._block
            self._block = None
            self._on_block(number, begun[1] | flags & END_HEADERS, begun[2] + payload)
        elif kind == WINDOW_UPDATE:
            self._on_window_update(number, number_of(payload) & _MAX_WINDOW)
        elif kind == RST_STREAM:
            code = number_of(payload)
            if (stream := self._streams.get(number)) is not None:
                reason = "the peer refused the stream" if code == REFUSED_STREAM else f"stream reset with code {code}"
                self._fail(stream, reason, may_be_processed=code != REFUSED_STREAM)
        elif kind == SETTINGS:
            if not flags & ACK:
                self._on_settings(payload)
        elif kind == PING:
            if not flags & ACK:
                self._acknowledge(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            self._on_goaway(payload)
        elif kind == PUSH_PROMISE:
            raise MalformedFrame("a push promise, which is disabled")

    def _on_data(self, flags: int, number: int, payload: bytes) -> None:
        self._unacknowledged += len(payload)
        if self._unacknowledged > _CONNECTION_WINDOW // 2:
            self._write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self._unacknowledged)))
            self._unacknowledged = 0
        stream = self._streams.get(number)
        if stream is None or stream.receiver is None:
            return
        if enlarged := stream.acknowledge(len(payload)):
            self._write(frame(WINDOW_UPDATE, 0, number, struct.pack(">I", enlarged)))
        stream.receiver.on_data(without_padding(flags, payload) if flags & PADDED else payload)
        if flags & END_STREAM:
            self._end(stream, {})

    def _on_block(self, number: int, flags: int, block: bytes) -> None:
        self._headers.check_size(block)
        if not flags & END_HEADERS:
            self._block = (number, flags, block)
            return
        headers = self._headers.decode(block)
        stream = self._streams.get(number)
        if stream is None or stream.receiver is None:
            return
        if flags & END_STREAM:
            self._end(stream, headers)
        else:
            stream.receiver.on_headers(headers)

    def _on_window_update(self, number: int, enlarged: int) -> None:
        if enlarged == 0:
            raise MalformedFrame("a window update of 0")
        if number == 0:
            self._window += enlarged
            if self._window > _MAX_WINDOW:
                raise MalformedFrame("a window update beyond the maximum")
            self._pump_blocked()
        elif (stream := self._streams.get(number)) is not None:
            stream.window += enlarged
            self.pump(stream)

    def _on_settings(self, payload: bytes) -> None:
        if len(payload) % 6:
            raise MalformedFrame("settings of a wrong length")
        for identifier, value in struct.iter_unpack(">HI", payload):
            if identifier == MAX_CONCURRENT_STREAMS:
                self._max_streams = value
            elif identifier == INITIAL_WINDOW_SIZE:
                if value > _MAX_WINDOW:
                    raise MalformedFrame("an initial window beyond the maximum")
                for stream in self._streams.values():
                    stream.window += value - self._initial_window
                self._initial_window = value
            elif identifier == MAX_FRAME_SIZE:
                if not _MAX_FRAME <= value < 1 << 24:
                    raise MalformedFrame("a maximum frame size out of range")
                self._max_frame = value
        self._write(frame(SETTINGS, ACK, 0))
        if not self.ready.done():
            self.ready.set_result(None)
        self._start_waiting()
        self._pump_blocked()

    def _on_goaway(self, payload: bytes) -> None:
        if len(payload) < 8:
            raise MalformedFrame("a GOAWAY that is too short")
        last, code = struct.unpack(">II", payload[:8])
        text = payload[8:200].decode("utf-8", "replace")
        reason = f"the peer is closing the connection (code {code}{', ' + text if text else ''})"
        self._drain(reason)
        for stream in list(self._streams.values()):
            if stream.id > last & _MAX_STREAM_ID:
                self._fail(stream, reason, may_be_processed=False)
        while self._waiting:
            self._fail(self._waiting.popleft(), reason, may_be_processed=False)
        if not self._streams:
            self._lose(reason)

    # -- ends ---------------------------------------------------------------------------------------------------------

    def _end(self, stream: Http2Stream, trailers: Mapping[str, str]) -> None:
        receiver, stream.receiver = stream.receiver, None
        if not stream.sending_ends or stream.outgoing:  # the peer answered before it had read the whole request
            self._write(frame(RST_STREAM, 0, stream.id, struct.pack(">I", NO_ERROR)))
        self._remove(stream)
        if receiver is not None:
            receiver.on_end(trailers)

    def _fail(self, stream: Http2Stream, reason: str, *, may_be_processed: bool) -> None:
        receiver, stream.receiver = stream.receiver, None
        self._remove(stream)
        if receiver is not None:
            receiver.on_failure(StreamFailed(reason, may_be_processed=may_be_processed))

    def _remove(self, stream: Http2Stream) -> None:
        stream.outgoing.clear()
        self._blocked.pop(stream, None)
        self._streams.pop(stream.id, None)
        if self._waiting:
            self._start_waiting()
        if not self._streams and not self._waiting and self.failure is not None:
            self._lose(self.failure)

    def _drain(self, reason: str) -> None:
        if self.failure is None:
            self.failure = reason

    def _protocol_error(self, problem: str) -> None:
        self._write(frame(GOAWAY, 0, 0, struct.pack(">II", 0, PROTOCOL_ERROR)))
        self._lose(f"the peer violated HTTP/2: it sent {problem}")

    def _lose(self, reason: str) -> None:
        """End everything, once; open streams fail with `reason`."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        if self._out:
            transport.write(b"".join(self._out))
            self._out = []
        transport.close()
        for timer in (self._timer, self._ack_timer):
            if timer is not None:
                timer.cancel()
        self._drain(reason)
        if not self.ready.done():
            self.ready.set_exception(StreamFailed(reason, may_be_processed=False))
            self.ready.exception()  # retrieved: it need not be awaited
        streams, waiting = list(self._streams.values()), list(self._waiting)
        self._streams.clear()
        self._waiting.clear()
        self._blocked.clear()
        for stream in streams:
            self._fail(stream, reason, may_be_processed=True)
        for stream in waiting:
            self._fail(stream, reason, may_be_processed=False)

    def _tick(self) -> None:
        """Fail the streams whose deadline has passed, ping a silent peer, and give up on one that does not answer."""
        self._timer = None
        now, owes_answer = self._loop.time(), False
        for stream in (*self._streams.values(), *self._waiting):
            if stream.deadline is None:
                continue
            owes_answer = True
            if now >= stream.deadline and (receiver := stream.receiver) is not None:
                sent = stream.id != 0
                self.cancel(stream)
                receiver.on_failure(DeadlineExceeded("there was no answer in time", may_be_processed=sent))
        silent = now - self._last_received
        if self._last_ping > self._last_received:
            if now - self._last_ping >= self._keepalive_timeout:
                self.unresponsive = True
                self._lose(f"the peer sent nothing for {silent:.0f} s and did not answer a ping")
        elif now - self._last_ping >= self._keepalive and silent >= self._keepalive / (5 if owes_answer else 1):
            self._last_ping = now
            self._write(frame(PING, 0, 0, b"setpoint"))
        if self._timer is None and (self._streams or self._waiting):
            self._timer = self._loop.call_later(_TICK, self._tick)
