"""Deletion of stale UDP connections from the kernel's connection tracking.

The kernel translates only the first packet of a connection by rules. A UDP client that keeps its port would therefore
send to an endpoint that is gone for as long as it sends. The whole table is compared with the desired destinations, so
that nothing depends on the order of events or on what happened while the agent was away.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, NamedTuple

from setpoint.meta.clock import Clock
from setpoint.node.host.network.host_ports import HostPort
from setpoint.node.host.network.service_rules import MARK
from setpoint.node.host.network.services import Endpoint, ServicePort
from setpoint.tasks import within

log = logging.getLogger("setpoint.node.network")

_TIMEOUT: Final = 30.0
_CHUNK: Final = 65536
_MAX_ENTRIES: Final = 500_000
"""The maximum number of connections that one comparison reads."""
_MAX_DELETIONS: Final = 200
"""The maximum number of deletions of one comparison; the next one continues."""
_FIELD = re.compile(r"\b(src|dst|sport|dport|mark)=(\S+)")
_NO_SUCH_ENTRY: Final = "0 flow entries"


class ConntrackError(Exception):
    """The program that reads connection tracking failed."""


class Connection(NamedTuple):
    """A UDP connection: the destination that the client sends to, and where its packets go."""

    destination: Endpoint
    target: Endpoint
    has_client_address: bool
    """Whether the target sees the address of the client."""
    marked: bool
    """Whether a rule of the node's table translated it."""


@dataclass(slots=True)
class UdpDestinations:
    """The desired targets of UDP traffic."""

    addresses: dict[Endpoint, set[Endpoint]] = field(default_factory=dict)
    """The targets by address and port of a Service, or by address and port of the host."""
    ports: dict[tuple[int, int], set[Endpoint]] = field(default_factory=dict)
    """The targets by address family and port, for all addresses of the node."""

    def add_service(self, port: ServicePort) -> None:
        if port.protocol != "udp":
            return
        targets = {*port.cluster, *port.local}
        for address in (port.cluster_ip, *port.external_ips):
            self.addresses.setdefault(Endpoint(address, port.port), set()).update(targets)
        if port.node_port:
            self.ports.setdefault((port.family, port.node_port), set()).update(targets)

    def add_host_port(self, port: HostPort) -> None:
        if port.protocol != "udp":
            return
        if port.host_ip:
            self.addresses.setdefault(Endpoint(port.host_ip, port.port), set()).add(port.target)
        else:
            self.ports.setdefault((port.family, port.port), set()).add(port.target)

    def is_stale(self, connection: Connection) -> bool:
        """Return whether a new packet of the connection would go elsewhere."""
        destination = connection.destination
        targets = self.addresses.get(destination)
        if targets is None:
            targets = self.ports.get((ip_address(destination.address).version, destination.port))
        if connection.marked:
            return connection.target not in (targets or ())
        # A connection that began before the destination had a target is not translated.
        return bool(targets) and connection.target == destination and connection.has_client_address


def parse_connection(line: str) -> Connection | None:
    """Return the connection of a line of `conntrack -L`, or None if the line has another form."""
    found = _FIELD.findall(line)
    names = [name for name, _ in found]
    if names[:8] != ["src", "dst", "sport", "dport"] * 2:
        return None
    values = [value for _, value in found]
    try:
        mark = int(values[8]) if names[8:9] == ["mark"] else 0
        return Connection(
            Endpoint(_canonical(values[1]), int(values[3])),
            Endpoint(_canonical(values[4]), int(values[6])),
            values[0] == values[5],
            bool(mark & MARK),
        )
    except ValueError:
        return None


def _canonical(address: str) -> str:
    return address if ":" not in address else str(ip_address(address))


class ConntrackCleaner:
    """Compares the connections of the kernel with the desired destinations."""

    def __init__(self, clock: Clock, program: str = "conntrack") -> None:
        self._clock = clock
        self._program = program
        self.deleted = 0
        """The number of destinations and targets whose connections were deleted."""

    async def clean(self, desired: UdpDestinations) -> bool:
        """Delete stale connections. Return whether there may be more of them. Raise ConntrackError."""
        stale: set[Connection] = set()
        for family in ("ipv4", "ipv6"):
            count = 0
            async with aclosing(self._list(family)) as connections:
                async for connection in connections:
                    if desired.is_stale(connection):
                        stale.add(connection)
                    count += 1
                    if count >= _MAX_ENTRIES or len(stale) >= _MAX_DELETIONS:
                        break
        for connection in sorted(stale):
            await self._delete(connection)
        self.deleted += len(stale)
        return len(stale) >= _MAX_DELETIONS

    async def _list(self, family: str) -> AsyncGenerator[Connection, None]:
        process = await self._start("-L", "-p", "udp", "-f", family)
        assert process.stdout is not None
        try:
            rest = b""
            while chunk := await within(self._clock, _TIMEOUT, process.stdout.read(_CHUNK)):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if (found := parse_connection(line.decode(errors="replace"))) is not None:
                        yield found
        except TimeoutError:
            raise ConntrackError(f"{self._program} takes longer than {_TIMEOUT:.0f} seconds") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _delete(self, connection: Connection) -> None:
        destination, target = connection.destination, connection.target
        process = await self._start(
            *("-D", "-p", "udp", "-f", f"ipv{ip_address(destination.address).version}"),
            *("--orig-dst", destination.address, "--orig-port-dst", str(destination.port)),
            *("--reply-src", target.address, "--reply-port-src", str(target.port)),
        )
        try:
            _, errors = await within(self._clock, _TIMEOUT, process.communicate())
        except TimeoutError:
            raise ConntrackError(f"{self._program} takes longer than {_TIMEOUT:.0f} seconds") from None
        finally:
            if process.returncode is None:
                process.kill()
        message = errors.decode(errors="replace").strip()
        if process.returncode and _NO_SUCH_ENTRY not in message:
            raise ConntrackError(message or f"{self._program} exited with code {process.returncode}")

    async def _start(self, *arguments: str) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                self._program,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE if arguments[0] == "-D" else asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            raise ConntrackError(f"cannot run {self._program}: {error.strerror}") from error


def destinations(services: Iterable[Iterable[ServicePort]], ports: Iterable[Iterable[HostPort]]) -> UdpDestinations:
    """Return the desired targets of UDP traffic."""
    found = UdpDestinations()
    for service in services:
        for service_port in service:
            found.add_service(service_port)
    for pod in ports:
        for host_port in pod:
            found.add_host_port(host_port)
    return found
