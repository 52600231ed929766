"""One HTTP/1.1 connection to a server in blocking calls, for programs that do one thing at a time.

The coroutines of this module never suspend: they can be run without an event loop (see
`docs/decisions/commands-without-an-event-loop.md`).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, TypeVar

from setpoint.wire.http_exchange import Exchange, HttpExchanges
from setpoint.wire.time_limits import TimeLimits
from setpoint.wire.tls import TlsClient

_READ_SIZE: Final = 64 * 1024

R = TypeVar("R")
SocketAddress = tuple[int, Any]
"""The family of an address, and the address in the form of this family."""


class BlockingConnection(HttpExchanges):
    def __init__(self, sock: socket.socket, limits: TimeLimits, *, decompress: bool = False) -> None:
        super().__init__(decompress=decompress)
        self._open_socket = sock
        self._limits = limits
        self._write_error: OSError | None = None
        """Why a request could not be sent completely; None if it could."""
        self._connected()

    @property
    def idle(self) -> bool:
        return super().idle and not self._has_ended()

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        self.lost = True
        self._parser = None
        self._open_socket.close()

    @property
    def _socket(self) -> socket.socket:
        return self._open_socket

    def _has_ended(self) -> bool:
        """Return whether the server has closed the connection, or sent something without a request."""
        self._open_socket.settimeout(0.0)
        try:
            self._open_socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            pass
        self.abort()
        return True

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[_limited(self._open_socket, self._limits, self._open_socket.send, rest) :]
        except OSError as error:
            # The server may have sent a response before it stopped reading.
            self._write_error = error

    async def _receive(self, exchange: Exchange) -> None:
        try:
            data = _limited(self._open_socket, self._limits, self._open_socket.recv, _READ_SIZE)
        except OSError as error:
            self._disconnected(error)
            return
        if data:
            self._parse(exchange, data)
        else:
            self._disconnected(self._write_error)

    def _switched(self, rest: bytes) -> None:
        raise AssertionError("upgraded connections need an event loop")


def resolve(host: str, port: int) -> list[SocketAddress]:
    """Return the addresses of a host, which may be an address itself. Raise OSError."""
    # As bytes, for the same reason as in `TlsClient.connect_blocking`.
    name = host.encode("ascii" if host.isascii() else "idna")
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


async def open_blocking_connection(
    address: SocketAddress, tls: TlsClient | None, server_name: str, limits: TimeLimits, *, decompress: bool = False
) -> BlockingConnection:
    """Connect to a server, whose certificate must be valid for `server_name`.

    Raise ServerCertificateError, ssl.SSLError or OSError, and LimitReached.
    """

    def connect() -> socket.socket:
        return _connected_socket(address, limits)

    def handshake(secured: ssl.SSLSocket) -> None:
        _limited(secured, limits, secured.do_handshake)

    sock = connect() if tls is None else await tls.connect_blocking(connect, handshake, server_name)
    return BlockingConnection(sock, limits, decompress=decompress)


def _connected_socket(address: SocketAddress, limits: TimeLimits) -> socket.socket:
    family, target = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _limited(sock, limits, sock.connect, target)
    except BaseException:
        sock.close()
        raise
    return sock


def _limited(sock: socket.socket, limits: TimeLimits, call: Callable[..., R], *args: Any) -> R:
    """Return the result of a call of the socket, which may take the remaining time. Raise LimitReached."""
    sock.settimeout(limits.remaining())
    try:
        return call(*args)
    except TimeoutError as error:
        if error.errno is None:  # the timeout of the socket, not an error of the network
            raise limits.reached() from None
        raise
