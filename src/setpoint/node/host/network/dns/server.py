"""Serves DNS over UDP and TCP."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol, cast

from setpoint.meta.clock import Clock
from setpoint.node.host.network.dns.message import (
    FORMERR,
    MAX_MESSAGE,
    MAX_UDP,
    MIN_UDP,
    OPCODE_MASK,
    RECURSION_DESIRED,
    RESPONSE,
    SERVFAIL,
    DnsFormatError,
    Message,
    parse_message,
    reply,
    write_message,
)
from setpoint.tasks import TaskRegistry

log = logging.getLogger("setpoint.node.dns")

_MAX_QUERY: Final = 4096
"""The size of a query that is read."""
_MAX_QUERY_RECORDS: Final = 16
_BATCH: Final = 64
"""Queries that are answered before other work of the event loop runs."""
_BATCH_SECONDS: Final = 0.005
"""Seconds after which other work of the event loop runs, if queries are expensive."""
_PORT_ATTEMPTS: Final = 16
_SWEEP_PERIOD: Final = 1.0
_HEADER: Final = Struct("!2H")
_LENGTH: Final = Struct("!H")
# The constants of Linux; the module `socket` of Python 3.11 has them for IPv6 only.
_IP_PKTINFO: Final = 8
_PKTINFO4: Final = Struct("=I4s4s")
_PKTINFO6: Final = Struct("=16sI")
_ANCILLARY: Final = 64


class Resolver(Protocol):
    def answer(self, query: Message) -> Message | Awaitable[Message]:
        """Return the answer to a query that was parsed, or an awaitable for one that takes time."""
        ...


@dataclass(frozen=True, slots=True)
class ServerLimits:
    max_pending: int = 1000
    """Queries that may wait for other name servers; further ones are answered with SERVFAIL."""
    max_connections: int = 256
    """TCP connections at the same time; further ones are closed."""
    max_pipelined: int = 32
    """Unanswered queries of one TCP connection, from which on nothing more is read from it."""
    idle_timeout: float = 10.0
    """Seconds after which a TCP connection is closed on which nothing was received or sent."""


class ListenAddress(NamedTuple):
    address: str
    port: int


class DnsServer:
    """Listens at one port of several addresses. Queries from networks that are not permitted are dropped."""

    def __init__(
        self,
        resolver: Resolver,
        clock: Clock,
        limits: ServerLimits | None = None,
        networks: Sequence[IPv4Network | IPv6Network] = (),
    ) -> None:
        """Create a server for clients in the networks; no network means that all clients are served."""
        self._resolver = resolver
        self._clock = clock
        self._limits = limits or ServerLimits()
        self._networks = tuple(networks)
        self._tasks = TaskRegistry()
        self._datagrams: list[_DatagramSocket] = []
        self._servers: list[asyncio.Server] = []
        self._connections: set[_Connection] = set()
        self.addresses: tuple[ListenAddress, ...] = ()
        """The addresses at which the server listens; empty while it does not."""
        self.queries = 0
        """The number of queries that were received."""

    # -- life cycle ----------------------------------------------------------------------------------------------------

    async def start(self, addresses: Sequence[str], port: int) -> None:
        """Listen at the addresses; port 0 means a free one, the same for all. Raises OSError."""
        for attempt in range(_PORT_ATTEMPTS):
            try:
                await self._listen(addresses, port)
                return
            except OSError as error:
                await self.stop()
                # The kernel chose a port that is free for UDP at the first address, but not elsewhere.
                if port or error.errno != errno.EADDRINUSE or attempt == _PORT_ATTEMPTS - 1:
                    raise

    async def _listen(self, addresses: Sequence[str], port: int) -> None:
        loop = asyncio.get_running_loop()
        found = []
        for address in addresses:
            try:
                datagrams = _DatagramSocket(address, port, self._datagram_received, self._clock)
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT and len(addresses) > 1:
                    continue  # a machine without IPv6
                raise
            self._datagrams.append(datagrams)
            port = datagrams.port
            server = await loop.create_server(lambda: _Connection(self), address, port, backlog=128)
            self._servers.append(server)
            found.append(ListenAddress(address, port))
        for datagrams in self._datagrams:
            datagrams.start(loop)
        self.addresses = tuple(found)

    async def stop(self) -> None:
        self.addresses = ()
        for datagrams in self._datagrams:
            datagrams.close()
        for server in self._servers:
            server.close()
        for connection in tuple(self._connections):
            connection.abort()
        self._datagrams.clear()
        self._servers.clear()
        await self._tasks.stop()

    async def run(self) -> None:
        """Close idle connections until cancelled, and then stop the server."""
        try:
            while True:
                await self._clock.sleep(_SWEEP_PERIOD)
                oldest = self._clock.monotonic() - self._limits.idle_timeout
                for connection in tuple(self._connections):
                    if connection.active_at <= oldest:
                        connection.abort()
        finally:
            await self.stop()

    # -- queries -------------------------------------------------------------------------------------------------------

    def is_permitted(self, client: str) -> bool:
        """Return whether queries of a client are answered, so that the server is of no use for others."""
        if not self._networks:
            return True
        address = ip_address(client.partition("%")[0])
        if address.version == 6 and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    def _datagram_received(self, data: bytes, client: str, send: Callable[[bytes], None]) -> None:
        if self.is_permitted(client):
            self.handle(data, over_tcp=False, send=send)

    def handle(self, data: bytes, *, over_tcp: bool, send: Callable[[bytes], None]) -> bool:
        """Answer a query, at once or later, by one call of `send`. Return False, and send nothing, if it is none."""
        if len(data) < 12 or data[2] & 0x80:
            return False
        self.queries += 1
        try:
            query = parse_message(data, _MAX_QUERY_RECORDS)
        except DnsFormatError:
            number, flags = _HEADER.unpack_from(data)
            send(write_message(Message(number, RESPONSE | flags & (OPCODE_MASK | RECURSION_DESIRED) | FORMERR)))
            return True
        limit = MAX_MESSAGE if over_tcp else _udp_limit(query)
        answer = self._resolver.answer(query)
        if isinstance(answer, Message):
            send(_encoded(query, answer, limit))
        elif len(self._tasks) >= self._limits.max_pending:
            if asyncio.iscoroutine(answer):
                answer.close()
            send(_encoded(query, reply(query, SERVFAIL), limit))
        else:
            self._tasks.start(self._answer_later(query, answer, limit, send))
        return True

    async def _answer_later(
        self, query: Message, answer: Awaitable[Message], limit: int, send: Callable[[bytes], None]
    ) -> None:
        send(_encoded(query, await answer, limit))

    # -- connections ---------------------------------------------------------------------------------------------------

    def connected(self, connection: _Connection, client: str) -> bool:
        """Return whether a new connection is served."""
        if len(self._connections) >= self._limits.max_connections or not self.is_permitted(client):
            return False
        self._connections.add(connection)
        return True

    def disconnected(self, connection: _Connection) -> None:
        self._connections.discard(connection)

    @property
    def limits(self) -> ServerLimits:
        return self._limits

    def now(self) -> float:
        return self._clock.monotonic()


def _udp_limit(query: Message) -> int:
    return MIN_UDP if query.edns is None else min(max(query.edns.udp_size, MIN_UDP), MAX_UDP)


def _encoded(query: Message, answer: Message, limit: int) -> bytes:
    try:
        return write_message(answer, limit)
    except DnsFormatError as error:
        log.warning("an answer cannot be sent: %s", error)
        return write_message(reply(query, SERVFAIL), limit)


class _DatagramSocket:
    """A UDP socket that answers from the address at which a query arrived, also if it listens at all addresses.

    It reads many datagrams for each wake-up of the event loop, which asyncio's transports do not."""

    def __init__(
        self, address: str, port: int, received: Callable[[bytes, str, Callable[[bytes], None]], None], clock: Clock
    ) -> None:
        """Bind the socket. Raises OSError."""
        version = ip_address(address.partition("%")[0]).version
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        self._received = received
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            if family == socket.AF_INET6:
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if sys.platform == "linux":
                if family == socket.AF_INET:
                    self._socket.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
                else:
                    self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            self._socket.bind((address, port))
        except BaseException:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        loop.add_reader(self._socket, self._readable)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._socket)
        self._socket.close()

    def _readable(self) -> None:
        end = self._clock.monotonic() + _BATCH_SECONDS
        for _ in range(_BATCH):
            if self._clock.monotonic() > end:
                return
            try:
                data, ancillary, flags, client = self._socket.recvmsg(_MAX_QUERY, _ANCILLARY)
            except BlockingIOError:
                return
            except OSError:
                continue  # an error of an earlier answer
            if not flags & socket.MSG_TRUNC:
                source = [(level, kind, _source(kind, info)) for level, kind, info in ancillary]
                self._received(data, client[0], _Sender(self._socket, source, client))


class _Sender:
    """Sends one answer. An answer that does not fit into the socket's buffer is lost; clients repeat their queries."""

    __slots__ = ("_client", "_socket", "_source")

    def __init__(self, sock: socket.socket, source: list[tuple[int, int, bytes]], client: Any) -> None:
        self._socket, self._source, self._client = sock, source, client

    def __call__(self, data: bytes) -> None:
        try:
            self._socket.sendmsg((data,), self._source, 0, self._client)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EBADF):
                log.debug("cannot answer a query: %s", error)


def _source(kind: int, info: bytes) -> bytes:
    """Return the ancillary data that makes the kernel send from the address at which a datagram arrived."""
    if kind == _IP_PKTINFO:
        _, local, _ = _PKTINFO4.unpack(info)
        return _PKTINFO4.pack(0, local, b"\0" * 4)
    return info


class _Connection(asyncio.Protocol):
    """A TCP connection of a client: messages behind their lengths in two octets."""

    def __init__(self, server: DnsServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._pending = 0
        """Queries that are not answered yet."""
        self._blocked = False
        """Whether the client does not read its answers."""
        self._ended = False
        """Whether the client has sent its last query."""
        self._scheduled = False
        """Whether the queries in the buffer will be read in the next iteration of the event loop."""
        self.active_at = server.now()
        """When something was received or sent last, on the monotonic clock."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if not peer or not self._server.connected(self, peer[0]):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.disconnected(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
            self._server.disconnected(self)

    def pause_writing(self) -> None:
        self._blocked = True
        self._update_reading()

    def resume_writing(self) -> None:
        self._blocked = False
        self.active_at = self._server.now()
        self._read_queries()

    def eof_received(self) -> bool:
        self._ended = True
        return self._pending > 0  # the answers are still to be sent

    def data_received(self, data: bytes) -> None:
        self.active_at = self._server.now()
        self._buffer += data
        self._read_queries()

    def _read_queries(self) -> None:
        """Answer the queries that were received, in bounded steps between which other work of the event loop runs."""
        self._scheduled = False
        end = self._server.now() + _BATCH_SECONDS
        for _ in range(_BATCH):
            if self._server.now() > end:
                self._schedule()
                break
            if self._transport is None or not self._may_read() or len(self._buffer) < 2:
                break
            size = _LENGTH.unpack_from(self._buffer)[0]
            if size > _MAX_QUERY:
                self.abort()
                return
            if len(self._buffer) < 2 + size:
                break
            query = bytes(self._buffer[2 : 2 + size])
            del self._buffer[: 2 + size]
            self._pending += 1
            if not self._server.handle(query, over_tcp=True, send=self._send):
                self.abort()
                return
        else:
            self._schedule()
        self._update_reading()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._read_queries)

    def _may_read(self) -> bool:
        return not self._blocked and self._pending < self._server.limits.max_pipelined

    def _update_reading(self) -> None:
        if self._transport is not None:
            if self._may_read() and not self._scheduled:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _send(self, answer: bytes) -> None:
        resumes = not self._may_read()
        self._pending -= 1
        if self._transport is None:
            return
        self.active_at = self._server.now()
        self._transport.write(_LENGTH.pack(len(answer)) + answer)
        if resumes:
            self._schedule()
        elif self._ended and not self._pending and not self._buffer:
            self._transport.close()
