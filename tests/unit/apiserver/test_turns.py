"""A turn of the loop that has lasted long enough puts off what can wait."""

from __future__ import annotations

import asyncio

from stopped_clock import StoppedClock

from setpoint.apiserver.turns import Turns


class Clock(StoppedClock):
    def spend(self, seconds: float) -> None:
        self._elapsed += seconds


async def turn() -> None:
    await asyncio.sleep(0)


async def test_a_turn_is_long_until_the_next_one() -> None:
    clock = Clock()
    turns = Turns(clock)
    assert not turns.long()
    clock.spend(0.001)
    assert not turns.long()
    clock.spend(0.002)
    assert turns.long()
    await turn()
    assert not turns.long()


async def test_what_was_put_off_is_done_in_order_and_a_little_in_each_turn() -> None:
    clock = Clock()
    turns, done = Turns(clock), list[int]()

    def work(number: int) -> None:
        done.append(number)
        clock.spend(0.0002)

    for number in range(7):
        turns.later(lambda number=number: work(number))  # type: ignore[misc]
    seen = []
    for _ in range(4):
        await turn()
        seen.append(list(done))
    assert seen == [[0, 1, 2], [0, 1, 2, 3, 4, 5], list(range(7)), list(range(7))]


async def test_what_work_will_cost_counts_and_one_is_done_always() -> None:
    turns, done = Turns(StoppedClock()), list[int]()
    for number in range(3):
        turns.later(lambda number=number: done.append(number), 5.0)  # type: ignore[misc]
    for count in (1, 2, 3):
        await turn()
        assert len(done) == count


async def test_first_comes_first() -> None:
    turns, done = Turns(StoppedClock()), list[str]()
    turns.later(lambda: done.append("later"))
    turns.first(lambda: done.append("first"))
    await turn()
    assert done == ["first", "later"]


async def test_whoever_waits_goes_on_at_once_where_there_is_time() -> None:
    clock = Clock()
    turns, done = Turns(clock), list[int]()

    async def one(number: int) -> None:
        await turns.wait(0.0005)
        done.append(number)

    async def hog() -> None:
        assert not turns.long()
        clock.spend(1.0)

    await one(0)
    assert done == [0]
    await turn()
    asyncio.create_task(hog())  # noqa: RUF006
    waiting = [asyncio.create_task(one(number)) for number in range(1, 6)]
    gone = asyncio.create_task(one(9))
    await turn()
    gone.cancel()
    assert done == [0]
    await asyncio.gather(*waiting)
    assert done == [0, 1, 2, 3, 4, 5]


async def test_a_failure_holds_up_nobody() -> None:
    turns, done = Turns(StoppedClock()), list[int]()
    failures = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    def fail() -> None:
        raise RuntimeError("no")

    turns.later(fail)
    turns.later(lambda: done.append(1))
    await turn()
    await turn()
    assert done == [1] and len(failures) == 1


async def test_strangers_are_not_in_the_way_of_others() -> None:
    turns, done = Turns(StoppedClock()), list[str]()
    for _ in range(100):
        turns.later(lambda: done.append("stranger"), 1.0, stranger=True)
    assert turns.has_time()
    for _ in range(2):
        turns.later(lambda: done.append("other"), 1.0)
    assert not turns.has_time()
    await turn()
    await turn()
    assert done == ["other", "stranger"] * 2
    assert turns.has_time()
