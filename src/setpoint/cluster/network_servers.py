"""HTTPS to webhooks, token issuers and aggregated API servers. Each request has a connection of its own, except to
servers whose connections are pooled."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

from setpoint.apiserver.remote_servers import RemoteServer, RemoteServerError
from setpoint.meta.clock import Clock
from setpoint.wire.client_connection import ClientConnection, open_connection
from setpoint.wire.forwarding import BodyTooLong, send, streamed_response, upgrade_response, whole_response
from setpoint.wire.http_exchange import Exchange, IdleConnections
from setpoint.wire.message import HttpAnswer, Request, Response
from setpoint.wire.tls import ServerCertificateError, TlsClient, Trust

_CONNECT_TIMEOUT = 10.0
_MAX_BODY = 16 * 1024 * 1024
_NO_RESPONSE = "EOF"
"""The message if a connection ends before a response, in the words of Go."""
_MAX_IDLE, _MAX_SERVERS = 4, 64


class DialError(OSError):
    """A connection cannot be established; the message is that of Go's `net` and `crypto/tls`."""


async def dial(host: str, port: int, tls: TlsClient | None, server_name: str = "") -> ClientConnection:
    """Connect to a server, by TLS unless `tls` is None. Raise DialError."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            return await open_connection(host, port, tls, server_name)
    except (ServerCertificateError, ValueError) as error:
        raise DialError(str(error)) from None
    except ssl.SSLError as error:
        raise DialError(f"tls: {error.reason or error}") from None
    except TimeoutError:
        raise DialError(f"dial tcp {address}: i/o timeout") from None
    except OSError as error:
        why = f"connect: {os.strerror(error.errno).lower()}" if error.errno and error.errno > 0 else str(error)
        raise DialError(f"dial tcp {address}: {why}") from None


class NetworkServers:
    """A RemoteServers."""

    def __init__(self, clock: Clock, certificate: Callable[[], Path] | None = None) -> None:
        """`certificate` returns the file with the front proxy's client certificate and key."""
        self._certificate = certificate
        self._tls = lru_cache(maxsize=_MAX_SERVERS)(partial(_tls_client, clock))
        self._idle: OrderedDict[RemoteServer, IdleConnections[ClientConnection]] = OrderedDict()
        """Pooled connections by server, the server that was used last at the end."""

    async def forward(self, server: RemoteServer, request: Request, timeout: float) -> HttpAnswer:
        connection = await self._dial(server)
        try:
            exchange = await _exchange(connection, server, request, timeout)
            if exchange.status == 101:
                return upgrade_response(connection, exchange)
            if exchange.offers_upgrade or not exchange.has_body:
                async with asyncio.timeout(timeout):
                    response = await _whole(connection, exchange)
                connection.close()
                return response
        except OSError as error:
            connection.abort()
            raise RemoteServerError(str(error) or "context deadline exceeded") from None
        except BaseException:
            connection.abort()
            raise
        return streamed_response(connection, exchange)

    async def call(self, server: RemoteServer, request: Request, timeout: float) -> Response:
        try:
            async with asyncio.timeout(timeout):
                while (pooled := self._acquire(server)) is not None:
                    try:
                        return await self._call(server, request, timeout, pooled)
                    except RemoteServerError as error:
                        # The server may close an idle connection at any time.
                        if str(error) != _NO_RESPONSE:
                            raise
                return await self._call(server, request, timeout, await self._dial(server))
        except TimeoutError:
            raise RemoteServerError("context deadline exceeded") from None
        except OSError as error:
            raise RemoteServerError(str(error)) from None

    async def _call(
        self, server: RemoteServer, request: Request, timeout: float, connection: ClientConnection
    ) -> Response:
        try:
            exchange = await _exchange(connection, server, request, timeout)
            response = await _whole(connection, exchange)
        except BaseException:
            connection.abort()
            raise
        self._release(server, connection)
        return response

    def _acquire(self, server: RemoteServer) -> ClientConnection | None:
        idle = self._idle.get(server)
        return idle.acquire() if idle is not None else None

    def _release(self, server: RemoteServer, connection: ClientConnection) -> None:
        if not server.keep_alive:
            connection.close()
            return
        self._idle.setdefault(server, IdleConnections(_MAX_IDLE)).release(connection)
        self._idle.move_to_end(server)
        if len(self._idle) > _MAX_SERVERS:
            self._idle.popitem(last=False)[1].close()

    async def _dial(self, server: RemoteServer) -> ClientConnection:
        try:
            tls = None
            if not server.plaintext:
                own = self._certificate() if server.proxy_certificate and self._certificate is not None else None
                tls = self._tls(server.ca_bundle, server.insecure, own or server.client_certificate)
            return await dial(server.host, server.port, tls, server.server_name)
        except (DialError, ssl.SSLError, ValueError) as error:
            raise RemoteServerError(str(error)) from None


async def _exchange(connection: ClientConnection, server: RemoteServer, request: Request, timeout: float) -> Exchange:
    exchange = send(connection, request, server.address, keep_alive=server.keep_alive)
    try:
        async with asyncio.timeout(timeout):
            await connection.head(exchange)
    except TimeoutError:
        raise RemoteServerError("net/http: timeout awaiting response headers") from None
    except OSError:
        raise RemoteServerError(_NO_RESPONSE) from None
    return exchange


async def _whole(connection: ClientConnection, exchange: Exchange) -> Response:
    try:
        return await whole_response(connection, exchange, _MAX_BODY)
    except BodyTooLong:
        raise RemoteServerError("http: response body too large") from None


def _tls_client(
    clock: Clock, ca_bundle: bytes, insecure: bool, certificate: Path | tuple[bytes, bytes] | None
) -> TlsClient:
    return TlsClient(None if insecure else Trust(clock, ca_bundle), certificate)
