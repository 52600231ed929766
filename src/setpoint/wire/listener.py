"""Listens, and accepts connections a few at a time: a TLS handshake is the most expensive thing that an unauthenticated
client can ask for. The number of concurrent handshakes is limited, because each takes memory."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from ssl import SSLContext, SSLError
from typing import Any, Final

from setpoint.tasks import TaskRegistry
from setpoint.wire.limits import Limits

logger = logging.getLogger(__name__)

_BACKLOG: Final = 4096
_NEW: Final = 4
"""The number of new connections after which no more are accepted, until one of them is complete or no longer new."""
_NEW_FOR: Final = 0.02
"""Seconds for which a connection counts as new."""
_SHUTDOWN_TIMEOUT: Final = 5.0
_OUT_OF_RESOURCES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_NO_SUCH_ADDRESS: Final = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
_PORT_ATTEMPTS: Final = 8
"""Number of free ports of one address that are tried for another address."""
_HTTP_ON_HTTPS: Final = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
"""The response to plain HTTP on a TLS port, in the words of Go's net/http."""
_RETRY_AFTER: Final = 1.0
"""Seconds until the next attempt after the system had no resources for another connection."""


async def listen(host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """Return a listening socket for each address of `host`; empty means all addresses. `shared` means that other
    processes of this user listen on the same port, and the kernel distributes connections. Raise OSError."""
    return _listening(await _addresses(host, port), shared=shared)


async def reserve(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of `host`, which gets no connections: processes of this user will listen on the
    port as shared. Port 0 chooses a free one. Raise OSError, also if another server shares the port already."""
    for exclusive in _bound(await _addresses(host, port)):
        port = exclusive.getsockname()[1]
        exclusive.close()
    return _bound(await _addresses(host, port), shared=True)


async def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [(family, address) for family, _, _, _, address in dict.fromkeys(found)]


def listen_on_loopback(port: int) -> list[socket.socket]:
    """Return listening sockets for 127.0.0.1 and, if this machine has it, ::1, with the same port. Port 0 chooses a
    free one. Raise OSError."""
    for attempts_left in reversed(range(_PORT_ATTEMPTS)):
        listeners = _listening([(socket.AF_INET, ("127.0.0.1", port))])
        try:
            return [*listeners, *_listening([(socket.AF_INET6, ("::1", listeners[0].getsockname()[1]))])]
        except OSError as error:
            if error.errno in _NO_SUCH_ADDRESS:
                return listeners
            for listener in listeners:
                listener.close()
            if port or not attempts_left:
                raise
    raise AssertionError("the last attempt returns or raises")


def _listening(addresses: Iterable[tuple[int, Any]], *, shared: bool = False) -> list[socket.socket]:
    """Return a listening socket for each family and address. Raise OSError."""
    listeners = _bound(addresses, shared=shared)
    try:
        for listener in listeners:
            listener.listen(_BACKLOG)
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _bound(addresses: Iterable[tuple[int, Any]], *, shared: bool = False) -> list[socket.socket]:
    """Return a socket that is bound to each family and address. Raise OSError."""
    sockets: list[socket.socket] = []
    try:
        for family, address in addresses:
            bound = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(bound)
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind(address)
    except OSError:
        for bound in sockets:
            bound.close()
        raise
    return sockets


def listen_on_path(path: Path) -> socket.socket:
    """Return a listening Unix socket, which replaces a file of an earlier process. Raise OSError."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


class Listener:
    """Accepts connections, and connects each with a protocol that `make` returns, after the handshake if there is
    TLS."""

    def __init__(
        self,
        sockets: list[socket.socket],
        make: Callable[[], asyncio.BaseProtocol],
        tls: SSLContext | None,
        limits: Limits,
    ) -> None:
        self._sockets = sockets
        self._make = make
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._options: dict[str, Any] = {}
        if tls is not None:
            self._options = {
                "ssl": tls,
                "ssl_handshake_timeout": limits.handshake_timeout,
                "ssl_shutdown_timeout": _SHUTDOWN_TIMEOUT,
            }
        self._tasks = TaskRegistry()
        self._handshakes: dict[asyncio.Task[None], asyncio.TimerHandle | None] = {}
        """The connections whose handshake is not complete, the oldest first; with a timer while they are new."""
        self._new = 0
        self._listening = False
        self._paused: asyncio.TimerHandle | None = None
        self._listen()

    async def close(self) -> None:
        """Accept no more connections, and abort handshakes."""
        if self._paused is not None:
            self._paused.cancel()
        self._stop_listening()
        for listening in self._sockets:
            listening.close()
        self._sockets = []
        await self._tasks.stop()

    def _listen(self) -> None:
        self._paused = None
        self._listening = True
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _stop_listening(self) -> None:
        self._listening = False
        for listening in self._sockets:
            self._loop.remove_reader(listening)

    def _accept(self, listening: socket.socket) -> None:
        while self._new < _NEW:
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                logger.error(
                    "cannot accept another connection: %s; trying again in %.0f s", error.strerror, _RETRY_AFTER
                )
                self._stop_listening()
                self._paused = self._loop.call_later(_RETRY_AFTER, self._listen)
                return
            accepted.setblocking(False)
            self._start(accepted)
        self._stop_listening()

    def _start(self, accepted: socket.socket) -> None:
        if len(self._handshakes) >= self._limits.handshakes:
            next(iter(self._handshakes)).cancel()  # it had the most time
        task = self._tasks.start(self._establish(accepted))
        self._handshakes[task] = self._loop.call_later(_NEW_FOR, self._not_new, task)
        self._new += 1
        task.add_done_callback(self._ended)

    def _not_new(self, task: asyncio.Task[None]) -> None:
        self._handshakes[task] = None
        self._one_less_new()

    def _ended(self, task: asyncio.Task[None]) -> None:
        timer = self._handshakes.pop(task)
        if timer is not None:
            timer.cancel()
            self._one_less_new()

    def _one_less_new(self) -> None:
        self._new -= 1
        if not self._listening and self._paused is None:
            self._listen()

    async def _establish(self, accepted: socket.socket) -> None:
        spare = _duplicate(accepted) if self._options else None
        try:
            await self._loop.connect_accepted_socket(self._make, accepted, **self._options)
        except OSError as error:  # includes errors of TLS
            logger.debug("a connection was not established: %s", error)
            if spare is not None and isinstance(error, SSLError) and error.reason == "HTTP_REQUEST":
                with suppress(OSError):
                    spare.send(_HTTP_ON_HTTPS)
        finally:
            if spare is not None:
                spare.close()


def _duplicate(accepted: socket.socket) -> socket.socket | None:
    """Return a second descriptor of a connection, to answer clients that do not use TLS: the first one is closed by
    then. Return None if there is no descriptor left."""
    try:
        return accepted.dup()
    except OSError:
        return None
