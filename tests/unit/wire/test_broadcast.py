"""Broadcasts: every receiver gets the frames that are sent while it is added, in order, or a prefix and its end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from stopped_clock import StoppedClock

from setpoint.wire.broadcast import Broadcast, Receiver
from setpoint.wire.encoding import BLOCK
from setpoint.wire.loop_slices import LoopSlicer

LIMIT = 1000


class Slicer(LoopSlicer):
    """A slicer whose time and steps the test decides."""

    def __init__(self) -> None:
        super().__init__(StoppedClock())
        self.time_left = True
        self.work: deque[Callable[[], None]] = deque()

    def has_time(self) -> bool:
        return self.time_left and not self.work

    def defer(self, work: Callable[[], None], cost: float = 0.0, *, unauthenticated: bool = False) -> None:
        self.work.append(work)

    def step(self) -> None:
        if self.work:
            self.work.popleft()()

    def finish(self) -> None:
        while self.work:
            self.step()


class Client:
    """A StreamWriter, and the end of its stream. Data is buffered until `read`."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.buffered = 0
        self.ends = 0

    @property
    def received(self) -> bytes:
        return b"".join(self.pieces)

    def write(self, data: bytes) -> None:
        raise AssertionError("frames are encoded chunks")

    def write_chunks(self, chunks: bytes) -> None:
        assert not self.ends, "written after the end"
        self.pieces.append(chunks)
        self.buffered += len(chunks)

    async def drained(self) -> None: ...

    async def closed(self) -> None:
        await asyncio.Event().wait()

    def read(self) -> None:
        self.buffered = 0

    def end(self) -> None:
        self.ends += 1


def broadcast_to(count: int, limit: int = LIMIT) -> tuple[Slicer, Broadcast, list[Client], list[Receiver]]:
    slicer = Slicer()
    broadcast = Broadcast(slicer, limit)
    clients = [Client() for _ in range(count)]
    receivers = [Receiver(client, client.end) for client in clients]
    for receiver in receivers:
        broadcast.add(receiver)
    return slicer, broadcast, clients, receivers


class Model:
    """A broadcast, and what each receiver should have got."""

    def __init__(self) -> None:
        self.slicer, self.broadcast, _, _ = broadcast_to(0)
        self.slicer.time_left = False
        self.clients: list[tuple[Client, Receiver]] = []
        self.wanted: list[list[bytes]] = []
        self.added: set[int] = set()
        self.sent = 0

    def add(self, _: int) -> None:
        client = Client()

        def end() -> None:
            assert client.buffered > LIMIT or self.pending > LIMIT, "ended without need"
            client.end()

        receiver = Receiver(client, end)
        self.broadcast.add(receiver)
        self.added.add(len(self.clients))
        self.clients.append((client, receiver))
        self.wanted.append([])

    def remove(self, which: int) -> None:
        if self.clients:
            number = which % len(self.clients)
            self.broadcast.remove(self.clients[number][1])
            self.check(number, complete=True)
            self.added.discard(number)

    def flush(self, which: int) -> None:
        if self.clients:
            number = which % len(self.clients)
            self.broadcast.flush(self.clients[number][1])
            self.check(number, complete=True)

    def read(self, which: int) -> None:
        if self.clients:
            self.clients[which % len(self.clients)][0].read()

    def send(self, size: int) -> None:
        self.sent += 1
        frame = b"%d:%b;" % (self.sent, b"x" * size)
        self.pending = self.broadcast._pending_bytes + len(frame)
        for number in self.added:
            if not self.clients[number][0].ends:
                self.wanted[number].append(frame)
        self.broadcast.send(frame)
        self.pending = 0

    pending = 0

    def step(self, _: int) -> None:
        self.slicer.step()

    def time(self, _: int) -> None:
        self.slicer.time_left = not self.slicer.time_left

    def check(self, number: int, *, complete: bool) -> None:
        client, wanted = self.clients[number][0], b"".join(self.wanted[number])
        if complete and not client.ends:
            assert client.received == wanted
        else:
            assert wanted.startswith(client.received)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "send", "send", "send", "step", "remove", "flush", "read", "time"]),
            st.integers(0, 300),
        ),
        min_size=10,
        max_size=80,
    )
)
def test_every_receiver_gets_what_is_sent_while_it_is_added(steps: list[tuple[str, int]]) -> None:
    model = Model()
    for step, argument in steps:
        getattr(model, step)(argument)
        for number in range(len(model.clients)):
            model.check(number, complete=False)
        assert model.broadcast._pending_bytes <= LIMIT
    model.slicer.finish()
    for number, (client, receiver) in enumerate(model.clients):
        model.check(number, complete=True)
        assert client.ends <= 1
        if receiver in model.broadcast._receivers:
            assert client.buffered <= LIMIT, "not ended although its client does not read"
    assert not model.broadcast._frames and not model.broadcast._pending_bytes


def test_a_receiver_that_is_added_while_frames_are_pending_gets_the_later_ones() -> None:
    slicer, broadcast, clients, _ = broadcast_to(40)
    broadcast.send(b"a")
    broadcast.send(b"b")
    during_a_block = Client()
    broadcast.add(Receiver(during_a_block, during_a_block.end))
    broadcast.send(b"c")
    slicer.finish()
    assert during_a_block.received == b"c" and all(client.received == b"abc" for client in clients)
    slicer.time_left = False
    broadcast.send(b"d")
    before_a_block = Client()
    broadcast.add(Receiver(before_a_block, before_a_block.end))
    broadcast.send(b"e")
    slicer.finish()
    assert before_a_block.received == b"e" and all(client.received == b"abcde" for client in clients)


def test_the_limit_is_exact() -> None:
    _, broadcast, (client,), _ = broadcast_to(1)
    ends = []
    for size in (LIMIT - 1, 1, 1):
        broadcast.send(b"x" * size)
        ends.append(client.ends)
    assert ends == [0, 0, 1]


def test_frames_that_are_sent_meanwhile_become_one_block() -> None:
    slicer, broadcast, clients, _ = broadcast_to(40)
    for frame in (b"a", b"b", b"c", b"d"):
        broadcast.send(frame)
    assert clients[0].pieces == [b"a"] and clients[-1].pieces == []
    slicer.finish()
    assert all(client.pieces == [b"a", b"bcd"] for client in clients)
    assert len({id(client.pieces[1]) for client in clients}) == 1, "receivers share the block"


def test_a_block_has_a_limited_size() -> None:
    slicer, broadcast, (client,), _ = broadcast_to(1, limit=16 * BLOCK)
    slicer.time_left = False
    for _ in range(10):
        broadcast.send(b"x" * (BLOCK // 2))
    slicer.finish()
    assert [len(piece) for piece in client.pieces] == [BLOCK] * 5


def test_large_blocks_are_written_to_fewer_receivers_at_a_time() -> None:
    slicer, broadcast, clients, _ = broadcast_to(4, limit=16 * BLOCK)
    broadcast.send(b"x" * (8 * BLOCK))
    assert [len(client.pieces) for client in clients] == [1, 0, 0, 0]
    slicer.step()
    assert [len(client.pieces) for client in clients] == [1, 1, 0, 0]
    slicer.finish()
    assert all(len(client.pieces) == 1 for client in clients)


def test_a_client_that_does_not_read_is_ended_and_the_others_are_not() -> None:
    slicer, broadcast, (slow, fast), _ = broadcast_to(2)
    for number in range(5):
        broadcast.send(b"x" * 300)
        slicer.finish()
        fast.read()
        assert slow.ends == (number >= 3)
    assert len(slow.received) == 1200 and len(fast.received) == 1500 and not fast.ends
    assert len(broadcast) == 1


def test_all_receivers_are_ended_when_too_much_is_pending() -> None:
    slicer, broadcast, clients, receivers = broadcast_to(3)
    slicer.time_left = False
    for _ in range(4):
        broadcast.send(b"x" * 300)
    assert [client.ends for client in clients] == [1, 1, 1] and len(broadcast) == 0
    broadcast.remove(receivers[0])
    broadcast.flush(receivers[1])
    slicer.finish()
    assert [client.received for client in clients] == [b"", b"", b""]
    later = Client()
    broadcast.add(Receiver(later, later.end))
    broadcast.send(b"y")
    slicer.finish()
    assert later.received == b"y"


def test_a_receiver_that_is_ended_in_the_middle_of_a_block_gets_nothing_more() -> None:
    slicer, broadcast, clients, receivers = broadcast_to(40)
    broadcast.send(b"a" * 100)
    broadcast.remove(receivers[0])
    broadcast.remove(receivers[39])
    broadcast.send(b"b" * 950)  # with what is pending, more than the maximum
    slicer.finish()
    assert [client.received[:1] for client in clients[1:16]] == [b"a"] * 15
    assert clients[39].received == b"a" * 100 and not clients[39].ends and not clients[0].ends
    assert all(client.ends == 1 for client in clients[1:39])


def test_close_writes_what_is_pending_and_ends_all() -> None:
    slicer, broadcast, clients, _ = broadcast_to(40)
    broadcast.send(b"a")
    broadcast.send(b"b")
    broadcast.close()
    slicer.finish()
    assert all((client.received, client.ends) == (b"ab", 1) for client in clients)
    assert len(broadcast) == 0
