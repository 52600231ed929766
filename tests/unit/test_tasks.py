"""Owners of tasks: no task outlives its owner, and failures are not lost."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from functools import partial

import pytest
from stopped_clock import StoppedClock, settle

from setpoint.system import SystemClock
from setpoint.tasks import Flag, TaskRegistry, Timers, Workers, child_tasks, first_completed, run_all, within


async def _fail() -> None:
    raise ValueError("broken")


async def _forever(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("ended")


async def test_child_tasks_end_with_the_block() -> None:
    ended: list[str] = []
    with pytest.raises(KeyError):
        async with child_tasks(_forever(ended), _forever(ended)):
            await asyncio.sleep(0)
            raise KeyError
    assert ended == ["ended", "ended"]
    async with child_tasks():
        pass


async def test_first_completed_cancels_the_others_and_raises_failures() -> None:
    ended: list[str] = []
    await first_completed(_forever(ended), asyncio.sleep(0))
    assert ended == ["ended"]
    with pytest.raises(ValueError, match="broken"):
        await first_completed(_forever(ended), _fail())
    assert ended == ["ended", "ended"]


async def test_run_all_returns_results_in_order_and_cancels_after_a_failure() -> None:
    async def value(number: int) -> int:
        await asyncio.sleep(0.01 / number)
        return number

    assert await run_all(value(1), value(2)) == [1, 2]
    assert await run_all() == []
    ended: list[str] = []
    with pytest.raises(ValueError, match="broken"):
        await run_all(_forever(ended), _fail())
    assert ended == ["ended"]


async def test_within_cancels_work_that_takes_too_long() -> None:
    ended: list[str] = []
    with pytest.raises(TimeoutError):
        await within(SystemClock(), 0.001, _forever(ended))
    assert ended == ["ended"]
    assert await within(SystemClock(), 10, asyncio.sleep(0, "value")) == "value"
    with pytest.raises(ValueError, match="broken"):
        await within(SystemClock(), 10, _fail())


async def test_a_registry_logs_failures_and_stops_all_tasks(caplog: pytest.LogCaptureFixture) -> None:
    registry, ended = TaskRegistry(), list[str]()
    registry.start(_forever(ended))
    registry.start(_fail())
    done = registry.start(asyncio.sleep(0, "value"))
    assert len(registry) == 3
    assert await done == "value"
    await asyncio.sleep(0)
    assert len(registry) == 1
    assert "a background task failed: broken" in caplog.messages
    await registry.stop(grace=0.001)
    assert ended == ["ended"] and len(registry) == 0


async def test_a_registry_reports_tasks_that_ignore_cancellation(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stubborn() -> None:
        for _ in range(2):
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                continue

    monkeypatch.setattr("setpoint.tasks._CANCEL_TIMEOUT", 0.001)
    registry = TaskRegistry()
    task = registry.start(stubborn())
    await asyncio.sleep(0)
    with caplog.at_level(logging.ERROR):
        await registry.stop()
    assert "1 tasks still run although they were cancelled" in caplog.messages
    task.cancel()
    await asyncio.wait([task])


async def test_workers_start_on_demand_in_the_context_of_the_block_and_end_with_it() -> None:
    ended: list[str] = []
    name: ContextVar[str] = ContextVar("name", default="")
    contexts: list[str] = []

    async def work() -> None:
        contexts.append(name.get())
        await _forever(ended)

    workers = Workers(work, 3)
    workers.add()
    async with workers.running():
        assert workers.count == 0
        name.set("of who adds work")
        workers.add()
        await asyncio.sleep(0)
        assert contexts == [""]
        workers.add(5)
        await asyncio.sleep(0)
        assert len(contexts) == workers.count == 3
    assert len(ended) == 3
    workers.add()
    await asyncio.sleep(0)
    assert len(contexts) == 3


async def test_a_failing_worker_ends_the_block() -> None:
    workers = Workers(_fail, 1)
    with pytest.raises(ExceptionGroup) as raised:
        async with workers.running():
            workers.add()
            await asyncio.Event().wait()
    assert raised.group_contains(ValueError, match="broken")


async def test_a_flag_wakes_all_who_wait_and_a_cancellation_affects_one() -> None:
    flag = Flag()
    waiting = [asyncio.ensure_future(flag.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    assert not flag.is_set() and not waiting[1].done()
    waiting[2].cancel()  # at the same time as it is set
    flag.set()
    flag.set()
    await asyncio.wait(waiting)
    assert [task.cancelled() for task in waiting] == [True, False, True]
    assert flag.is_set()
    await flag.wait()
    assert not flag._waiters


async def test_timers_call_in_the_order_of_time_from_one_task() -> None:
    clock, called = StoppedClock(), list[str]()
    timers, before = Timers(clock), len(asyncio.all_tasks())
    name: ContextVar[str] = ContextVar("name", default="")
    name.set("of who requests the call")
    timers.call_at(3.0, lambda: called.append("third" + name.get()))
    timers.call_at(1.0, lambda: called.append("first"))  # earlier than the task would have woken
    timers.call_at(2.0, lambda: called.append("second"))
    timers.call_at(2.0, lambda: called.append("second, later"))
    await settle()
    assert len(asyncio.all_tasks()) == before + 1 and clock.sleeping == 1
    await clock.advance(1.5)
    assert called == ["first"] and len(timers) == 3
    timers.call_at(1.0, lambda: called.append("due already"))
    await clock.advance(2.0)
    assert called == ["first", "due already", "second", "second, later", "third"]
    assert len(asyncio.all_tasks()) == before and len(timers) == 0


async def test_timers_shrink_when_calls_are_cancelled() -> None:
    clock, called = StoppedClock(), list[int]()
    timers, before = Timers(clock), len(asyncio.all_tasks())
    made = [timers.call_at(float(10 + number), partial(called.append, number)) for number in range(100)]
    for timer in made[:99]:
        timers.cancel(timer)
    assert len(timers) == 1 and len(timers._heap) <= 2
    await clock.advance(200.0)
    assert called == [99]
    timers.cancel(made[99])
    last = timers.call_at(300.0, lambda: called.append(300))
    await settle()
    timers.cancel(last)
    timers.cancel(last)
    await settle()
    assert len(asyncio.all_tasks()) == before and len(timers) == 0


async def test_a_failed_timer_does_not_prevent_others(caplog: pytest.LogCaptureFixture) -> None:
    clock, called = StoppedClock(), list[int]()
    timers = Timers(clock)

    def fail() -> None:
        raise ValueError("broken")

    timers.call_at(1.0, fail)
    for number in range(40):  # more than are called in one iteration of the loop
        timers.call_at(1.0, partial(called.append, number))
    timers.call_at(2.0, lambda: called.append(-1))
    await clock.advance(1.0)
    assert called == [*range(40)] and "a timer failed" in caplog.messages
    await timers.stop()
    await clock.advance(5.0)
    assert called == [*range(40)]
