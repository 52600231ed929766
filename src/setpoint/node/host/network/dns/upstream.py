"""Forwards queries to the name servers of the machine, and caches their answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, cast

from setpoint.meta.clock import Clock
from setpoint.node.host.network.dns.cache import AnswerCache, CacheKey
from setpoint.node.host.network.dns.message import (
    FORMERR,
    HINFO,
    MAX_UDP,
    NOERROR,
    NOTIMP,
    NXDOMAIN,
    RECURSION_DESIRED,
    RESPONSE,
    TRUNCATED,
    DnsFormatError,
    Edns,
    Message,
    Name,
    Question,
    lower,
    parse_message,
    write_message,
)
from setpoint.tasks import TaskRegistry, within

log = logging.getLogger("setpoint.node.dns")

RESOLV_CONF: Final = Path("/etc/resolv.conf")
SYSTEMD_RESOLV_CONF: Final = Path("/run/systemd/resolve/resolv.conf")
"""The name servers that systemd-resolved uses itself."""
_SYSTEMD_STUBS: Final = frozenset(("127.0.0.53", "127.0.0.54"))
_MAX_SERVERS: Final = 8
_TRY_TIMEOUT: Final = 1.5
_TOTAL_TIMEOUT: Final = 4.5
"""Seconds until a query is given up, which is before the usual client does."""
_FIRST_PENALTY, _LAST_PENALTY = 5.0, 60.0
"""Seconds for which a name server that did not answer is asked last; they double with each further failure."""
_MAX_IN_FLIGHT: Final = 1000
_PROBE_DOMAIN: Final = (b"loop-check", b"setpoint", b"invalid")
_LENGTH: Final = Struct("!H")


class UpstreamError(Exception):
    """No name server answered, or too many queries are being forwarded."""


class NameServer(NamedTuple):
    address: str
    port: int = 53


def parse_name_servers(text: str) -> list[str]:
    """Return the addresses of the name servers in a file resolv.conf; lines that are not understood are ignored."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[0] == "nameserver":
            with suppress(ValueError):
                ip_address(fields[1])
                found[fields[1]] = None
    return list(found)


def read_name_servers(
    excluded: Collection[str], resolv_conf: Path = RESOLV_CONF, systemd: Path = SYSTEMD_RESOLV_CONF
) -> list[NameServer]:
    """Return the name servers of the machine except for the excluded addresses: those of the cluster's DNS, at which
    queries would arrive here again. Instead of the local stub of systemd-resolved, its own name servers are returned.
    This reads files."""
    servers = _read(resolv_conf)
    if servers and _SYSTEMD_STUBS.issuperset(servers):
        servers = _read(systemd) or servers
    kept = [server for server in servers if server not in excluded and not ip_address(server).is_unspecified]
    return [NameServer(server) for server in kept[:_MAX_SERVERS]]


def _read(path: Path) -> list[str]:
    try:
        return parse_name_servers(path.read_text(errors="replace"))
    except OSError:
        return []


class _Penalty(NamedTuple):
    until: float
    seconds: float


class Forwarder:
    """Resolves names by asking other name servers. Equal queries at the same time are sent once."""

    def __init__(
        self,
        servers: Iterable[NameServer],
        clock: Clock,
        random: Callable[[int], bytes],
        *,
        max_in_flight: int = _MAX_IN_FLIGHT,
        cache: AnswerCache | None = None,
    ) -> None:
        """Create a forwarder. `random` returns unpredictable octets, for the ids of queries. Source ports are chosen
        unpredictably by the kernel, for each query anew."""
        self.servers = tuple(servers)
        self.cache = cache or AnswerCache(clock)
        self._clock = clock
        self._random = random
        self._max_in_flight = max_in_flight
        self._in_flight: dict[CacheKey, asyncio.Task[Message | None]] = {}
        self._tasks = TaskRegistry()
        self._penalties: dict[NameServer, _Penalty] = {}
        self._looping: set[NameServer] = set()
        """Name servers that send queries back to this one."""
        self._probes: dict[bytes, NameServer] = {}
        """The name servers that are being checked for loops, by the first label of the query."""

    def update(self, servers: Iterable[NameServer]) -> None:
        """Use other name servers from now on."""
        self.servers = tuple(servers)
        self._penalties.clear()
        self._looping.clear()
        self.cache.clear()

    async def stop(self) -> None:
        await self._tasks.stop()

    # -- queries -------------------------------------------------------------------------------------------------------

    def cached(self, question: Question) -> Message | None:
        return self.cache.get((lower(question.name), question.type))

    async def resolve(self, question: Question) -> Message:
        """Return the answer of a name server. Raises UpstreamError."""
        key = lower(question.name), question.type
        found = self.cache.get(key)
        if found is not None:
            return found
        task = self._in_flight.get(key)
        if task is None:
            if len(self._in_flight) >= self._max_in_flight:
                raise UpstreamError("too many queries are being forwarded")
            task = self._in_flight[key] = self._tasks.start(self._resolve(key))
            task.add_done_callback(lambda done: self._in_flight.pop(key, None))
        # Others may wait for the same answer.
        result = await asyncio.shield(task)
        if result is None:
            raise UpstreamError("no name server answered")
        return result

    async def _resolve(self, key: CacheKey) -> Message | None:
        """Return an answer; None, which unlike an exception need not be retrieved, if there is none."""
        deadline = self._clock.monotonic() + _TOTAL_TIMEOUT
        failure: tuple[Message, int] | None = None
        for server in self._candidates() * 2:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                break
            try:
                answer, size = await within(self._clock, min(left, _TRY_TIMEOUT), self._ask(server, Question(*key)))
            except (OSError, DnsFormatError) as error:  # TimeoutError is an OSError
                self._failed(server, error)
                continue
            self._penalties.pop(server, None)
            if answer.rcode in (NOERROR, NXDOMAIN):
                return self.cache.put(key, answer, size)
            failure = answer, size
        return self.cache.put(key, *failure) if failure is not None else None

    def _candidates(self) -> list[NameServer]:
        """Return the name servers to ask, in this order."""
        now = self._clock.monotonic()

        def is_penalized(server: NameServer) -> bool:
            found = self._penalties.get(server)
            return found is not None and found.until > now

        return sorted((server for server in self.servers if server not in self._looping), key=is_penalized)

    def _failed(self, server: NameServer, error: Exception) -> None:
        before = self._penalties.get(server)
        if before is None:
            log.warning("the name server %s did not answer: %s", server.address, error or "timeout")
        seconds = min(before.seconds * 2, _LAST_PENALTY) if before is not None else _FIRST_PENALTY
        self._penalties[server] = _Penalty(self._clock.monotonic() + seconds, seconds)

    # -- loops ---------------------------------------------------------------------------------------------------------

    async def check_loops(self) -> None:
        """Find name servers that send queries back to this one, and exclude them: ask each for a unique name, and watch
        for the arrival of the query (`is_probe`)."""
        for server in self.servers:
            label = self._random(16).hex().encode()
            self._probes[label] = server
            try:
                question = Question((label, *_PROBE_DOMAIN), HINFO)
                await within(self._clock, _TRY_TIMEOUT, self._ask(server, question))
            except (OSError, DnsFormatError):
                pass  # a server that does not answer is not in a loop
            finally:
                del self._probes[label]

    def is_probe(self, name: Name) -> bool:
        """Return whether a query of `check_loops` has arrived, and exclude the name server that sent it back."""
        if name[1:] != _PROBE_DOMAIN:
            return False
        server = self._probes.get(name[0])
        if server is not None and server not in self._looping:
            self._looping.add(server)
            log.error("the name server %s sends queries back to this node; it is not used", server.address)
        return True

    # -- exchange ------------------------------------------------------------------------------------------------------

    async def _ask(self, server: NameServer, question: Question) -> tuple[Message, int]:
        """Return an answer and its size. Raises OSError or DnsFormatError."""
        edns: Edns | None = Edns(MAX_UDP)
        answer, size = await self._exchange(server, question, edns, over_tcp=False)
        if answer.rcode in (FORMERR, NOTIMP) and answer.edns is None:
            edns = None  # the server does not know EDNS
            answer, size = await self._exchange(server, question, edns, over_tcp=False)
        if answer.flags & TRUNCATED:
            answer, size = await self._exchange(server, question, edns, over_tcp=True)
        answer.edns = None
        return answer, size

    async def _exchange(
        self, server: NameServer, question: Question, edns: Edns | None, *, over_tcp: bool
    ) -> tuple[Message, int]:
        number = int.from_bytes(self._random(2))
        query = write_message(Message(number, RECURSION_DESIRED, (question,), edns=edns))
        loop = asyncio.get_running_loop()
        expected = _Expected(number, question, loop.create_future())
        transport: asyncio.BaseTransport
        if over_tcp:
            transport, stream = await loop.create_connection(lambda: _Stream(expected), *server)
            stream.send(query)
        else:
            transport, datagrams = await loop.create_datagram_endpoint(
                lambda: _Datagrams(expected), remote_addr=(server.address, server.port)
            )
            datagrams.send(query)
        try:
            return await expected.received
        finally:
            transport.close()


class _Expected(NamedTuple):
    """The answer that a query waits for. Other messages are ignored: they may be forged."""

    id: int
    question: Question
    received: asyncio.Future[tuple[Message, int]]

    def offer(self, data: bytes) -> None:
        if self.received.done() or int.from_bytes(data[:2]) != self.id:
            return
        try:
            message = parse_message(data)
        except DnsFormatError as error:
            self.fail(error)
            return
        if not message.flags & RESPONSE or (message.questions and not _same(message.questions, self.question)):
            return
        if not message.questions:
            # Servers that cannot parse a query return its header alone.
            if message.rcode in (NOERROR, NXDOMAIN):
                return
            message.questions = (self.question,)
        self.received.set_result((message, len(data)))

    def fail(self, error: Exception) -> None:
        if not self.received.done():
            self.received.set_exception(error)


def _same(questions: Sequence[Question], expected: Question) -> bool:
    found = questions[0]
    return len(questions) == 1 and found[1:] == expected[1:] and lower(found.name) == lower(expected.name)


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, expected: _Expected) -> None:
        self._expected = expected
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def send(self, query: bytes) -> None:
        assert self._transport is not None
        self._transport.sendto(query)

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._expected.offer(data)

    def error_received(self, exc: Exception) -> None:
        self._expected.fail(exc)


class _Stream(asyncio.Protocol):
    def __init__(self, expected: _Expected) -> None:
        self._expected = expected
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, query: bytes) -> None:
        assert self._transport is not None
        self._transport.write(_LENGTH.pack(len(query)) + query)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) >= 2:
            end = 2 + _LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) >= end:
                self._expected.offer(bytes(self._buffer[2:end]))
                assert self._transport is not None
                self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expected.fail(exc or ConnectionResetError("the connection was closed before the answer"))
