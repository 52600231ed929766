"""Connections to one of several API servers, or to one of several addresses of a name."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from setpoint.tasks import child_tasks
from setpoint.wire.client_connection import ClientConnection

T = TypeVar("T")
Attempt = Callable[[], Coroutine[Any, Any, T]]

ATTEMPT_DELAY: Final = 1.0
"""Seconds after which the next address is tried in parallel to one that has not answered. A handshake with a busy
server may take a few hundred milliseconds."""


class ServerAddress(NamedTuple):
    host: str
    """A name or an IP address, without brackets."""
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ServerChoice(Protocol):
    """Chooses the server of each new connection, and is notified of the outcome."""

    def candidates(self) -> Sequence[ServerAddress]:
        """Return the servers to try, the best first; there is at least one."""
        ...

    def connected(self, server: ServerAddress, connection: ClientConnection) -> None: ...

    def failed(self, server: ServerAddress) -> None:
        """Record that the server could not be connected to."""
        ...


def is_ip_address(host: str) -> bool:
    address, _, _ = host.partition("%")  # the zone of a link-local address
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    except OSError:
        return False
    return True


async def dial_any(
    host: str, port: int, dial: Callable[[str], Coroutine[Any, Any, ClientConnection]], preferred: str = ""
) -> ClientConnection:
    """Connect to one of the addresses of `host`, first to the `preferred` one if it is still among them. Raise
    OSError."""
    if is_ip_address(host):
        return await dial(host)
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = sorted(dict.fromkeys(str(address[0]) for *_, address in found), key=lambda each: each != preferred)
    return await first_connected([partial(dial, address) for address in addresses])


async def first_connected(attempts: Sequence[Attempt[ClientConnection]]) -> ClientConnection:
    """Return the first connection that is established, and close all others.

    The attempts start in order: each one when the previous one has failed, or has taken longer than ATTEMPT_DELAY. If
    all fail, raise the error of the first.
    """
    if len(attempts) == 1:
        return await attempts[0]()
    loop = asyncio.get_running_loop()
    may_start = [asyncio.Event() for _ in range(len(attempts) + 1)]
    may_start[0].set()

    async def run(number: int, attempt: Attempt[ClientConnection]) -> ClientConnection:
        await may_start[number].wait()
        start_next = may_start[number + 1].set
        timer = loop.call_later(ATTEMPT_DELAY, start_next)
        try:
            return await attempt()
        except OSError:
            start_next()
            raise
        finally:
            timer.cancel()

    async with child_tasks(*(run(number, attempt) for number, attempt in enumerate(attempts))) as tasks:
        return await _first_result(tasks)


async def _first_result(tasks: Sequence[asyncio.Task[ClientConnection]]) -> ClientConnection:
    pending = set(tasks)
    while pending:
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        connections = [task.result() for task in tasks if task.done() and task.exception() is None]
        for surplus in connections[1:]:
            surplus.abort()
        if connections:
            return connections[0]
    return tasks[0].result()  # raises its error
