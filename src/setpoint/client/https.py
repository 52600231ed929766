"""The network transport: HTTP/1.1 with TLS or, on loopback, without."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import urlsplit

from setpoint.client.access import Access
from setpoint.client.authentication import Authentication
from setpoint.client.connection import READ_AHEAD, Connection, Exchange
from setpoint.client.tls import ServerCertificateError
from setpoint.client.transport import Headers, Reply, StreamReply, Unreachable
from setpoint.client.upgraded import Upgraded, switched_head
from setpoint.meta.clock import Clock

P = TypeVar("P", bound=asyncio.BaseProtocol)
LONGEST_BODY: Final = 1024 * 1024 * 1024
MOST_IDLE: Final = 32
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class HttpsTransport:
    """A transport with a connection pool. `timeout` applies to a whole response, or to the head of a stream."""

    def __init__(
        self,
        access: Access,
        clock: Clock,
        *,
        timeout: float = 60.0,
        connect_timeout: float = 30.0,
        max_connections: int = 100,
    ) -> None:
        url = urlsplit(access.server)
        if url.scheme not in ("https", "http") or not url.hostname:
            raise ValueError(f"the address of the server, {access.server!r}, must look like https://host:port")
        self._tls = url.scheme == "https"
        self._host = url.hostname
        self._port = url.port or (443 if self._tls else 80)
        self._prefix = url.path.rstrip("/")
        self._shown = f"{url.scheme}://{url.netloc}"
        self._server_name = access.tls_server_name or self._host
        self._authentication = Authentication(access, clock)
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._slots = asyncio.Semaphore(max_connections)
        self._idle: list[Connection] = []
        fixed = f"host: {url.netloc.rpartition('@')[2]}\r\n"
        if self._host not in _LOOPBACK:
            fixed += "accept-encoding: gzip\r\n"  # on loopback, compression costs more than it saves
        self._fixed = fixed

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        async with self._slots:
            try:
                async with asyncio.timeout(self._timeout):
                    reply = await self._collect(method, path, query, headers, body)
                    if reply.status == 401 and self._authentication.renewable:
                        self._authentication.forget()
                        reply = await self._collect(method, path, query, headers, body)
                    return reply
            except TimeoutError:
                raise Unreachable(
                    f"the server at {self._shown} did not answer within {self._timeout:g} seconds"
                ) from None

    async def stream(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> StreamReply:
        try:
            async with asyncio.timeout(self._timeout):
                connection, exchange = await self._exchange(method, path, query, headers, body)
        except TimeoutError:
            raise Unreachable(f"the server at {self._shown} did not answer within {self._timeout:g} seconds") from None
        return _Stream(self, connection, exchange)

    async def upgrade(self, path: str, query: str, headers: Headers) -> Upgraded | Reply:
        """Return an upgraded connection as the headers request, or the response of a server that refused the
        upgrade."""
        credentials = await self._authentication.headers()
        data = self._encode("GET", path, query, [*headers, *credentials], b"")
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=READ_AHEAD)
        transport, protocol = await self._open_connection(lambda: asyncio.StreamReaderProtocol(reader))
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            async with asyncio.timeout(self._timeout):
                writer.write(data)
                head = await switched_head(reader)
                if head.status == 101:
                    return Upgraded(head.headers, reader, writer)
                reply = Reply(head.status, head.headers, await head.body(reader))
        except TimeoutError:
            transport.abort()
            raise Unreachable(f"the server at {self._shown} did not answer within {self._timeout:g} seconds") from None
        except OSError as error:
            transport.abort()
            raise Unreachable(f"the server closed the connection before its answer was complete: {error}") from None
        except BaseException:
            transport.abort()
            raise
        transport.abort()
        return reply

    async def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _collect(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        connection, exchange = await self._exchange(method, path, query, headers, body)
        try:
            pieces: list[bytes] = []
            size = 0
            while piece := await connection.next_chunk(exchange):
                pieces.append(piece)
                size += len(piece)
                if size > LONGEST_BODY:
                    raise Unreachable("the server's answer is too long")
        except BaseException:
            connection.close()
            raise
        self._release(connection)
        return Reply(exchange.status, exchange.headers, pieces[0] if len(pieces) == 1 else b"".join(pieces))

    async def _exchange(
        self, method: str, path: str, query: str, headers: Headers, body: bytes
    ) -> tuple[Connection, Exchange]:
        """Send a request and wait for the head of its response."""
        credentials = await self._authentication.headers()
        data = self._encode(method, path, query, [*headers, *credentials], body)
        while True:
            kept = self._acquire_idle()
            connection = kept or await self._connect()
            try:
                exchange = connection.send(data)
                await connection.head(exchange)
                return connection, exchange
            except Unreachable:
                connection.close()
                # A pooled connection may have been closed just before the request arrived, which the server then has
                # not seen. It may also have seen it, which is harmless only for a read.
                if kept is None or connection.answered or method != "GET":
                    raise
            except BaseException:
                connection.close()
                raise

    def _encode(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> bytes:
        target = f"{self._prefix}{path}?{query}" if query else f"{self._prefix}{path}"
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        if lines.count("\n") != len(headers) or "\r" in target or "\n" in target or " " in target:
            raise ValueError("a header or a path with a line break or a space in it")
        length = f"content-length: {len(body)}\r\n" if body or method not in ("GET", "DELETE") else ""
        return f"{method} {target} HTTP/1.1\r\n{self._fixed}{lines}{length}\r\n".encode() + body

    # -- connections ----------------------------------------------------------------------------------------------

    def _acquire_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.idle:
                return connection
        return None

    def _release(self, connection: Connection) -> None:
        if connection.idle and len(self._idle) < MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    async def _connect(self) -> Connection:
        return (await self._open_connection(Connection))[1]

    async def _open_connection(self, factory: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        loop = asyncio.get_running_loop()
        tls = await self._authentication.tls() if self._tls else None
        try:
            async with asyncio.timeout(self._connect_timeout):
                if tls is None:
                    transport, protocol = await loop.create_connection(factory, self._host, self._port)
                else:
                    transport, protocol = await tls.connect(factory, self._host, self._port, self._server_name)
        except TimeoutError:
            raise Unreachable(
                f"the server at {self._shown} could not be reached within {self._connect_timeout:g} seconds"
            ) from None
        except ServerCertificateError as error:
            raise Unreachable(f"the certificate of the server at {self._shown} is not trusted: {error}") from None
        except ssl.SSLError as error:
            raise Unreachable(f"no TLS with the server at {self._shown}: {error.reason or error}") from None
        except socket.gaierror:
            raise Unreachable(f"the host {self._host} of the server is not known") from None
        except ConnectionRefusedError:
            raise Unreachable(f"the connection to the server {self._shown} was refused: is it running?") from None
        except OSError as error:
            raise Unreachable(f"the server at {self._shown} cannot be reached: {error.strerror or error}") from None
        _keep_alive(transport.get_extra_info("socket"))
        return transport, protocol


def _keep_alive(sock: socket.socket | None) -> None:
    """Enable TCP keepalive: a watch may be idle for a long time, and the system must detect a lost peer."""
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class _Stream:
    def __init__(self, owner: HttpsTransport, connection: Connection, exchange: Exchange) -> None:
        self.status = exchange.status
        self.headers: Headers = exchange.headers
        self._owner = owner
        self._connection: Connection | None = connection
        self._exchange = exchange

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> bytes:
        if self._connection is None:
            raise StopAsyncIteration
        try:
            chunk = await self._connection.next_chunk(self._exchange)
        except BaseException:
            self.close()
            raise
        if not chunk:
            connection, self._connection = self._connection, None
            self._owner._release(connection)
            raise StopAsyncIteration
        return chunk

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
