"""Joining a class while somebody guesses its code: the right code always lets a learner in."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from page_harness import HOST, ORIGIN, CountingEntropy
from stopped_clock import StoppedClock, settle

from setpoint.cluster.classroom.front import ClassFront
from setpoint.cluster.classroom.worker_link import WorkerLink
from setpoint.cluster.classroom.wrong_codes import DELAY, MAX_ADDRESSES, MAX_DELAYED, WrongCodes
from setpoint.cluster.page import LIMITS, class_limits
from setpoint.meta.errors import TooManyRequests
from setpoint.tasks import TaskRegistry
from setpoint.web.sessions import Sessions
from setpoint.wire.message import Peer, Request, Response

GUESSER, LEARNER = "192.0.2.7", "198.51.100.4"


class AnyWorker(WorkerLink):
    """A worker that has room for every seat."""

    def __init__(self, clock: StoppedClock) -> None:
        super().__init__(Path("unused"), clock)

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return {}


class Entrance:
    """The front of a class, in virtual time."""

    def __init__(self) -> None:
        self.clock = StoppedClock()
        self.front = ClassFront(
            clock=self.clock,
            entropy=CountingEntropy(),
            hosts=(HOST,),
            tls=False,
            seats=100,
            workers=[AnyWorker(self.clock)],
            sessions=Sessions(self.clock, CountingEntropy(), most=100),
        )

    async def join(self, nickname: str, code: str, address: str) -> int:
        body = json.dumps({"code": code, "nickname": nickname}).encode()
        request = Request("POST", "/class/v1/join", "", {"host": HOST, "origin": ORIGIN}, body, Peer(address))
        answer = await self.front.handle(request)
        assert isinstance(answer, Response)
        return answer.status

    async def guess_on(self, connection: int, answers: list[int]) -> None:
        """Guess without a pause, as one connection does it."""
        while True:
            answers.append(await self.join("eve", f"guess-{connection}-{len(answers)}", GUESSER))
            await asyncio.sleep(0)


async def _guessed_while_learners_join(learners_at: str, connections: int = 50) -> tuple[list[int], list[int], float]:
    """Return the answers of a guesser, those of 30 learners who join in the meantime, and the longest time that one of
    them waited."""
    entrance, tasks = Entrance(), TaskRegistry()
    clock, guesses = entrance.clock, list[int]()
    for connection in range(connections):
        tasks.start(entrance.guess_on(connection, guesses))
    joined, waited = [], 0.0
    for number in range(30):
        await clock.advance(1.0)
        before = clock.monotonic()
        joined.append(await entrance.join(f"learner {number}", entrance.front.code, learners_at))
        waited = max(waited, clock.monotonic() - before)
    await tasks.stop()
    return guesses, joined, waited


async def test_a_guesser_keeps_learners_of_other_addresses_out_of_nothing() -> None:
    _, joined, waited = await _guessed_while_learners_join(LEARNER)
    assert joined == [201] * 30 and waited == 0


async def test_a_guesser_keeps_learners_behind_the_same_address_out_of_nothing() -> None:
    guesses, joined, waited = await _guessed_while_learners_join(GUESSER)
    assert joined == [201] * 30 and waited == 0
    assert set(guesses) == {401}
    # Each of the 50 connections makes one guess a second, besides those that one address has free.
    assert len(guesses) <= 20 + 50 * 31 + 16


async def test_a_mistyped_code_is_answered_at_once() -> None:
    entrance = Entrance()
    assert await entrance.join("ann", "wrong", LEARNER) == 401
    assert await entrance.join("ann", f" class-{entrance.front.code.upper()} ", LEARNER) == 201


def test_the_code_is_long_enough_that_no_limit_is_needed() -> None:
    code = Entrance().front.code
    assert len(code) == 10 and set(code) <= set("abcdefghijklmnopqrstuvwxyz234567")
    guesses_a_day = 10_000 * 24 * 3600
    assert guesses_a_day / 32 ** len(code) < 1e-6


async def test_delayed_answers_are_bounded() -> None:
    """A client that does not wait for the answers to its guesses is refused at once, and learners still join."""
    entrance, tasks = Entrance(), TaskRegistry()
    started = [tasks.start(entrance.join("eve", f"guess-{n}", GUESSER)) for n in range(1_000)]
    await settle()
    done = [each.result() for each in started if each.done()]
    assert done.count(401) == 20 and done.count(429) == 1_000 - 20 - MAX_DELAYED
    assert await entrance.join("ann", entrance.front.code, GUESSER) == 201
    await entrance.clock.advance(DELAY)
    assert all(each.done() for each in started)
    await tasks.stop()


async def test_addresses_are_bounded_and_forgotten_in_order() -> None:
    clock = StoppedClock()
    wrong = WrongCodes(clock)
    for number in range(MAX_ADDRESSES + 500):
        await wrong.delay(f"10.0.{number // 256}.{number % 256}")
    assert len(wrong._addresses) == MAX_ADDRESSES
    assert "10.0.0.0" not in wrong._addresses and "10.0.5.0" in wrong._addresses


async def test_an_ipv6_network_is_one_client() -> None:
    wrong = WrongCodes(StoppedClock())
    for number in range(20):
        await wrong.delay(f"2001:db8::{number:x}")
    wrong._delayed = MAX_DELAYED
    try:
        await wrong.delay("2001:db8::ffff")
    except TooManyRequests:
        await wrong.delay("2001:db8:0:1::1")
        await wrong.delay("::ffff:192.0.2.1")
        assert [*wrong._addresses] == ["2001:db8::", "2001:db8:0:1::", "192.0.2.1"]
        return
    raise AssertionError("another address of the network was not counted")


def test_all_seats_of_a_large_class_can_connect() -> None:
    assert class_limits(1_000).connections >= 1_000 + LIMITS.connections
