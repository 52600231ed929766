"""One HTTP/1.1 connection to a server on the event loop, with backpressure on reads, and upgrades."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from setpoint.wire.http_exchange import Exchange, HttpExchanges
from setpoint.wire.tls import TlsClient
from setpoint.wire.upgraded import UpgradedConnection

if TYPE_CHECKING:
    import socket

READ_AHEAD: Final = 1024 * 1024
"""Bytes of a body that are buffered before reading is paused."""


class ClientConnection(HttpExchanges, asyncio.Protocol):
    def __init__(self, *, decompress: bool = False) -> None:
        super().__init__(decompress=decompress)
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._upgraded: UpgradedConnection | None = None
        self._reading = True
        self._drained = asyncio.Event()
        self._drained.set()

    async def next_chunk(self, exchange: Exchange) -> bytes:
        chunk = await super().next_chunk(exchange)
        if not self._reading and exchange.size < READ_AHEAD // 2:
            self.resume_reading()
        return chunk

    def upgraded(self) -> UpgradedConnection:
        """Return the connection after the server has accepted an upgrade, that is, answered with 101."""
        assert self._upgraded is not None
        return self._upgraded

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self.lost = True

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    @property
    def _socket(self) -> socket.socket | None:
        return self._transport.get_extra_info("socket") if self._transport is not None else None

    async def _receive(self, exchange: Exchange) -> None:
        if not self._reading:
            self.resume_reading()
        exchange.waiter = self.loop.create_future()
        try:
            await exchange.waiter
        finally:
            exchange.waiter = None

    def _switched(self, rest: bytes) -> None:
        self._upgraded = UpgradedConnection(self, rest)

    def _finish(self, exchange: Exchange) -> None:
        super()._finish(exchange)
        if not (self.lost or self._reading):
            self.resume_reading()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    # Called by the upgraded connection.

    def send_raw(self, data: bytes) -> None:
        self._write(data)

    async def drained(self) -> None:
        await self._drained.wait()

    def pause_reading(self) -> None:
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            if self._transport is not None and not self.lost and not self._transport.is_closing():
                self._transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connected()

    def data_received(self, data: bytes) -> None:
        if self._upgraded is not None:
            self._upgraded.data_received(data)
            return
        exchange = self._exchange
        if exchange is None:
            self.abort()  # data without a request
            return
        self._parse(exchange, data)
        if exchange.size > READ_AHEAD and not exchange.complete:
            self.pause_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._drained.set()
        self._disconnected(error)
        if self._upgraded is not None:
            self._upgraded.end()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()


async def open_connection(
    host: str,
    port: int,
    tls: TlsClient | None,
    server_name: str = "",
    alternative_name: str = "",
    *,
    decompress: bool = False,
) -> ClientConnection:
    """Connect to a server, whose certificate must be valid for `server_name`, by default the host, or for
    `alternative_name`.

    Raise ServerCertificateError, ssl.SSLError or OSError.
    """

    def new() -> ClientConnection:
        return ClientConnection(decompress=decompress)

    if tls is not None:
        return (await tls.connect(new, host, port, server_name, alternative_name))[1]
    return (await asyncio.get_running_loop().create_connection(new, host, port))[1]
