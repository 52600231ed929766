"""What is said comes in order; what cannot be said now is kept, as it is, until it can."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from wire_harness import LoopClock, MemoryTransport, settle

from setpoint.apiserver.http.encoding import BLOCK
from setpoint.apiserver.http.outgoing import Outgoing
from setpoint.apiserver.http.server import Server
from setpoint.apiserver.turns import Turns


class Busy(Turns):
    """Whether the turn is long is the test's to say."""

    is_long = False

    def long(self) -> bool:
        return self.is_long

    def has_time(self) -> bool:
        return not self.is_long


async def nobody(request: Any) -> Any:
    raise AssertionError


@pytest.fixture
async def turns() -> Busy:
    return Busy(LoopClock())


@pytest.fixture
async def transport(turns: Busy) -> MemoryTransport:
    return MemoryTransport(Server(nobody, clock=LoopClock(), turns=turns).connection())


@pytest.fixture
async def outgoing(transport: MemoryTransport) -> Outgoing:
    return transport.connection.outgoing


async def test_at_once_where_there_is_time(outgoing: Outgoing, transport: MemoryTransport) -> None:
    outgoing.pass_on(b"a")
    outgoing.send(b"b")
    assert bytes(transport.sent) == b"ab" and not outgoing.behind


async def test_in_order_where_there_is_none(outgoing: Outgoing, transport: MemoryTransport, turns: Busy) -> None:
    turns.is_long = True
    outgoing.send(b"1")
    outgoing.pass_on(b"2")
    outgoing.send(b"3")
    turns.is_long = False
    outgoing.pass_on(b"4")
    assert bytes(transport.sent) == b"1" and outgoing.behind and outgoing.kept == 3
    await settle()
    assert bytes(transport.sent) == b"1234" and not outgoing.behind and outgoing.kept == 0


async def test_nothing_is_written_for_a_peer_who_does_not_read(outgoing: Outgoing, transport: MemoryTransport) -> None:
    transport.stuck = True
    outgoing.pass_on(b"x" * 300_000)
    held = len(transport.held)
    for _ in range(100):
        outgoing.pass_on(b"y" * 10_000)
    await settle()
    assert len(transport.held) == held and outgoing.kept == 1_000_000
    transport.take(held)
    await settle()
    assert held < len(transport.sent) + len(transport.held) <= held + 1_000_000
    transport.stuck = False
    transport.take(10_000_000)
    await settle()
    assert bytes(transport.sent[held:]) == b"y" * 1_000_000


async def test_what_was_kept_goes_out_in_blocks(outgoing: Outgoing, transport: MemoryTransport, turns: Busy) -> None:
    turns.is_long = True
    sizes: list[int] = []
    write = transport.write
    outgoing._write = lambda data: (sizes.append(len(data)), write(data))[1]
    for _ in range(300):
        outgoing.pass_on(b"z" * 1000)
    await outgoing.drained(asyncio.get_running_loop())
    assert sum(sizes) == 300_000
    assert all(BLOCK <= size < BLOCK + 1000 for size in sizes[:-1])


async def test_those_who_wait_are_woken_when_it_is_dropped(outgoing: Outgoing, turns: Busy) -> None:
    turns.is_long = True
    outgoing.pass_on(b"never")
    waiting = asyncio.create_task(outgoing.drained(asyncio.get_running_loop()))
    await asyncio.sleep(0)
    outgoing.drop()
    await waiting
    outgoing.pass_on(b"nor this")
    assert outgoing.kept == 0 and not outgoing.behind


async def test_what_was_kept_is_not_lost_at_the_end(
    outgoing: Outgoing, transport: MemoryTransport, turns: Busy
) -> None:
    turns.is_long = True
    outgoing.pass_on(b"the ")
    outgoing.pass_on(b"end")
    transport.connection.close()
    outgoing.pass_on(b", and more")
    await settle()
    assert bytes(transport.sent) == b"the end" and transport.closing
