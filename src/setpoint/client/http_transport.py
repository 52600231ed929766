"""HTTP/1.1 to an API server, with TLS or, on loopback, without: what the transports on an event loop and in blocking
calls have in common."""

from __future__ import annotations

import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import urlsplit

from setpoint.client.authentication import Authentication, RunProgram
from setpoint.client.client import Client
from setpoint.client.transport import Headers, Reply, StreamReply, Unreachable
from setpoint.wire.http_exchange import Exchange, HttpExchanges, IdleConnections, ResponseLost, encode_request
from setpoint.wire.tls import ServerCertificateError, TlsClient

if TYPE_CHECKING:
    from setpoint.client.kubeconfig import Access
    from setpoint.meta.clock import Clock

C = TypeVar("C", bound=HttpExchanges)

_MAX_BODY: Final = 1024 * 1024 * 1024
_MAX_IDLE: Final = 32
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class HttpTransport(ABC, Generic[C]):
    """A Transport with a connection pool. `timeout` applies to a whole response, or to the head of a stream."""

    def __init__(
        self, access: Access, clock: Clock, run_program: RunProgram, timeout: float, connect_timeout: float
    ) -> None:
        """Create a transport to the server of `access`; credential plugins are run by `run_program`."""
        url = urlsplit(access.server)
        if url.scheme not in ("https", "http") or not url.hostname:
            raise ValueError(f"the address of the server, {access.server!r}, must look like https://host:port")
        self._tls = url.scheme == "https"
        self._hostname = url.hostname
        self._port = url.port or (443 if self._tls else 80)
        self._prefix = url.path.rstrip("/")
        self._address = f"{url.scheme}://{url.netloc}"
        self._server_name = access.tls_server_name
        """The name for which certificates must be valid; empty means the host that is connected to."""
        self._last_address = ""
        """The address of the last connection, which is tried first where a name has several; empty before that."""
        self._authentication = Authentication(access, clock, run_program)
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._idle: IdleConnections[C] = IdleConnections(_MAX_IDLE)
        self._host = url.netloc.rpartition("@")[2]
        # On loopback, compression costs more than it saves.
        self._fixed_headers = "" if self._hostname in _LOOPBACK else "accept-encoding: gzip\r\n"

    @abstractmethod
    def _time_limit(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """Return a block that raises TimeoutError if it takes longer."""

    @abstractmethod
    async def _dial(self, tls: TlsClient | None) -> C:
        """Return a new connection. Raise ServerCertificateError, ssl.SSLError or OSError."""

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        async with self._limited():
            reply = await self._whole(method, path, query, headers, body)
            if reply.status == 401 and self._authentication.renewable:
                self._authentication.forget()
                reply = await self._whole(method, path, query, headers, body)
            return reply

    async def stream(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> StreamReply:
        async with self._limited():
            connection, exchange = await self._exchange(method, path, query, headers, body)
        return _Stream(self._idle, connection, exchange)

    async def close(self) -> None:
        self._idle.close()

    async def _whole(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        connection, exchange = await self._exchange(method, path, query, headers, body)
        try:
            reply = await whole_reply(connection, exchange)
        except BaseException:
            connection.abort()
            raise
        self._idle.release(connection)
        return reply

    async def _exchange(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> tuple[C, Exchange]:
        """Send a request and wait for the head of its response."""
        data = await self._encode(method, path, query, headers, body)
        while True:
            pooled = self._idle.acquire()
            connection = pooled or await self._connect()
            try:
                exchange = connection.send(data, has_body=method != "HEAD")
                await connection.head(exchange)
                return connection, exchange
            except ResponseLost:
                connection.abort()
                # A pooled connection may have been closed just before the request arrived, which the server then has
                # not seen. It may also have seen it, which is harmless only for a read.
                if pooled is None or connection.answered or method != "GET":
                    raise
            except BaseException:
                connection.abort()
                raise

    async def _encode(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> bytes:
        target = f"{self._prefix}{path}?{query}" if query else f"{self._prefix}{path}"
        headers = [*headers, *await self._authentication.headers()]
        return encode_request(method, target, self._host, headers, body, self._fixed_headers)

    @asynccontextmanager
    async def _limited(self) -> AsyncIterator[None]:
        """Raise Unreachable if the block takes longer than the timeout, or a response does not arrive."""
        try:
            async with self._time_limit(self._timeout):
                yield
        except ResponseLost as error:
            raise Unreachable(str(error)) from None
        except TimeoutError:
            raise Unreachable(
                f"the server at {self._address} did not answer within {self._timeout:g} seconds"
            ) from None

    async def _connect(self) -> C:
        tls = await self._authentication.tls() if self._tls else None
        try:
            async with self._time_limit(self._connect_timeout):
                connection = await self._dial(tls)
        except TimeoutError:
            raise Unreachable(
                f"the server at {self._address} could not be reached within {self._connect_timeout:g} seconds"
            ) from None
        except ServerCertificateError as error:
            raise Unreachable(f"the certificate of the server at {self._address} is not trusted: {error}") from None
        except ssl.SSLError as error:
            raise Unreachable(f"no TLS with the server at {self._address}: {error.reason or error}") from None
        except socket.gaierror:
            raise Unreachable(f"the host {self._hostname} of the server is not known") from None
        except ConnectionRefusedError:
            raise Unreachable(f"the connection to the server {self._address} was refused: is it running?") from None
        except OSError as error:
            raise Unreachable(f"the server at {self._address} cannot be reached: {error.strerror or error}") from None
        connection.enable_tcp_keepalive()
        return connection


def client_of(transport: HttpTransport[C], access: Access, clock: Clock, user_agent: str) -> Client:
    """Return a client of the user and the namespace of `access`."""
    return Client(
        transport,
        clock,
        user_agent=user_agent,
        impersonate=access.impersonate,
        default_namespace=access.namespace,
    )


async def whole_reply(connection: HttpExchanges, exchange: Exchange) -> Reply:
    """Return a response, whose head has arrived, with its body. Raise ResponseLost or Unreachable."""
    pieces: list[bytes] = []
    size = 0
    while piece := await connection.next_chunk(exchange):
        pieces.append(piece)
        size += len(piece)
        if size > _MAX_BODY:
            raise Unreachable("the server's answer is too long")
    return Reply(exchange.status, lowered(exchange.headers), pieces[0] if len(pieces) == 1 else b"".join(pieces))


def lowered(headers: Headers) -> Headers:
    """Return the headers with their names in lower case."""
    return [(name.lower(), value) for name, value in headers]


class _Stream(Generic[C]):
    """A StreamReply."""

    def __init__(self, idle: IdleConnections[C], connection: C, exchange: Exchange) -> None:
        self.status = exchange.status
        self.headers = lowered(exchange.headers)
        self._idle = idle
        self._connection: C | None = connection
        self._exchange = exchange

    def __aiter__(self) -> _Stream[C]:
        return self

    async def __anext__(self) -> bytes:
        if self._connection is None:
            raise StopAsyncIteration
        try:
            chunk = await self._connection.next_chunk(self._exchange)
        except ResponseLost as error:
            self.close()
            raise Unreachable(str(error)) from None
        except BaseException:
            self.close()
            raise
        if not chunk:
            connection, self._connection = self._connection, None
            self._idle.release(connection)
            raise StopAsyncIteration
        return chunk

    def close(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
