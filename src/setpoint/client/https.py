"""The network transport on an event loop, HTTP/1.1 with TLS or, on loopback, without; and clients that use it."""

from __future__ import annotations

import asyncio
from functools import partial

from setpoint.client.authentication import run_program
from setpoint.client.client import Client
from setpoint.client.dialing import ServerAddress, ServerChoice, dial_any, first_connected, is_ip_address
from setpoint.client.http_transport import HttpTransport, client_of, lowered, whole_reply
from setpoint.client.kubeconfig import Access
from setpoint.client.transport import Headers, Reply, Upgraded
from setpoint.meta.clock import Clock
from setpoint.wire.client_connection import ClientConnection, open_connection
from setpoint.wire.tls import TlsClient


class HttpsTransport(HttpTransport[ClientConnection]):
    """A transport for any number of concurrent requests."""

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
        super().__init__(access, clock, run_program, timeout, connect_timeout)
        self._servers = servers
        self._slots = asyncio.Semaphore(max_connections)

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        async with self._slots:
            return await super().request(method, path, query, headers, body)

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
                    return Upgraded(lowered(exchange.headers), connection.upgraded())
                return await whole_reply(connection, exchange)
            except BaseException:
                connection.abort()
                raise

    def _time_limit(self, seconds: float) -> asyncio.Timeout:
        return asyncio.timeout(seconds)

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
    return client_of(HttpsTransport(access, clock, timeout=timeout, servers=servers), access, clock, user_agent)
