"""The server: sizes and truncation, limits on clients, and messages that are not queries."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address, ip_network
from typing import Any

import dns.asyncquery
import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdataclass
import pytest
from dns_client import look_up
from dns_objects import endpoint, endpoint_slice, example_zone, headless
from hypothesis import given
from hypothesis import strategies as st
from stopped_clock import StoppedClock, settle

from setpoint.node.host.network.dns.message import A, Message, Record, parse_message, reply
from setpoint.node.host.network.dns.resolver import ClusterResolver
from setpoint.node.host.network.dns.server import DnsServer, Resolver, ServerLimits
from setpoint.node.host.network.dns.upstream import Forwarder

WEB = "web.shop.svc.cluster.local"


class WaitingResolver:
    """Answers when the test permits it."""

    def __init__(self) -> None:
        self.permitted = asyncio.Event()
        self.waiting = 0

    def answer(self, query: Message) -> Awaitable[Message]:
        return self._answer(query)

    async def _answer(self, query: Message) -> Message:
        self.waiting += 1
        await self.permitted.wait()
        return reply(query, 0)


async def eventually(condition: Callable[[], bool]) -> None:
    """Let the event loop run until the condition is true."""
    async with asyncio.timeout(10):
        while True:
            await asyncio.sleep(0)
            if condition():
                return


def zone_resolver(clock: StoppedClock, synced: Callable[[], bool] = lambda: True) -> ClusterResolver:
    return ClusterResolver(example_zone(), Forwarder((), clock, bytes), synced)


@asynccontextmanager
async def serving(
    resolver: Resolver, clock: StoppedClock, addresses: tuple[str, ...] = ("127.0.0.1",), **options: Any
) -> AsyncIterator[DnsServer]:
    server = DnsServer(resolver, clock, **options)
    await server.start(addresses, 0)
    sweeping = asyncio.get_running_loop().create_task(server.run())
    try:
        yield server
    finally:
        sweeping.cancel()
        await asyncio.wait([sweeping])


class ManyAddresses:
    def __init__(self, count: int) -> None:
        self.count = count

    def answer(self, query: Message) -> Message:
        answer = reply(query, 0)
        name = query.questions[0].name
        answer.answers = [Record(name, A, 5, (ip_address(0x0A000000 + at).packed,)) for at in range(self.count)]
        return answer


async def query(server: DnsServer, message: dns.message.Message, *, tcp: bool = False) -> dns.message.Message:
    address, port = server.addresses[0]
    send = dns.asyncquery.tcp if tcp else dns.asyncquery.udp
    return await send(message, address, port=port, timeout=5.0)


# -- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edns", "records"),
    [
        (None, (512 - 12 - 18) // 16),
        (100, (512 - 12 - 18 - 11) // 16),
        (1000, (1000 - 41) // 16),
        (65535, (1232 - 41) // 16),
    ],
)
async def test_answers_over_udp_are_truncated(edns: int | None, records: int) -> None:
    async with serving(ManyAddresses(500), StoppedClock()) as server:
        address, port = server.addresses[0]
        found = await look_up("x.cluster.org", "A", address, port, edns=edns)
        assert len(found.answers) == pytest.approx(records, abs=1) and "TC" in found.flags
        assert found.additional == ()
        whole = await look_up("x.cluster.org", "A", address, port, edns=edns, tcp=True)
        assert len(whole.answers) == 500 and "TC" not in whole.flags


async def test_a_large_headless_service_is_truncated_and_complete_over_tcp() -> None:
    zone, clock = example_zone(), StoppedClock()
    zone.service_changed(None, headless("big"))
    for at in range(3):
        ends = [endpoint(f"10.1.{at}.{n}") for n in range(100)]
        zone.slice_changed(None, endpoint_slice("big", *ends, suffix=str(at)))
    async with serving(ClusterResolver(zone, Forwarder((), clock, bytes), lambda: True), clock) as server:
        address, port = server.addresses[0]
        found = await look_up("big.shop.svc.cluster.local", "A", address, port)
        assert "TC" in found.flags and 20 < len(found.answers) < 32
        # An independent client repeats the query by itself.
        message = dns.message.make_query("big.shop.svc.cluster.local", "A")
        answer, over_tcp = await dns.asyncquery.udp_with_fallback(message, address, port=port, timeout=5.0)
        assert over_tcp and len(answer.answer[0]) == 300


async def test_additional_records_are_left_out_without_a_mark() -> None:
    zone, clock = example_zone(), StoppedClock()
    zone.service_changed(None, headless("srv"))
    ends = [endpoint(f"10.1.0.{n}", hostname=f"h{n}") for n in range(9)]
    zone.slice_changed(None, endpoint_slice("srv", *ends, ports=[{"name": "http", "port": 80, "protocol": "TCP"}]))
    async with serving(ClusterResolver(zone, Forwarder((), clock, bytes), lambda: True), clock) as server:
        address, port = server.addresses[0]
        found = await look_up("_http._tcp.srv.shop.svc.cluster.local", "SRV", address, port, edns=600)
        assert len(found.answers) == 9 and len(found.additional) < 9 and "TC" not in found.flags


# -- messages ---------------------------------------------------------------------------------------------------------


async def test_edns_is_answered_with_edns() -> None:
    clock = StoppedClock()
    async with serving(zone_resolver(clock), clock) as server:
        asked = dns.message.make_query(WEB, "A", use_edns=0, payload=4096)
        assert (await query(server, asked)).payload == 1232
        assert (await query(server, dns.message.make_query(WEB, "A"))).edns == -1
        asked = dns.message.make_query(WEB, "A", use_edns=1)
        answer = await query(server, asked)
        assert answer.rcode() == dns.rcode.BADVERS and answer.edns == 0


@pytest.mark.parametrize(
    ("change", "rcode"),
    [
        (lambda message: message.set_opcode(dns.opcode.NOTIFY), "NOTIMP"),
        (lambda message: message.set_opcode(dns.opcode.UPDATE), "NOTIMP"),
        (lambda message: message.question.clear(), "FORMERR"),
        (lambda message: message.question.append(message.question[0]), "FORMERR"),
        (lambda message: setattr(message.question[0], "rdclass", dns.rdataclass.CHAOS), "REFUSED"),
        (lambda message: setattr(message.question[0], "rdtype", 252), "REFUSED"),
        (lambda message: setattr(message.question[0], "rdtype", 251), "REFUSED"),
    ],
)
async def test_queries_that_are_not_answered(change: Callable[[Any], None], rcode: str) -> None:
    clock = StoppedClock()
    async with serving(zone_resolver(clock), clock) as server:
        message = dns.message.make_query(WEB, "A", id=77)
        change(message)
        for tcp in (False, True):
            found = await raw_exchange(server, message.to_wire(), tcp=tcp)
            assert found.id == 77 and dns.rcode.to_text(dns.rcode.Rcode(found.rcode)) == rcode


async def raw_exchange(server: DnsServer, data: bytes, *, tcp: bool) -> Message:
    """Send octets and return the answer."""
    loop, (address, port) = asyncio.get_running_loop(), server.addresses[0]
    with socket.socket(type=socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        await loop.sock_connect(client, (address, port))
        await loop.sock_sendall(client, len(data).to_bytes(2) + data if tcp else data)
        async with asyncio.timeout(5):
            received = await loop.sock_recv(client, 65536)
    return parse_message(received[2:] if tcp else received)


async def test_malformed_queries_are_answered_with_formerr() -> None:
    clock = StoppedClock()
    async with serving(zone_resolver(clock), clock) as server:
        for tcp in (False, True):
            found = await raw_exchange(server, bytes((0, 77, 1, 0, 0, 1)) + bytes(6) + b"\xc0\x0c\0\1\0\1", tcp=tcp)
            assert (found.id, found.rcode, found.questions) == (77, 1, [])


async def test_answers_and_fragments_are_ignored() -> None:
    """A server that answers answers could be made to exchange messages with another one for ever."""
    clock = StoppedClock()
    sent: list[bytes] = []
    server = DnsServer(zone_resolver(clock), clock)
    for data in (b"", b"\0\1", bytes(11), bytes((0, 77, 0x80, 0)) + bytes(8)):
        assert not server.handle(data, over_tcp=False, send=sent.append)
    assert sent == []


ZONE_SERVER = DnsServer(zone_resolver(StoppedClock()), StoppedClock(), ServerLimits(max_pending=0))
"""A server that answers with SERVFAIL what other name servers would have to answer."""
NAMES = ["web.shop.svc.cluster.local", "db.shop.svc.cluster.local", "20.0.96.10.in-addr.arpa", "cluster.local"]


@given(st.sampled_from(NAMES), st.integers(0, 260), st.data())
def test_every_query_gets_one_answer(name: str, kind: int, draw: st.DataObject) -> None:
    """A query with damage anywhere, except that it stays a query: its answer is valid and not too long."""
    query = dns.message.make_query(name, kind, use_edns=draw.draw(st.sampled_from([None, 0])))  # type: ignore[arg-type]
    data = bytearray(query.to_wire())
    for _ in range(draw.draw(st.integers(0, 4))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    data[2] &= 0x7F
    sent: list[bytes] = []
    assert ZONE_SERVER.handle(bytes(data), over_tcp=False, send=sent.append)
    assert len(sent) == 1 and len(sent[0]) <= 1232 and sent[0][:2] == bytes(data[:2])
    parse_message(sent[0])


async def test_the_server_survives_noise() -> None:
    clock = StoppedClock()
    async with serving(zone_resolver(clock), clock) as server:
        address, port = server.addresses[0]
        with socket.socket(type=socket.SOCK_DGRAM) as client:
            client.connect((address, port))
            for size in (0, 1, 11, 12, 13, 100, 512, 5000):
                client.send(bytes((1,)) * size)
        for noise in (
            b"\0",
            b"\xff\xff" + bytes(100),
            b"\0\0",
            b"\0\4abcd",
            b"\0\x0c" + bytes((0, 1, 0x80)) + bytes(9),
        ):
            with socket.create_connection((address, port)) as connection:
                connection.sendall(noise)
        assert (await look_up(WEB, "A", address, port)).data == ["10.96.0.20"]
        assert (await look_up(WEB, "A", address, port, tcp=True)).data == ["10.96.0.20"]


async def test_addresses_are_rotated() -> None:
    clock = StoppedClock()
    resolver = zone_resolver(clock)
    asked = dns.message.make_query("db.shop.svc.cluster.local", "A").to_wire()
    firsts = set()
    for _ in range(4):
        answer = resolver.answer(parse_message(asked))
        assert isinstance(answer, Message) and len(answer.answers) == 4
        firsts.add(answer.answers[0].data)
    assert len(firsts) == 4


async def test_names_of_the_cluster_fail_until_the_zone_is_complete() -> None:
    """NXDOMAIN would be believed; SERVFAIL is retried."""
    clock, synced = StoppedClock(), False
    async with serving(zone_resolver(clock, lambda: synced), clock) as server:
        address, port = server.addresses[0]
        for name in (WEB, "none.cluster.local"):
            assert (await look_up(name, "A", address, port)).rcode == "SERVFAIL"
        assert (await look_up("1.0.96.10.in-addr.arpa", "PTR", address, port)).rcode == "SERVFAIL"
        synced = True
        assert (await look_up(WEB, "A", address, port)).data == ["10.96.0.20"]
        assert (await look_up("none.cluster.local", "A", address, port)).rcode == "NXDOMAIN"


# -- limits -----------------------------------------------------------------------------------------------------------


async def test_pending_queries_are_bounded() -> None:
    resolver, clock = WaitingResolver(), StoppedClock()
    async with serving(resolver, clock, limits=ServerLimits(max_pending=3)) as server:
        address, port = server.addresses[0]
        async with asyncio.TaskGroup() as tasks:
            first = [tasks.create_task(look_up(f"n{at}.example", "A", address, port)) for at in range(3)]
            await eventually(lambda: resolver.waiting == 3)
            assert (await look_up("late.example", "A", address, port)).rcode == "SERVFAIL"
            assert resolver.waiting == 3
            resolver.permitted.set()
        assert [task.result().rcode for task in first] == ["NOERROR"] * 3


async def test_connections_are_bounded() -> None:
    clock = StoppedClock()
    async with serving(zone_resolver(clock), clock, limits=ServerLimits(max_connections=2)) as server:
        address, port = server.addresses[0]
        kept = [socket.create_connection((address, port)) for _ in range(2)]
        await settle()
        with pytest.raises((EOFError, ConnectionError)):
            await look_up(WEB, "A", address, port, tcp=True)
        kept.pop().close()
        await eventually(lambda: len(server._connections) < 2)
        assert (await look_up(WEB, "A", address, port, tcp=True)).data == ["10.96.0.20"]
        kept.pop().close()


async def test_idle_connections_are_closed() -> None:
    clock = StoppedClock()
    loop = asyncio.get_running_loop()
    async with serving(zone_resolver(clock), clock) as server:
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, server.addresses[0])
            await eventually(lambda: bool(server._connections))
            await clock.advance(9.5)
            message = dns.message.make_query(WEB, "A").to_wire()
            await loop.sock_sendall(client, len(message).to_bytes(2) + message)
            assert len(await loop.sock_recv(client, 1000)) > 40
            await clock.advance(9.0)
            assert server._connections
            await clock.advance(3.0)
            assert not server._connections
            with pytest.raises(ConnectionResetError):
                assert await loop.sock_recv(client, 1000) == b""
                raise ConnectionResetError


async def test_one_connection_carries_many_queries() -> None:
    """More than are read at once, and in pieces of any size."""
    clock = StoppedClock()
    loop = asyncio.get_running_loop()
    async with serving(zone_resolver(clock), clock) as server:
        messages = [dns.message.make_query(WEB, "A", id=at).to_wire() for at in range(1, 1001)]
        data = b"".join(len(each).to_bytes(2) + each for each in messages)
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, server.addresses[0])
            await loop.sock_sendall(client, data[:101])
            await asyncio.sleep(0)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(loop.sock_sendall(client, data[101:]))
                received, ids = b"", list[int]()
                async with asyncio.timeout(10):
                    while len(ids) < 1000:
                        received += await loop.sock_recv(client, 65536)
                        while len(received) >= 2 and len(received) >= (size := 2 + int.from_bytes(received[:2])):
                            ids.append(int.from_bytes(received[2:4]))
                            received = received[size:]
            assert ids == list(range(1, 1001))


async def test_a_connection_with_many_unanswered_queries_is_not_read() -> None:
    resolver, clock = WaitingResolver(), StoppedClock()
    loop = asyncio.get_running_loop()
    async with serving(resolver, clock, limits=ServerLimits(max_pipelined=4)) as server:
        message = dns.message.make_query("x.example", "A").to_wire()
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, server.addresses[0])
            await loop.sock_sendall(client, (len(message).to_bytes(2) + message) * 10)
            await eventually(lambda: resolver.waiting == 4)
            await settle()
            assert resolver.waiting == 4
            resolver.permitted.set()
            await eventually(lambda: resolver.waiting == 10)


async def test_a_client_that_ends_its_side_gets_its_answers() -> None:
    resolver, clock = WaitingResolver(), StoppedClock()
    loop = asyncio.get_running_loop()
    async with serving(resolver, clock) as server:
        message = dns.message.make_query("x.example", "A").to_wire()
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, server.addresses[0])
            await loop.sock_sendall(client, len(message).to_bytes(2) + message)
            client.shutdown(socket.SHUT_WR)
            await eventually(lambda: resolver.waiting == 1)
            await settle()
            resolver.permitted.set()
            async with asyncio.timeout(5):
                assert len(await loop.sock_recv(client, 1000)) > 12
                assert await loop.sock_recv(client, 1000) == b""


async def test_other_networks_are_not_answered() -> None:
    clock = StoppedClock()
    networks = [ip_network("10.244.0.0/16"), ip_network("127.0.0.1/32"), ip_network("fd00::/64")]
    server = DnsServer(zone_resolver(clock), clock, networks=networks)
    permitted = ["10.244.3.4", "127.0.0.1", "fd00::7", "::ffff:10.244.0.1"]
    refused = ["192.0.2.1", "127.0.0.2", "2001:db8::1", "fe80::1%eth0"]
    assert [each for each in permitted + refused if server.is_permitted(each)] == permitted
    async with serving(zone_resolver(clock), clock, networks=[ip_network("192.0.2.0/24")]) as closed:
        address, port = closed.addresses[0]
        with pytest.raises((EOFError, ConnectionError)):
            await look_up(WEB, "A", address, port, tcp=True)
        with pytest.raises(dns.exception.Timeout):
            await look_up(WEB, "A", address, port, timeout=0.05)


# -- addresses --------------------------------------------------------------------------------------------------------


async def test_one_port_at_several_addresses() -> None:
    clock = StoppedClock()
    async with serving(zone_resolver(clock), clock, ("127.0.0.1", "127.0.0.2", "::1")) as server:
        assert len({port for _, port in server.addresses}) == 1
        for address, port in server.addresses:
            for tcp in (False, True):
                assert (await look_up(WEB, "A", address, port, tcp=tcp)).data == ["10.96.0.20"]
    assert server.addresses == ()


@pytest.mark.parametrize(("wildcard", "asked"), [("0.0.0.0", "127.0.0.7"), ("::", "::1")])
async def test_the_answer_comes_from_the_address_of_the_query(wildcard: str, asked: str) -> None:
    """Clients ignore answers from other addresses, and so does the translation of addresses by the kernel."""
    clock = StoppedClock()
    async with serving(zone_resolver(clock), clock, (wildcard,)) as server:
        assert (await look_up(WEB, "A", asked, server.addresses[0].port)).data == ["10.96.0.20"]


async def test_a_port_in_use_is_an_error() -> None:
    clock = StoppedClock()
    async with serving(zone_resolver(clock), clock) as server:
        other = DnsServer(zone_resolver(clock), clock)
        with pytest.raises(OSError, match="in use"):
            await other.start(["127.0.0.1"], server.addresses[0].port)
        await other.stop()
