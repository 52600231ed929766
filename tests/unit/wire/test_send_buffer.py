"""The send buffer: order, deferral, backpressure and discarding."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from http_harness import LoopClock, MemoryTransport, settle

from setpoint.wire.encoding import BLOCK
from setpoint.wire.loop_slices import LoopSlicer
from setpoint.wire.send_buffer import SendBuffer
from setpoint.wire.server import Server


class Busy(LoopSlicer):
    """Whether the turn is long is the test's to say."""

    is_over_budget = False

    def over_budget(self) -> bool:
        return self.is_over_budget

    def has_time(self) -> bool:
        return not self.is_over_budget


async def nobody(request: Any) -> Any:
    raise AssertionError


@pytest.fixture
async def slicer() -> Busy:
    return Busy(LoopClock())


@pytest.fixture
async def transport(slicer: Busy) -> MemoryTransport:
    return MemoryTransport(Server(nobody, clock=LoopClock(), slicer=slicer).connection())


@pytest.fixture
async def buffer(transport: MemoryTransport) -> SendBuffer:
    return transport.connection.buffer


async def test_data_is_sent_at_once_within_the_budget(buffer: SendBuffer, transport: MemoryTransport) -> None:
    buffer.send_deferrable(b"a")
    buffer.send(b"b")
    assert bytes(transport.sent) == b"ab" and not buffer.backlogged


async def test_deferred_data_is_sent_in_order(buffer: SendBuffer, transport: MemoryTransport, slicer: Busy) -> None:
    slicer.is_over_budget = True
    buffer.send(b"1")
    buffer.send_deferrable(b"2")
    buffer.send(b"3")
    slicer.is_over_budget = False
    buffer.send_deferrable(b"4")
    assert bytes(transport.sent) == b"1" and buffer.backlogged and buffer.buffered_bytes == 3
    await settle()
    assert bytes(transport.sent) == b"1234" and not buffer.backlogged and buffer.buffered_bytes == 0


async def test_nothing_is_written_for_a_peer_that_does_not_read(buffer: SendBuffer, transport: MemoryTransport) -> None:
    transport.stuck = True
    buffer.send_deferrable(b"x" * 300_000)
    held = len(transport.held)
    for _ in range(100):
        buffer.send_deferrable(b"y" * 10_000)
    await settle()
    assert len(transport.held) == held and buffer.buffered_bytes == 1_000_000
    transport.take(held)
    await settle()
    assert held < len(transport.sent) + len(transport.held) <= held + 1_000_000
    transport.stuck = False
    transport.take(10_000_000)
    await settle()
    assert bytes(transport.sent[held:]) == b"y" * 1_000_000


async def test_buffered_data_is_sent_in_blocks(buffer: SendBuffer, transport: MemoryTransport, slicer: Busy) -> None:
    slicer.is_over_budget = True
    sizes: list[int] = []
    write = transport.write

    def recording_write(data: bytes | bytearray | memoryview) -> None:
        sizes.append(len(data))
        write(data)

    buffer._write = recording_write
    for _ in range(300):
        buffer.send_deferrable(b"z" * 1000)
    await buffer.drained(asyncio.get_running_loop())
    assert sum(sizes) == 300_000
    assert all(BLOCK <= size < BLOCK + 1000 for size in sizes[:-1])


async def test_waiters_are_woken_when_the_buffer_is_discarded(buffer: SendBuffer, slicer: Busy) -> None:
    slicer.is_over_budget = True
    buffer.send_deferrable(b"never")
    waiting = asyncio.create_task(buffer.drained(asyncio.get_running_loop()))
    await asyncio.sleep(0)
    buffer.drop()
    await waiting
    buffer.send_deferrable(b"nor this")
    assert buffer.buffered_bytes == 0 and not buffer.backlogged


async def test_buffered_data_is_flushed_at_the_end(
    buffer: SendBuffer, transport: MemoryTransport, slicer: Busy
) -> None:
    slicer.is_over_budget = True
    buffer.send_deferrable(b"the ")
    buffer.send_deferrable(b"end")
    transport.connection.close()
    buffer.send_deferrable(b", and more")
    await settle()
    assert bytes(transport.sent) == b"the end" and transport.closing
