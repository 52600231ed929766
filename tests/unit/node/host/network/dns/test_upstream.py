"""Forwarding: failover, TCP, forged answers, loops; and the cache."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import dns.message
import pytest
from dns_objects import example_zone
from stopped_clock import StoppedClock, settle

from setpoint.node.host.network.dns.cache import AnswerCache
from setpoint.node.host.network.dns.message import (
    AAAA,
    NXDOMAIN,
    REFUSED,
    RESPONSE,
    SERVFAIL,
    SOA,
    TRUNCATED,
    A,
    Edns,
    Message,
    Question,
    Record,
    parse_message,
    parse_name,
    reply,
    soa_data,
    write_message,
)
from setpoint.node.host.network.dns.resolver import ClusterResolver
from setpoint.node.host.network.dns.server import DnsServer
from setpoint.node.host.network.dns.upstream import (
    Forwarder,
    NameServer,
    UpstreamError,
    parse_name_servers,
    read_name_servers,
)

NAME = parse_name("www.example.com")
QUESTION = Question(NAME, A)
ADDRESS = ip_address("192.0.2.1").packed


def octets() -> Callable[[int], bytes]:
    return random.Random(7).randbytes


class Upstream(asyncio.DatagramProtocol):
    """A name server whose answers the test chooses; it does not answer if `respond` returns None."""

    def __init__(self) -> None:
        self.queries: list[Message] = []
        self.ports: list[int] = []
        self.over_tcp: list[Message] = []
        self.asked = asyncio.Event()
        self.respond: Callable[[Message], Message | list[Message] | None] = answer
        self.respond_over_tcp: Callable[[Message], Message | None] = answer
        self.transport: asyncio.DatagramTransport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        query = parse_message(data)
        self.queries.append(query)
        self.ports.append(addr[1])
        self.asked.set()
        found = self.respond(query)
        for each in found if isinstance(found, list) else [found] if found is not None else []:
            self.transport.sendto(write_message(each), addr)

    async def stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(2))
        query = parse_message(await reader.readexactly(size))
        self.over_tcp.append(query)
        found = self.respond_over_tcp(query)
        if found is not None:
            data = write_message(found)
            # In pieces, as a network may deliver them.
            for piece in (len(data).to_bytes(2)[:1], len(data).to_bytes(2)[1:] + data[:5], data[5:]):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()


def answer(query: Message, ttl: int = 300, count: int = 1) -> Message:
    found = reply(query, 0)
    name = query.questions[0].name
    found.answers = [Record(name, A, ttl, (ADDRESS,)) for _ in range(count)]
    return found


def negative(query: Message, rcode: int = NXDOMAIN, ttl: int = 20) -> Message:
    found = reply(query, rcode)
    found.authority = [Record(parse_name("example.com"), SOA, 900, soa_data((), (), 1, (1, 2, 3, ttl)))]
    return found


@asynccontextmanager
async def upstream() -> AsyncIterator[tuple[Upstream, NameServer]]:
    loop = asyncio.get_running_loop()
    for _ in range(20):
        transport, server = await loop.create_datagram_endpoint(Upstream, local_addr=("127.0.0.1", 0))
        port = transport.get_extra_info("sockname")[1]
        try:
            tcp = await asyncio.start_server(server.stream, "127.0.0.1", port)
            break
        except OSError:  # a port that is free for UDP may be in use for TCP
            transport.close()
    else:
        raise AssertionError("no port is free for both UDP and TCP")
    try:
        yield server, NameServer("127.0.0.1", port)
    finally:
        transport.close()
        tcp.close()


async def advance_until(clock: StoppedClock, task: asyncio.Task[Any]) -> None:
    """Let virtual time pass until a task ends; network events are real."""
    for _ in range(200):
        if task.done():
            return
        await asyncio.sleep(0.002)
        await clock.advance(0.1)
    raise AssertionError("the task does not end")


async def resolve(forwarder: Forwarder, clock: StoppedClock, question: Question = QUESTION) -> Message:
    task = asyncio.get_running_loop().create_task(forwarder.resolve(question))
    await advance_until(clock, task)
    return task.result()


# -- forwarding -------------------------------------------------------------------------------------------------------


async def test_an_answer_is_forwarded_and_cached() -> None:
    clock = StoppedClock()
    async with upstream() as (server, at):
        forwarder = Forwarder([at], clock, octets())
        found = await forwarder.resolve(QUESTION)
        assert [record.data for record in found.answers] == [(ADDRESS,)]
        assert found.answers[0].ttl == 30
        assert server.queries[0].flags & 0x100 and server.queries[0].edns == Edns(1232)
        await clock.advance(10.0)
        again = await forwarder.resolve(Question(parse_name("WWW.example.COM"), A))
        assert again.answers[0].ttl == 20 and len(server.queries) == 1
        await forwarder.resolve(Question(NAME, AAAA))
        assert len(server.queries) == 2
        await clock.advance(20.0)
        await forwarder.resolve(QUESTION)
        assert len(server.queries) == 3


async def test_ids_and_ports_differ_from_query_to_query() -> None:
    clock = StoppedClock()
    async with upstream() as (server, at):
        forwarder = Forwarder([at], clock, octets())
        for number in range(20):
            await forwarder.resolve(Question((b"n%d" % number, *NAME), A))
        assert len({query.id for query in server.queries}) > 18
        assert len(set(server.ports)) > 10


async def test_equal_queries_are_sent_once() -> None:
    clock = StoppedClock()
    async with upstream() as (server, at):
        forwarder = Forwarder([at], clock, octets())
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(forwarder.resolve(QUESTION)) for _ in range(50)]
        assert len(server.queries) == 1 and len({id(task.result()) for task in waiting}) == 1


async def test_a_caller_that_is_cancelled_does_not_affect_the_others() -> None:
    clock = StoppedClock()
    async with upstream() as (server, at):
        server.respond = lambda query: None
        forwarder = Forwarder([at], clock, octets())
        loop = asyncio.get_running_loop()
        first, second = (loop.create_task(forwarder.resolve(QUESTION)) for _ in range(2))
        await server.asked.wait()
        first.cancel()
        server.respond = answer
        await advance_until(clock, second)
        assert second.result().answers and first.cancelled()


async def test_queries_in_flight_are_bounded() -> None:
    clock = StoppedClock()
    async with upstream() as (server, at):
        server.respond = lambda query: None
        forwarder = Forwarder([at], clock, octets(), max_in_flight=2)
        waiting = [
            asyncio.get_running_loop().create_task(forwarder.resolve(Question((b"%d" % n, *NAME), A))) for n in range(2)
        ]
        await settle()
        with pytest.raises(UpstreamError, match="too many"):
            await forwarder.resolve(QUESTION)
        for task in waiting:
            await advance_until(clock, task)
            assert isinstance(task.exception(), UpstreamError)
        server.respond = answer
        assert (await resolve(forwarder, clock)).answers


async def test_failover_to_the_next_server_which_is_then_preferred() -> None:
    clock = StoppedClock()
    async with upstream() as (dead, first), upstream() as (alive, second):
        dead.respond = lambda query: None
        forwarder = Forwarder([first, second], clock, octets())
        assert (await resolve(forwarder, clock)).answers
        assert (len(dead.queries), len(alive.queries)) == (1, 1)
        assert clock.monotonic() < 2.0
        await forwarder.resolve(Question((b"b", *NAME), A))
        assert (len(dead.queries), len(alive.queries)) == (1, 2)
        dead.respond = answer
        await clock.advance(6.0)
        await forwarder.resolve(Question((b"c", *NAME), A))
        assert (len(dead.queries), len(alive.queries)) == (2, 2), "it is tried again"
        await clock.advance(1.0)
        await forwarder.resolve(Question((b"d", *NAME), A))
        assert (len(dead.queries), len(alive.queries)) == (3, 2)


async def test_a_closed_port_is_left_at_once() -> None:
    clock = StoppedClock()
    async with upstream() as (alive, second):
        async with upstream() as (_, closed):
            pass
        forwarder = Forwarder([closed, second], clock, octets())
        assert (await forwarder.resolve(QUESTION)).answers and alive.queries
        assert clock.monotonic() == 0


@pytest.mark.parametrize("rcode", [SERVFAIL, REFUSED])
async def test_a_server_that_refuses_is_passed_over(rcode: int) -> None:
    clock = StoppedClock()
    async with upstream() as (refusing, first), upstream() as (_, second):
        refusing.respond = lambda query: reply(query, rcode)
        forwarder = Forwarder([first, second], clock, octets())
        assert (await forwarder.resolve(QUESTION)).answers
        alone = Forwarder([first], clock, octets())
        assert (await alone.resolve(QUESTION)).rcode == rcode


async def test_no_server_answers_within_the_patience_of_clients() -> None:
    clock = StoppedClock()
    async with upstream() as (dead, at):
        dead.respond = lambda query: None
        forwarder = Forwarder([at], clock, octets())
        with pytest.raises(UpstreamError):
            await resolve(forwarder, clock)
        assert clock.monotonic() < 5.0
        with pytest.raises(UpstreamError):
            await resolve(Forwarder([], clock, octets()), clock)


async def test_truncated_answers_are_repeated_over_tcp() -> None:
    clock = StoppedClock()
    async with upstream() as (server, at):
        server.respond = lambda query: reply(query, 0, TRUNCATED)
        server.respond_over_tcp = lambda query: answer(query, count=500)
        forwarder = Forwarder([at], clock, octets())
        found = await forwarder.resolve(QUESTION)
        assert len(found.answers) == 500 and not found.flags & TRUNCATED
        assert len(server.over_tcp) == 1
        server.respond_over_tcp = lambda query: None
        with pytest.raises(UpstreamError):
            await resolve(forwarder, clock, Question((b"b", *NAME), A))


async def test_a_server_without_edns_is_asked_again() -> None:
    clock = StoppedClock()

    def old(query: Message) -> Message:
        if query.edns is None:
            return answer(query)
        return Message(query.id, RESPONSE | 1)

    async with upstream() as (server, at):
        server.respond = old
        assert (await Forwarder([at], clock, octets()).resolve(QUESTION)).answers
        assert [query.edns is None for query in server.queries] == [False, True]


async def test_forged_answers_are_ignored() -> None:
    clock = StoppedClock()

    def forged(query: Message) -> list[Message]:
        evil = answer(query)
        evil.answers = [Record(NAME, A, 300, (ip_address("203.0.113.66").packed,))]
        other = reply(Message(query.id, 0, [Question(parse_name("other.example"), A)]), 0)
        no_answer = Message(query.id, query.flags, query.questions)
        headers = Message(query.id, RESPONSE)
        evil.id ^= 1
        return [evil, other, no_answer, headers, answer(query)]

    async with upstream() as (server, at):
        server.respond = forged
        found = await Forwarder([at], clock, octets()).resolve(QUESTION)
        assert [record.data for record in found.answers] == [(ADDRESS,)]


async def test_answers_that_cannot_be_parsed_count_as_none() -> None:
    clock = StoppedClock()
    async with upstream() as (server, at), upstream() as (_, second):

        def broken(query: Message) -> None:
            data = write_message(answer(query))[:-3]
            server.transport.sendto(data, ("127.0.0.1", server.ports[-1]))

        server.respond = broken
        assert (await Forwarder([at, second], clock, octets()).resolve(QUESTION)).answers


# -- loops ------------------------------------------------------------------------------------------------------------


async def test_a_server_that_sends_queries_back_is_not_used() -> None:
    clock = StoppedClock()
    async with upstream() as (relay, looping), upstream() as (_, good):
        forwarder = Forwarder([looping, good], clock, octets())
        resolver = ClusterResolver(example_zone(), forwarder, lambda: True)

        def back(query: Message) -> Message | None:
            found = resolver.answer(query)
            if isinstance(found, Message):
                return found
            asyncio.get_running_loop().create_task(forwarder.resolve(query.questions[0]))
            found.close()  # type: ignore[attr-defined]
            return None

        relay.respond = back
        await forwarder.check_loops()
        asked = len(relay.queries)
        assert (await forwarder.resolve(QUESTION)).answers
        assert len(relay.queries) == asked
        alone = Forwarder([looping], clock, octets())
        resolver._forwarder = alone
        await alone.check_loops()
        with pytest.raises(UpstreamError):
            await alone.resolve(QUESTION)


async def test_an_ordinary_server_passes_the_check() -> None:
    clock = StoppedClock()
    async with upstream() as (server, at):
        server.respond = lambda query: negative(query)
        forwarder = Forwarder([at], clock, octets())
        await forwarder.check_loops()
        assert server.queries[0].questions[0].name[1:] == parse_name("loop-check.setpoint.invalid")
        server.respond = answer
        assert (await forwarder.resolve(QUESTION)).answers
        forwarder.update([])
        assert forwarder.cached(QUESTION) is None
        await forwarder.stop()


# -- the resolver -----------------------------------------------------------------------------------------------------


async def test_external_names_are_resolved_to_the_end() -> None:
    clock = StoppedClock()
    query = parse_message(dns.message.make_query("wiki.shop.svc.cluster.local", "A").to_wire())
    async with upstream() as (server, at):
        resolver = ClusterResolver(example_zone(), Forwarder([at], clock, octets()), lambda: True)
        for _ in range(2):  # then from the cache
            found = resolver.answer(query)
            found = found if isinstance(found, Message) else await found
            assert [(record.type, record.data) for record in found.answers] == [(5, (NAME,)), (A, (ADDRESS,))]
        assert len(server.queries) == 1
        server.respond = lambda query: negative(query)
        query.questions = [query.questions[0]._replace(type=AAAA)]
        found = resolver.answer(query)
        assert not isinstance(found, Message)
        missing = await found
        assert missing.rcode == NXDOMAIN and len(missing.answers) == 1 and len(missing.authority) == 1


async def test_queries_fail_quickly_without_name_servers() -> None:
    clock = StoppedClock()
    server = DnsServer(ClusterResolver(example_zone(), Forwarder([], clock, octets()), lambda: True), clock)
    sent: list[bytes] = []
    server.handle(dns.message.make_query("example.com", "A").to_wire(), over_tcp=False, send=sent.append)
    await settle()
    assert [parse_message(each).rcode for each in sent] == [SERVFAIL]
    await server.stop()


# -- the cache --------------------------------------------------------------------------------------------------------


def asked(name: str = "www.example.com") -> Message:
    return Message(1, 0x100, [Question(parse_name(name), A)])


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        (answer(asked(), ttl=7), 7),
        (answer(asked(), ttl=3600), 30),
        (answer(asked(), ttl=0), 0),
        (answer(asked(), ttl=1 << 31), 0),
        (negative(asked()), 20),
        (negative(asked(), rcode=0), 20),
        (negative(asked(), ttl=3600), 30),
        (reply(asked(), NXDOMAIN), 0),
        (reply(asked(), 0), 0),
        (reply(asked(), SERVFAIL), 1),
    ],
)
async def test_how_long_answers_are_cached(message: Message, seconds: int) -> None:
    clock = StoppedClock()
    cache = AnswerCache(clock)
    cache.put((NAME, A), message, 100)
    if seconds:
        await clock.advance(seconds - 0.5)
        assert cache.get((NAME, A)) is not None
        await clock.advance(0.5)
    assert cache.get((NAME, A)) is None
    assert len(cache) == 0


async def test_the_cache_is_bounded() -> None:
    clock = StoppedClock()
    cache = AnswerCache(clock, max_entries=3, max_octets=1000)
    keys = [((b"%d" % at,), A) for at in range(5)]
    for key in keys[:3]:
        cache.put(key, answer(asked()), 100)
    assert cache.get(keys[0]) is not None
    cache.put(keys[3], answer(asked()), 100)
    assert [cache.get(key) is not None for key in keys] == [True, False, True, True, False]
    cache.put(keys[4], answer(asked()), 850)
    assert [cache.get(key) is not None for key in keys] == [False, False, False, True, True]
    cache.put(keys[0], answer(asked()), 5000)
    assert cache.get(keys[0]) is None and len(cache) == 2
    cache.put(keys[4], answer(asked()), 10)
    cache.put(keys[4], answer(asked(), ttl=0), 10)
    assert len(cache) == 1
    cache.clear()
    assert len(cache) == 0 and cache._octets == 0


# -- resolv.conf ------------------------------------------------------------------------------------------------------


def test_name_servers_of_the_machine(tmp_path: Path) -> None:
    own, systemd = tmp_path / "resolv.conf", tmp_path / "systemd.conf"
    assert read_name_servers((), own, systemd) == []
    own.write_text("search x\nnameserver 10.96.0.10\nnameserver 192.0.2.53\nnameserver fd00::53\nnameserver 0.0.0.0\n")
    found = read_name_servers(("10.96.0.10",), own, systemd)
    assert found == [NameServer("192.0.2.53"), NameServer("fd00::53")]
    own.write_text("nameserver 127.0.0.53\n")
    assert read_name_servers((), own, systemd) == [NameServer("127.0.0.53")]
    systemd.write_text("nameserver 198.51.100.1\n")
    assert read_name_servers((), own, systemd) == [NameServer("198.51.100.1")]
    own.write_text("nameserver 127.0.0.53\nnameserver 192.0.2.53\n")
    assert len(read_name_servers((), own, systemd)) == 2


def test_lines_that_are_not_understood() -> None:
    text = "#nameserver 1.1.1.1\nnameserver\nnameserver x\n nameserver 192.0.2.1 # c\nnameserver 192.0.2.1\noptions a\n"
    assert parse_name_servers(text) == ["192.0.2.1"]
