"""Taking in connections: a few at a time, since what follows, a TLS handshake, is the most expensive thing that a
stranger can ask for; and so many at once in the middle of one, since each takes memory."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from ssl import SSLContext, SSLError
from typing import Any, Final

from setpoint.apiserver.http.limits import Limits

logger = logging.getLogger(__name__)

_BACKLOG: Final = 4096
_YOUNG: Final = 4
"""So many have just begun; the next one comes in when one of them is through, or no longer young."""
_YOUTH: Final = 0.02
"""Seconds."""
_SHUTDOWN_TIMEOUT: Final = 5.0
_NOTHING_LEFT: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_HTTP_ON_HTTPS: Final = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
"""The answer to plain HTTP on a TLS port, in the words of Go's net/http."""
_PAUSE: Final = 1.0
"""Seconds until the next try where there is nothing left to take one more connection with."""


async def listen(host: str, port: int) -> list[socket.socket]:
    """One socket for each address of `host`. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            listener = socket.socket(family, socket.SOCK_STREAM)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


class Acceptor:
    """Each connection becomes a protocol that `make` makes, after its handshake if there is TLS."""

    def __init__(
        self,
        listeners: list[socket.socket],
        make: Callable[[], asyncio.BaseProtocol],
        tls: SSLContext | None,
        limits: Limits,
    ) -> None:
        self._listeners = listeners
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
        self._beginning: dict[asyncio.Task[None], asyncio.TimerHandle | None] = {}
        """Whose handshake is not over, the oldest first; with a timer while they are young."""
        self._young = 0
        self._listening = False
        self._paused: asyncio.TimerHandle | None = None
        self._listen()

    async def close(self) -> None:
        """Nobody comes in any more; whoever has just begun is sent away."""
        if self._paused is not None:
            self._paused.cancel()
        self._stop_listening()
        for listener in self._listeners:
            listener.close()
        self._listeners = []
        beginning = list(self._beginning)
        for task in beginning:
            task.cancel()
        if beginning:
            await asyncio.wait(beginning)

    def _listen(self) -> None:
        self._paused = None
        self._listening = True
        for listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    def _stop_listening(self) -> None:
        self._listening = False
        for listener in self._listeners:
            self._loop.remove_reader(listener)

    def _accept(self, listener: socket.socket) -> None:
        while self._young < _YOUNG:
            try:
                accepted, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NOTHING_LEFT:
                    raise
                logger.error("cannot take one more connection: %s; trying again in %.0f s", error.strerror, _PAUSE)
                self._stop_listening()
                self._paused = self._loop.call_later(_PAUSE, self._listen)
                return
            accepted.setblocking(False)
            self._begin(accepted)
        self._stop_listening()

    def _begin(self, accepted: socket.socket) -> None:
        if len(self._beginning) >= self._limits.handshakes:
            next(iter(self._beginning)).cancel()  # it had more time than anybody else
        task = self._loop.create_task(self._begun(accepted))
        self._beginning[task] = self._loop.call_later(_YOUTH, self._aged, task)
        self._young += 1
        task.add_done_callback(self._ended)

    def _aged(self, task: asyncio.Task[None]) -> None:
        self._beginning[task] = None
        self._one_less()

    def _ended(self, task: asyncio.Task[None]) -> None:
        youth = self._beginning.pop(task)
        if youth is not None:
            youth.cancel()
            self._one_less()

    def _one_less(self) -> None:
        self._young -= 1
        if not self._listening and self._paused is None:
            self._listen()

    async def _begun(self, accepted: socket.socket) -> None:
        spare = _duplicate(accepted) if self._options else None
        try:
            await self._loop.connect_accepted_socket(self._make, accepted, **self._options)
        except OSError as error:  # of TLS too
            logger.debug("a connection did not come about: %s", error)
            if spare is not None and isinstance(error, SSLError) and error.reason == "HTTP_REQUEST":
                with suppress(OSError):
                    spare.send(_HTTP_ON_HTTPS)
        finally:
            if spare is not None:
                spare.close()


def _duplicate(accepted: socket.socket) -> socket.socket | None:
    """A second descriptor of a connection, to answer those who do not speak TLS: theirs is closed by then."""
    try:
        return accepted.dup()
    except OSError:
        return None
