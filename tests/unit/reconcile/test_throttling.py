"""Keys whose reconcile occupies the event loop are throttled, and no change is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from stopped_clock import StoppedClock, settle

from setpoint.reconcile import Controller
from setpoint.reconcile.controller import LoopTimer


class WorkingClock(StoppedClock):
    def work(self, seconds: float) -> None:
        """Let time pass while no other task can run."""
        self._elapsed += seconds


async def test_only_time_that_blocks_the_loop_counts() -> None:
    clock = WorkingClock()

    async def task() -> str:
        clock.work(2)
        await clock.sleep(100)
        clock.work(3)
        return "done"

    timer = LoopTimer(task(), clock)

    async def run() -> str:
        return await timer

    running = asyncio.ensure_future(run())
    await clock.advance(200)
    assert await running == "done"
    assert timer.seconds == 5


async def test_failures_and_cancellation_pass_through() -> None:
    clock = WorkingClock()
    ended: list[str] = []

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def waits() -> None:
        try:
            await clock.sleep(1000)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def run() -> None:
        await LoopTimer(waits(), clock)

    with pytest.raises(ValueError, match="no"):
        await LoopTimer(fails(), clock)
    task = asyncio.ensure_future(run())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled"]


async def test_a_key_that_blocked_the_loop_is_throttled_and_others_are_not() -> None:
    clock = WorkingClock()
    seen: list[tuple[str, float]] = []

    async def reconcile(key: str) -> None:
        seen.append((key, round(clock.monotonic(), 3)))
        if key == "big":
            clock.work(0.01)
            controller.enqueue("big" if len(seen) == 1 else "other")  # a change during the reconcile
        await asyncio.sleep(0)

    controller = Controller("test", reconcile, clock)
    controller.enqueue("big")
    running = asyncio.ensure_future(controller.run())
    await settle()
    controller.enqueue("big")
    controller.enqueue("small")
    await settle()
    assert seen == [("big", 0.0), ("small", 0.01)]
    await clock.advance(0.029)
    assert len(seen) == 2
    await clock.advance(0.002)
    assert seen[2:] == [("big", 0.04), ("other", 0.05)]
    await clock.advance(10)
    assert len(seen) == 4, "added twice, taken once"
    controller.enqueue("big")
    await settle()
    assert seen[4][0] == "big", "rested, it is taken at once"
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
