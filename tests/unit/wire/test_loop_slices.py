"""Iterations of the event loop over their time budget defer work."""

from __future__ import annotations

import asyncio

from stopped_clock import StoppedClock

from setpoint.wire.loop_slices import LoopSlicer


class Clock(StoppedClock):
    def spend(self, seconds: float) -> None:
        self._elapsed += seconds


async def turn() -> None:
    await asyncio.sleep(0)


async def test_an_iteration_is_over_budget_until_the_next() -> None:
    clock = Clock()
    slicer = LoopSlicer(clock)
    assert not slicer.over_budget()
    clock.spend(0.001)
    assert not slicer.over_budget()
    clock.spend(0.002)
    assert slicer.over_budget()
    await turn()
    assert not slicer.over_budget()


async def test_deferred_work_runs_in_order_and_in_small_portions() -> None:
    clock = Clock()
    slicer, done = LoopSlicer(clock), list[int]()

    def work(number: int) -> None:
        done.append(number)
        clock.spend(0.0002)

    for number in range(7):
        slicer.defer(lambda number=number: work(number))  # type: ignore[misc]
    seen = []
    for _ in range(4):
        await turn()
        seen.append(list(done))
    assert seen == [[0, 1, 2], [0, 1, 2, 3, 4, 5], list(range(7)), list(range(7))]


async def test_estimated_costs_count_and_one_item_always_runs() -> None:
    slicer, done = LoopSlicer(StoppedClock()), list[int]()
    for number in range(3):
        slicer.defer(lambda number=number: done.append(number), 5.0)  # type: ignore[misc]
    for count in (1, 2, 3):
        await turn()
        assert len(done) == count


async def test_run_next_precedes_deferred_work() -> None:
    slicer, done = LoopSlicer(StoppedClock()), list[str]()
    slicer.defer(lambda: done.append("later"))
    slicer.run_next(lambda: done.append("first"))
    await turn()
    assert done == ["first", "later"]


async def test_waiters_continue_at_once_within_the_budget() -> None:
    clock = Clock()
    slicer, done = LoopSlicer(clock), list[int]()

    async def one(number: int) -> None:
        await slicer.wait(0.0005)
        done.append(number)

    async def hog() -> None:
        assert not slicer.over_budget()
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


async def test_a_failure_does_not_block_other_work() -> None:
    slicer, done = LoopSlicer(StoppedClock()), list[int]()
    failures = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    def fail() -> None:
        raise RuntimeError("no")

    slicer.defer(fail)
    slicer.defer(lambda: done.append(1))
    await turn()
    await turn()
    assert done == [1] and len(failures) == 1


async def test_unauthenticated_requests_do_not_delay_others() -> None:
    slicer, done = LoopSlicer(StoppedClock()), list[str]()
    for _ in range(100):
        slicer.defer(lambda: done.append("unauthenticated"), 1.0, unauthenticated=True)
    assert slicer.has_time()
    for _ in range(2):
        slicer.defer(lambda: done.append("other"), 1.0)
    assert not slicer.has_time()
    await turn()
    await turn()
    assert done == ["other", "unauthenticated"] * 2
    assert slicer.has_time()
