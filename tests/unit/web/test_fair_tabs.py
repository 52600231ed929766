"""A tab whose neighbours flood the server: the work that is done between its request and the answer is counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import chain, cycle, repeat

import pytest
from local_server import LocalServer
from page_harness import ADMIN, PageHarness, TabClient
from step_count import counted_steps
from stopped_clock import settle

from setpoint.client import Client
from setpoint.client.prefixed import PrefixedTransport
from setpoint.tasks import TaskRegistry
from setpoint.web.feed import Args, FeedOutput, PageContext
from setpoint.web.sessions import MAX_TABS, PageUser
from setpoint.wire.message import Response, UpgradeResponse
from setpoint.wire.websocket import encode_frame

REQUESTS, SESSIONS = 100, 1
INTERVAL = 0.05
"""Seconds between two requests of the tab that is looked at."""
MASK = b"mask"


_MESSAGE = encode_frame(1, b'{"id":1,"op":"close","more":"%b"}' % (b"x" * 1_000_000), MASK)
LARGE = [_MESSAGE[at : at + 65_536] for at in range(0, len(_MESSAGE), 65_536)]


class Flood:
    """A RawConnection that always has more to read, and whose peer takes everything at once."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.closed = False

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        return b"" if self.closed else next(self._pieces, b"")

    def write(self, data: bytes) -> None: ...

    async def drained(self) -> None: ...

    def close(self) -> None:
        self.closed = True


def text(message: object) -> bytes:
    return encode_frame(1, json.dumps(message).encode(), MASK)


CHANNELS = [text({"id": number, "op": "open", "feed": "quiet", "args": {"n": number}}) for number in range(1, 10_001)]
CREDIT, PING = text({"id": 1, "op": "credit", "n": 1}) * 50, encode_frame(9, b"x" * 125, MASK) * 50


def channels() -> Iterator[bytes]:
    """Ten thousand channels."""
    for at in range(0, len(CHANNELS), 50):
        yield b"".join(CHANNELS[at : at + 50])


def credit() -> Iterator[bytes]:
    return repeat(CREDIT)


def pings() -> Iterator[bytes]:
    return repeat(PING)


def fragments() -> Iterator[bytes]:
    """A message of very many empty frames."""
    return chain([b"\x01\x80mask"], repeat(b"\x00\x80mask" * 50))


def large() -> Iterator[bytes]:
    """Messages of nearly a mebibyte, in the pieces of a connection."""
    return cycle(LARGE)


def too_large() -> Iterator[bytes]:
    """The begin of a message of two mebibytes."""
    yield b"\x81\xff" + (2 * 1024 * 1024).to_bytes(8, "big") + MASK + bytes(65_536)


def binary() -> Iterator[bytes]:
    yield encode_frame(2, b'{"id":1,"op":"open"}', MASK) * 50


def unknown() -> Iterator[bytes]:
    yield text({"id": 1, "op": "explode"}) * 50


class Attack:
    """Sessions with as many tabs as a session may have; a tab that is closed is opened again."""

    def __init__(self, harness: PageHarness, flood: Callable[[], Iterator[bytes]]) -> None:
        self._harness = harness
        self._flood = flood
        self._tasks = TaskRegistry()
        self._accepted = (0.0, 0)
        """The time of the latest connection, and how many were accepted at this time."""
        self.opened = 0

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        for _ in range(SESSIONS):
            key = await self._harness.enter(PageUser("rude", ("system:masters",)))
            for _ in range(MAX_TABS):
                self._tasks.start(self._keep_open(key))
        await self._harness.clock.advance(0.2)
        try:
            yield
        finally:
            await self._tasks.stop()

    async def _connected(self) -> None:
        """Return when the server accepts another connection: four at a time (`wire/listener.py`)."""
        clock = self._harness.clock
        while self._accepted == (clock.monotonic(), 4):
            await clock.sleep(0.02)
        at, accepted = self._accepted
        self._accepted = (clock.monotonic(), accepted + 1 if at == clock.monotonic() else 1)

    async def _keep_open(self, key: str) -> None:
        while True:
            await self._connected()
            answer = await self._harness.upgrade(key)
            if isinstance(answer, UpgradeResponse):
                self.opened += 1
                await answer.run(Flood(self._flood()))
            else:
                assert answer.status == 429
                await self._harness.clock.sleep(1)


@pytest.fixture
async def harness(local_server: LocalServer) -> AsyncIterator[PageHarness]:
    def client(user: PageUser, cluster: str) -> Client:
        transport = local_server.client.sender.transport
        return Client(PrefixedTransport(transport, cluster) if cluster else transport, local_server.clock)

    found = PageHarness(client, feeds={"quiet": quiet})
    yield found
    await found.stop()


async def quiet(context: PageContext, args: Args, output: FeedOutput) -> None:
    await asyncio.Event().wait()


async def work_of_requests(harness: PageHarness, tab: TabClient) -> list[int]:
    """Return how many functions are called between each request of a tab and its answer, the fewest first."""
    found = []
    for number in range(1, REQUESTS + 1):
        await settle()
        with counted_steps() as steps:
            harness.clock.advance_at_once(INTERVAL)  # all tabs may send again
            tab.send_at_once(number, "request", path="/api/v1/namespaces", query="limit=1")
            answer = await tab.receive()
        assert (answer["id"], answer["status"]) == (number, 200)
        found.append(steps.count)
    return sorted(found)


@pytest.mark.parametrize(
    "flood", [channels, credit, pings, fragments, large, too_large, binary, unknown], ids=lambda each: each.__name__
)
async def test_a_request_costs_at_most_twice_as_much_beside_a_flood(
    harness: PageHarness, flood: Callable[[], Iterator[bytes]]
) -> None:
    tab = await harness.open_tab(await harness.enter(ADMIN))
    assert (await tab.receive())["type"] == "hello"
    await work_of_requests(harness, tab)
    peace = await work_of_requests(harness, tab)
    attack = Attack(harness, flood)
    async with attack.going_on():
        attacked = await work_of_requests(harness, tab)
    p99 = REQUESTS * 99 // 100 - 1
    assert attack.opened >= SESSIONS * MAX_TABS
    assert attacked[p99] <= 2 * peace[p99]


async def test_tabs_are_opened_at_a_limited_rate(harness: PageHarness) -> None:
    """Of one session: another one is not concerned."""
    key, other = await harness.enter(), await harness.enter(PageUser("other"))
    for _ in range(64):
        (await harness.open_tab(key)).connection.close()
        await settle()
    refused = await harness.upgrade(key)
    assert isinstance(refused, Response) and refused.status == 429
    assert ("Retry-After", "1") in refused.headers and b"opened too often" in refused.whole_body
    assert isinstance(await harness.upgrade(other), UpgradeResponse)
    await harness.clock.advance(0.5)
    found = [await harness.upgrade(key) for _ in range(3)]
    assert [isinstance(each, UpgradeResponse) for each in found] == [True, True, False]
