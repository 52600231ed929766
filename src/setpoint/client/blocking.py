"""The network transport in blocking calls, for programs that send one request at a time; and clients that use it.

Its coroutines never suspend: they can be run without an event loop (see
`docs/decisions/commands-without-an-event-loop.md`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from setpoint.client.http_transport import HttpTransport, client_of
from setpoint.wire.blocking_connection import BlockingConnection, SocketAddress, open_blocking_connection, resolve
from setpoint.wire.time_limits import TimeLimit, TimeLimits

if TYPE_CHECKING:
    from setpoint.client.client import Client
    from setpoint.client.kubeconfig import Access
    from setpoint.meta.clock import Clock
    from setpoint.wire.tls import TlsClient

_FIRST_ATTEMPT: Final = 1.0
"""Seconds after which the next address of a name is tried instead of one that has not answered."""


class BlockingTransport(HttpTransport[BlockingConnection]):
    def __init__(
        self,
        access: Access,
        clock: Clock,
        limits: TimeLimits,
        *,
        timeout: float = 60.0,
        connect_timeout: float = 30.0,
    ) -> None:
        """Create a transport to the server of `access`; `limits` apply to all calls."""
        super().__init__(access, clock, self._run_program, timeout, connect_timeout)
        self._limits = limits

    def _time_limit(self, seconds: float) -> TimeLimit:
        return self._limits.within(seconds)

    async def _dial(self, tls: TlsClient | None) -> BlockingConnection:
        """Connect to one of the addresses of the server, first to that of the last connection. An address that does not
        answer is tried again after the others, for twice as long."""
        addresses = sorted(resolve(self._hostname, self._port), key=lambda each: each[1][0] != self._last_address)
        errors: dict[SocketAddress, OSError] = {}
        seconds = _FIRST_ATTEMPT
        while len(errors) < len(addresses):
            for address in addresses:
                if address in errors:
                    continue
                if len(errors) == len(addresses) - 1:
                    seconds = self._connect_timeout  # no other is left
                try:
                    async with self._limits.within(seconds):
                        return await self._open(address, tls)
                except OSError as error:
                    if not isinstance(error, TimeoutError) or error.errno is not None:
                        errors[address] = error
            seconds *= 2
        raise errors[addresses[0]]

    async def _open(self, address: SocketAddress, tls: TlsClient | None) -> BlockingConnection:
        name = self._server_name or self._hostname
        connection = await open_blocking_connection(address, tls, name, self._limits, decompress=True)
        self._last_address = address[1][0]
        return connection

    async def _run_program(
        self, command: Sequence[str], environment: Mapping[str, str], interactive: bool
    ) -> tuple[int, bytes]:
        """Run a program: a RunProgram."""
        return _output(command, environment, interactive, self._limits)


def _output(
    command: Sequence[str], environment: Mapping[str, str], interactive: bool, limits: TimeLimits
) -> tuple[int, bytes]:
    import subprocess  # only credential plugins need it

    stdin = None if interactive else subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdin=stdin, stdout=subprocess.PIPE) as process:
        try:
            output, _ = process.communicate(timeout=limits.remaining())
        except BaseException as error:
            process.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise limits.reached() from None
            raise
    return process.returncode, output


def connect(access: Access, clock: Clock, limits: TimeLimits, *, user_agent: str, timeout: float) -> Client:
    """Return a client for `access`, whose calls are bounded by `limits`. Nothing is sent yet."""
    return client_of(BlockingTransport(access, clock, limits, timeout=timeout), access, clock, user_agent)
