from __future__ import annotations

import logging

import pytest
from running_loops import RunningLoops
from server_harness import VirtualClock, settle

from setpoint.apiserver.upkeep.loop import KeyedLoop, every
from setpoint.meta.errors import BadRequest


async def test_due_keys_are_deduplicated(running: RunningLoops) -> None:
    seen: list[str] = []

    async def sync(key: str) -> None:
        seen.append(key)

    loop = KeyedLoop("test", VirtualClock(), sync)
    loop.due("a", "b", "a")
    running.start(loop.run())
    await settle()
    assert seen == ["a", "b"]
    loop.due("a")
    await settle()
    assert seen == ["a", "b", "a"]


async def test_a_failing_key_is_retried_with_backoff(running: RunningLoops, caplog: pytest.LogCaptureFixture) -> None:
    clock, moments = VirtualClock(), []

    async def sync(key: str) -> None:
        moments.append(round(clock.monotonic() - 1000, 2))
        if len(moments) < 5:
            raise BadRequest("no") if len(moments) < 4 else ZeroDivisionError("a mistake of ours")

    loop = KeyedLoop("test", clock, sync)
    loop.due("a")
    running.start(loop.run())
    with caplog.at_level(logging.CRITICAL):
        await clock.advance(10)
    assert moments == [0.0, 0.05, 0.15, 0.35, 0.75]


async def test_a_key_can_be_requeued_after_a_delay(running: RunningLoops) -> None:
    clock, moments = VirtualClock(), []

    async def sync(key: str) -> float | None:
        moments.append(clock.monotonic() - 1000)
        return 7.0 if len(moments) == 1 else None

    loop = KeyedLoop("test", clock, sync)
    loop.due("a")
    running.start(loop.run())
    await clock.advance(100)
    assert moments == [0.0, 7.0]


async def test_periodic_tasks_continue_after_a_failure(running: RunningLoops) -> None:
    clock, turns = VirtualClock(), []

    async def do() -> None:
        turns.append(clock.monotonic() - 1000)
        raise BadRequest("no")

    running.start(every("test", clock, 10, do, immediately=False))
    await clock.advance(35)
    assert turns == [10.0, 20.0, 30.0]
