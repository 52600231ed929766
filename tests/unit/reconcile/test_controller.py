"""Controller workers contain failures and never reconcile a key concurrently with itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from stopped_clock import StoppedClock, settle

from setpoint.meta.errors import Conflict
from setpoint.reconcile import Controller, RateLimitingQueue, Result
from setpoint.reconcile.gate import Gates, Mode


@asynccontextmanager
async def running(controller: Controller) -> AsyncIterator[None]:
    task = asyncio.ensure_future(controller.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_failed_key_is_retried_and_others_continue() -> None:
    clock = StoppedClock()
    seen: list[str] = []

    async def reconcile(key: str) -> None:
        seen.append(key)
        if key == "bad" and seen.count("bad") == 1:
            raise RuntimeError("the first time it fails")
        if key == "raced" and seen.count("raced") == 1:
            raise Conflict("somebody was faster")

    controller = Controller("test", reconcile, clock)
    for key in ("bad", "raced", "good"):
        controller.enqueue(key)
    async with running(controller):
        await settle()
        assert seen == ["bad", "raced", "good"]
        await clock.advance(0.1)
        assert seen == ["bad", "raced", "good", "bad", "raced"]
        await clock.advance(100)
        assert len(seen) == 5


async def test_a_result_can_requeue_after_a_delay() -> None:
    clock = StoppedClock()
    count = 0

    async def reconcile(key: str) -> Result:
        nonlocal count
        count += 1
        return Result(requeue_after=60)

    controller = Controller("test", reconcile, clock)
    controller.enqueue("a")
    async with running(controller):
        await settle()
        assert count == 1
        await clock.advance(59)
        assert count == 1
        await clock.advance(61)
        assert count == 3


async def test_a_result_can_requeue_with_backoff() -> None:
    clock = StoppedClock()
    times: list[float] = []

    async def reconcile(key: str) -> Result:
        times.append(clock.monotonic())
        return Result(retry=len(times) < 4)

    controller = Controller("test", reconcile, clock)
    controller.enqueue("a")
    async with running(controller):
        await clock.advance(10)
    assert [round(at, 3) for at in times] == [0.0, 0.005, 0.015, 0.035]


async def test_a_given_queue_is_used_although_it_is_empty() -> None:
    clock = StoppedClock()
    queue = RateLimitingQueue(clock)

    async def reconcile(key: str) -> None:
        pass

    assert Controller("test", reconcile, clock, queue=queue).queue is queue


async def test_a_key_is_never_reconciled_concurrently() -> None:
    clock = StoppedClock()
    active: set[str] = set()
    finished: list[str] = []

    async def reconcile(key: str) -> None:
        assert key not in active
        active.add(key)
        await clock.sleep(1)
        active.discard(key)
        finished.append(key)

    controller = Controller("test", reconcile, clock, workers=3)
    enqueue: Callable[[str], None] = controller.enqueue
    async with running(controller):
        enqueue("a")
        enqueue("b")
        await settle()
        assert active == {"a", "b"}
        enqueue("a")
        enqueue("a")
        await clock.advance(1)
        assert finished == ["a", "b"]
        assert active == {"a"}
        await clock.advance(1)
        assert finished == ["a", "b", "a"]


async def test_keys_that_a_gate_held_back_are_reconciled_concurrently() -> None:
    clock, running_now, most = StoppedClock(), 0, 0

    async def reconcile(key: str) -> None:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        await clock.sleep(1)
        running_now -= 1

    controller = Controller("test", reconcile, clock, workers=3)
    controller.gates = Gates(clock)
    async with running(controller):
        await settle()
        controller.gates.set_mode(Mode.PAUSED, "test")
        for key in "abcde":
            controller.enqueue(key)
            await settle()
        assert most == 0
        controller.gates.set_mode(Mode.RUN, "test")
        await settle()
        assert most == 3
        await clock.advance(2)
        await clock.advance(2)
        assert (most, running_now, controller.counts.done) == (3, 0, 5)
