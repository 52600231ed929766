"""A gRPC client over one HTTP/2 connection: calls with one answer, and streams in both directions.

Messages are bytes here: callers encode and decode them. A failed call says whether the server may have acted on it
(`GrpcError.may_be_processed`), because callers that write must know.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
from urllib.parse import unquote, urlsplit

from setpoint.wire.http2 import Http2Connection
from setpoint.wire.http2_headers import literal
from setpoint.wire.http2_stream import DeadlineExceeded, Http2Stream, StreamFailed
from setpoint.wire.tls import TlsClient

MAX_MESSAGE = 64 << 20
"""The largest message that is accepted, in bytes."""
_REFUSED_PAUSES = (0.0, 0.001, 0.01)
"""Seconds to wait before the first repetitions of a call that the server refused."""
_REFUSED_PAUSE = 0.1
"""Seconds to wait before each further repetition of such a call."""
_CACHED_HEADS = 256
Metadata = Mapping[str, Mapping[str, str]]
"""Headers by the service that they are sent to."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Code(IntEnum):
    """The status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class GrpcError(Exception):
    """A call failed: by the server's status, or because no answer arrived."""

    def __init__(self, code: Code, message: str, *, may_be_processed: bool = True) -> None:
        super().__init__(f"{message} ({code.name})" if message else code.name)
        self.code = code
        self.message = message
        self.may_be_processed = may_be_processed
        """False if the server certainly did not act on the request because it never reached it."""


class _OwnDeadline(GrpcError):
    """The call was given up here, at its deadline; a server may also end a call with the same code."""


class Call:
    """A call with messages in both directions. Created by `Channel.stream`."""

    def __init__(self, stream: Http2Stream) -> None:
        self._stream = stream

    def send(self, message: bytes) -> None:
        """Send a message. Ignored after the end of the call, which its receiver has been informed of."""
        self._stream.send(_framed(message))

    def close_sending(self) -> None:
        self._stream.send(b"", end=True)

    def cancel(self) -> None:
        """End the call; the callbacks are not called any more."""
        self._stream.reset()


class Channel:
    """One connection to a gRPC server. It does not reconnect: once `failure` is set, another one is needed."""

    def __init__(self, connection: Http2Connection, target: str, metadata: Metadata) -> None:
        self.target = target
        self._connection = connection
        address = urlsplit(target)
        self._authority = address.netloc or "localhost"
        # Indexed fields of the static table: ":method: POST" and ":scheme: http" or "https".
        self._begin = b"\x83" + (b"\x87" if address.scheme == "https" else b"\x86")
        self._metadata = metadata
        self._heads: dict[str, bytes] = {}
        self._unary_heads: dict[tuple[str, float], bytes] = {}
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(
        cls,
        target: str,
        *,
        tls: TlsClient | None = None,
        timeout: float = 20.0,
        keepalive: float = 30.0,
        keepalive_timeout: float = 10.0,
        metadata: Metadata | None = None,
    ) -> Channel:
        """Connect to `http://host:port`, `https://host:port` or `unix:///path`. Raise GrpcError UNAVAILABLE.

        `tls` is required for https; it must offer the protocol `h2`. `metadata` are further headers of requests."""
        address = urlsplit(target)
        loop = asyncio.get_running_loop()

        def connection() -> Http2Connection:
            return Http2Connection(keepalive, keepalive_timeout)

        try:
            async with asyncio.timeout(timeout):
                if address.scheme == "unix":
                    _, made = await loop.create_unix_connection(connection, address.path)
                elif address.scheme in _DEFAULT_PORTS:
                    host, port = address.hostname or "", address.port or _DEFAULT_PORTS[address.scheme]
                    if address.scheme == "http":
                        _, made = await loop.create_connection(connection, host, port)
                    elif tls is None:
                        raise ValueError(f"{target}: https needs TLS")
                    else:
                        _, made = await tls.connect(connection, host, port)
                else:
                    raise ValueError(f"{target}: the scheme must be http, https or unix")
                try:
                    await asyncio.shield(made.ready)
                except asyncio.CancelledError:
                    made.close()
                    raise
        except TimeoutError:
            reason = f"cannot connect to {target}: no answer within {timeout:g} s"
        except (OSError, StreamFailed) as error:
            hint = "; does it expect https?" if address.scheme == "http" and "closed" in str(error) else ""
            reason = f"cannot connect to {target}: {_reason(error)}{hint}"
        else:
            return cls(made, target, metadata or {})
        raise GrpcError(Code.UNAVAILABLE, reason, may_be_processed=False)

    @property
    def failure(self) -> str | None:
        """Return why this channel accepts no further calls, or None while it does."""
        return self._connection.failure

    @property
    def unresponsive(self) -> bool:
        """Return whether this channel failed because the server did not even answer a ping."""
        return self._connection.unresponsive

    def call(self, method: str, request: bytes, timeout: float, on_answer: Callable[[bytes | GrpcError], None]) -> None:
        """Call `method` once and return; `on_answer` receives the answer or the error, later on the event loop.

        The request is written at once, not at the end of this iteration of the event loop. Raise GrpcError."""
        head, deadline = self._unary_head(method, timeout), self._loop.time() + timeout
        self._open(head, _Answer(on_answer), deadline, _framed(request), at_once=True)

    async def unary(self, method: str, request: bytes, *, timeout: float) -> bytes:
        """Call `method` ("/package.Service/Method") and return the answer. Raise GrpcError.

        A call that takes longer than `timeout` seconds, or is cancelled, is cancelled at the server too. A call that
        the server refuses without processing it, because it has too many at the moment, is repeated until then."""
        head, framed = self._unary_head(method, timeout), _framed(request)
        deadline = self._loop.time() + timeout
        pauses = iter(_REFUSED_PAUSES)
        while True:
            answer: asyncio.Future[bytes] = self._loop.create_future()
            stream = self._open(head, _Answer(partial(_resolve, answer)), deadline, framed)
            try:
                return await answer
            except asyncio.CancelledError:
                stream.reset()
                raise
            except _OwnDeadline as error:
                reason = f"{method} was not answered within {timeout:g} s"
                raise GrpcError(error.code, reason, may_be_processed=error.may_be_processed) from None
            except GrpcError as error:
                pause = next(pauses, _REFUSED_PAUSE)
                if error.may_be_processed or self.failure is not None or self._loop.time() + pause >= deadline:
                    raise
            await asyncio.sleep(pause)

    def _unary_head(self, method: str, timeout: float) -> bytes:
        head = self._unary_heads.get((method, timeout))
        if head is None:
            head = self._head(method) + _timeout(timeout)
            if len(self._unary_heads) < _CACHED_HEADS:
                self._unary_heads[method, timeout] = head
        return head

    def stream(
        self,
        method: str,
        on_message: Callable[[bytes], None],
        on_end: Callable[[GrpcError | None], None],
    ) -> Call:
        """Start a call. `on_message` receives each message, `on_end` the end: None or the error. Raise GrpcError."""
        return Call(self._open(self._head(method), _AllMessages(on_message, on_end)))

    def close(self) -> None:
        """Close the connection; open calls fail."""
        self._connection.close()

    def retire(self, reason: str) -> None:
        """Accept no further calls, and close the connection when the open ones have ended."""
        self._connection.retire(reason)

    def _open(
        self,
        head: bytes,
        receiver: _Messages,
        deadline: float | None = None,
        body: bytes | None = None,
        *,
        at_once: bool = False,
    ) -> Http2Stream:
        try:
            return self._connection.open(head, receiver, deadline, body, at_once=at_once)
        except StreamFailed as failure:
            raise GrpcError(Code.UNAVAILABLE, str(failure), may_be_processed=False) from None

    def _head(self, method: str) -> bytes:
        head = self._heads.get(method)
        if head is None:
            fields = {":path": method, ":authority": self._authority, "te": "trailers"}
            fields |= {"content-type": "application/grpc", "user-agent": "setpoint"}
            fields |= self._metadata.get(method.split("/")[1], {})
            head = self._begin + b"".join(literal(name, value) for name, value in fields.items())
            self._heads[method] = head
        return head


class _Messages:
    """Splits the data of a stream into messages, and turns its end into a status."""

    __slots__ = ("_buffer", "_problem")

    def __init__(self) -> None:
        self._buffer: bytearray | None = None
        """The data since the last whole message; None if there is none."""
        self._problem: GrpcError | None = None

    def on_message(self, message: bytes) -> None:
        raise NotImplementedError

    def on_status(self, error: GrpcError | None) -> None:
        raise NotImplementedError

    def on_headers(self, headers: Mapping[str, str]) -> None:
        status = headers.get(":status", "")
        if status != "200":
            self._problem = GrpcError(_code_of_http(status), f"the server answered with HTTP status {status or 'none'}")

    def on_data(self, data: bytes) -> None:
        if self._problem is not None:
            return
        buffer = self._buffer
        if buffer is None:
            if len(data) >= 5 and not data[0] and len(data) == 5 + int.from_bytes(data[1:5], "big"):
                self.on_message(data[5:])  # the usual case: one whole message
                return
            buffer = bytearray()
        buffer += data
        at = 0
        while len(buffer) - at >= 5:
            compressed, length = buffer[at], int.from_bytes(buffer[at + 1 : at + 5], "big")
            if compressed or length > MAX_MESSAGE:
                what = "a compressed message" if compressed else f"a message of {length} bytes"
                self._problem = GrpcError(Code.INTERNAL, f"the server sent {what}")
                self._buffer = None
                return
            if len(buffer) - at - 5 < length:
                break
            message = bytes(memoryview(buffer)[at + 5 : at + 5 + length])
            at += 5 + length
            self.on_message(message)
        del buffer[:at]
        self._buffer = buffer or None

    def on_end(self, trailers: Mapping[str, str]) -> None:
        self.on_status(self._problem or self._status(trailers))

    def on_failure(self, failure: StreamFailed) -> None:
        error: GrpcError
        if isinstance(failure, DeadlineExceeded):
            error = _OwnDeadline(Code.DEADLINE_EXCEEDED, str(failure), may_be_processed=failure.may_be_processed)
        else:
            error = GrpcError(Code.UNAVAILABLE, str(failure), may_be_processed=failure.may_be_processed)
        self.on_status(self._problem or error)

    def _status(self, trailers: Mapping[str, str]) -> GrpcError | None:
        given = trailers.get("grpc-status", "")
        if given == "0":
            if self._buffer is not None:
                return GrpcError(Code.INTERNAL, "the server's last message is incomplete")
            return None
        if not given.isdecimal() or int(given) > max(Code):
            if (status := trailers.get(":status", "200")) != "200":
                return GrpcError(_code_of_http(status), f"the server answered with HTTP status {status}")
            return GrpcError(Code.UNKNOWN, f"the server sent the status {given!r}")
        return GrpcError(Code(int(given)), unquote(trailers.get("grpc-message", "")))


class _AllMessages(_Messages):
    """Passes each message of a stream on."""

    __slots__ = ("_on_end", "_on_message")

    def __init__(self, on_message: Callable[[bytes], None], on_end: Callable[[GrpcError | None], None]) -> None:
        super().__init__()
        self._on_message, self._on_end = on_message, on_end

    def on_message(self, message: bytes) -> None:
        self._on_message(message)

    def on_status(self, error: GrpcError | None) -> None:
        self._on_end(error)


class _Answer(_Messages):
    """Passes the only message of an answer on, or the error."""

    __slots__ = ("_message", "_on_answer")

    def __init__(self, on_answer: Callable[[bytes | GrpcError], None]) -> None:
        self._buffer = self._problem = None
        self._on_answer = on_answer
        self._message: bytes | None = None

    def on_message(self, message: bytes) -> None:
        if self._message is None:
            self._message = message
        else:
            self._problem = GrpcError(Code.INTERNAL, "the server sent more than one message")

    def on_status(self, error: GrpcError | None) -> None:
        if error is not None:
            self._on_answer(error)
        elif self._message is None:
            self._on_answer(GrpcError(Code.INTERNAL, "the server sent no message"))
        else:
            self._on_answer(self._message)


def _resolve(future: asyncio.Future[bytes], answer: bytes | GrpcError) -> None:
    if future.done():
        return
    if isinstance(answer, GrpcError):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _framed(message: bytes) -> bytes:
    return b"\x00" + len(message).to_bytes(4, "big") + message


def _timeout(seconds: float) -> bytes:
    """Return the header with the deadline of the call."""
    return literal("grpc-timeout", f"{min(max(int(seconds * 1000), 1), 99_999_999)}m")


def _code_of_http(status: str) -> Code:
    """Map an HTTP status by the rules of gRPC."""
    known = {"400": Code.INTERNAL, "401": Code.UNAUTHENTICATED, "403": Code.PERMISSION_DENIED}
    known |= {"404": Code.UNIMPLEMENTED} | dict.fromkeys(("429", "502", "503", "504"), Code.UNAVAILABLE)
    return known.get(status, Code.UNKNOWN)


def _reason(error: Exception) -> str:
    """Return why a connection failed, without the number and the address that asyncio puts into the text."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return str(error)
