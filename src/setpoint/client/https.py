"""The network transport, HTTP/1.1 with TLS or, on loopback, without; and clients that use it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from setpoint.client.authentication import Authentication
from setpoint.client.client import Client
from setpoint.client.dialing import ServerAddress, ServerChoice, dial_any, first_connected, is_ip_address
from setpoint.client.kubeconfig import Access
from setpoint.client.transport import Headers, Reply, StreamReply, Unreachable, Upgraded
from setpoint.meta.clock import Clock
from setpoint.wire.client_connection import (
    ClientConnection,
    Exchange,
    IdleConnections,
    ResponseLost,
    encode_request,
    open_connection,
)
from setpoint.wire.tls import ServerCertificateError, TlsClient

_MAX_BODY: Final = 1024 * 1024 * 1024
_MAX_IDLE: Final = 32
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
        servers: ServerChoice | None = None,
    ) -> None:
        """Create a transport to the server of `access`, or to any of `servers`."""
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
        self._servers = servers
        self._last_address = ""
        """The address of the last connection, which is tried first where a name has several; empty before that."""
        self._authentication = Authentication(access, clock)
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._slots = asyncio.Semaphore(max_connections)
        self._idle = IdleConnections(_MAX_IDLE)
        self._host = url.netloc.rpartition("@")[2]
        # On loopback, compression costs more than it saves.
        self._fixed_headers = "" if self._hostname in _LOOPBACK else "accept-encoding: gzip\r\n"

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        async with self._slots, self._limited():
            reply = await self._whole(method, path, query, headers, body)
            if reply.status == 401 and self._authentication.renewable:
                self._authentication.forget()
                reply = await self._whole(method, path, query, headers, body)
            return reply

    async def stream(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> StreamReply:
        async with self._limited():
            connection, exchange = await self._exchange(method, path, query, headers, body)
        return _Stream(self._idle, connection, exchange)

    async def upgrade(self, path: str, query: str, headers: Headers) -> Upgraded | Reply:
        """Return an upgraded connection as the headers request, or the response of a server that refused the
        upgrade."""
        data = await self._encode("GET", path, query, headers, b"")
        async with self._limited():
            connection = await self._connect()
            try:
                exchange = connection.send(data, offers_upgrade=True)
                await connection.head(exchange)
                if exchange.status == 101:
                    return Upgraded(_lowered(exchange.headers), connection.upgraded())
                return await _reply(connection, exchange)
            except BaseException:
                connection.abort()
                raise

    async def close(self) -> None:
        self._idle.close()

    async def _whole(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        connection, exchange = await self._exchange(method, path, query, headers, body)
        try:
            reply = await _reply(connection, exchange)
        except BaseException:
            connection.abort()
            raise
        self._idle.release(connection)
        return reply

    async def _exchange(
        self, method: str, path: str, query: str, headers: Headers, body: bytes
    ) -> tuple[ClientConnection, Exchange]:
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
            async with asyncio.timeout(self._timeout):
                yield
        except ResponseLost as error:
            raise Unreachable(str(error)) from None
        except TimeoutError:
            raise Unreachable(
                f"the server at {self._address} did not answer within {self._timeout:g} seconds"
            ) from None

    async def _connect(self) -> ClientConnection:
        tls = await self._authentication.tls() if self._tls else None
        try:
            async with asyncio.timeout(self._connect_timeout):
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

    async def _dial(self, tls: TlsClient | None) -> ClientConnection:
        if self._servers is None:
            return await self._dial_server(ServerAddress(self._hostname, self._port), tls)
        servers = self._servers.candidates()
        return await first_connected([partial(self._try_server, self._servers, server, tls) for server in servers])

    async def _try_server(self, choice: ServerChoice, server: ServerAddress, tls: TlsClient | None) -> ClientConnection:
        try:
            connection = await self._dial_server(server, tls)
        except OSError:
            choice.failed(server)
            raise
        choice.connected(server, connection)
        return connection

    async def _dial_server(self, server: ServerAddress, tls: TlsClient | None) -> ClientConnection:
        host, port = server
        name, alternative = self._server_name or self._hostname, ""
        if not self._server_name and host != self._hostname:
            # Another server of the cluster has a certificate for the common name of all, or for its own address.
            name, alternative = (host, name) if is_ip_address(name) else (name, host)

        async def dial(address: str) -> ClientConnection:
            connection = await open_connection(address, port, tls, name, alternative, decompress=True)
            self._last_address = address
            return connection

        return await dial_any(host, port, dial, self._last_address)


async def _reply(connection: ClientConnection, exchange: Exchange) -> Reply:
    pieces: list[bytes] = []
    size = 0
    while piece := await connection.next_chunk(exchange):
        pieces.append(piece)
        size += len(piece)
        if size > _MAX_BODY:
            raise Unreachable("the server's answer is too long")
    return Reply(exchange.status, _lowered(exchange.headers), pieces[0] if len(pieces) == 1 else b"".join(pieces))


def _lowered(headers: Headers) -> Headers:
    return [(name.lower(), value) for name, value in headers]


class _Stream:
    """A StreamReply."""

    def __init__(self, idle: IdleConnections, connection: ClientConnection, exchange: Exchange) -> None:
        self.status = exchange.status
        self.headers = _lowered(exchange.headers)
        self._idle = idle
        self._connection: ClientConnection | None = connection
        self._exchange = exchange

    def __aiter__(self) -> _Stream:
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


def connect(
    access: Access,
    clock: Clock,
    *,
    user_agent: str = "setpoint",
    timeout: float = 60.0,
    servers: ServerChoice | None = None,
) -> Client:
    """Return a client for `access`, from `find_access` or `in_cluster` of `kubeconfig`. It connects to the server of
    `access`, or to any of `servers`. Nothing is sent yet."""
    transport = HttpsTransport(access, clock, timeout=timeout, servers=servers)
    return Client(
        transport,
        clock,
        user_agent=user_agent,
        impersonate=access.impersonate,
        default_namespace=access.namespace,
    )
