from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from stopped_clock import settle

from setpoint.node.host.pod_executor import KeyedLocks, PodExecutor, concurrent_starts


@pytest.fixture
async def executor() -> AsyncIterator[PodExecutor]:
    made = PodExecutor(starts=2)
    yield made
    await made.stop()


class Work:
    """Work that ends when it is released."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.released = asyncio.Event()

    def named(self, name: str) -> Callable[[], Coroutine[Any, Any, str]]:
        async def work() -> str:
            self.begun.append(name)
            await self.released.wait()
            return name

        return work


async def test_operations_of_a_pod_run_one_after_the_other(executor: PodExecutor) -> None:
    work, changed = Work(), list[str]()
    executor.on_change = changed.append
    first = executor.run_in_order("a", work.named("1"), str)
    second = executor.run_in_order("a", work.named("2"), str)
    other = executor.run_in_order("b", work.named("3"), str)
    await settle()
    assert work.begun == ["1", "3"] and first.result(0) is None and first.ready_at is None
    work.released.set()
    await settle()
    assert (first.result(0), second.result(0), other.result(0)) == ("1", "2", "3")
    assert sorted(changed) == ["a", "a", "b"] and executor.busy_pods == 0


async def test_starts_are_bounded_over_all_pods(executor: PodExecutor) -> None:
    work = Work()
    for name in "abc":
        executor.run_in_order(name, work.named(name), str, is_start=True)
    executor.run_in_order("d", work.named("not a start"), str)
    await settle()
    assert work.begun == ["not a start", "a", "b"] or work.begun == ["a", "b", "not a start"]
    work.released.set()
    await settle()
    assert work.begun[-1] == "c"


async def test_a_failure_is_a_result(executor: PodExecutor) -> None:
    async def fail() -> str:
        raise ValueError("why")

    operation = executor.run("a", fail, lambda error: f"failed: {error}")
    await settle()
    assert operation.result(0) == "failed: why"


async def test_a_waiting_operation_can_be_cancelled_and_a_running_one_ends(executor: PodExecutor) -> None:
    work, changed = Work(), list[str]()
    executor.on_change = changed.append
    running = executor.run_in_order("a", work.named("running"), str)
    waiting = executor.run_in_order("a", work.named("waiting"), str)
    await settle()
    running.cancel()
    waiting.cancel()
    await settle()
    work.released.set()
    await settle()
    assert work.begun == ["running"] and running.result(0) == "running" and waiting.result(0) is None
    assert changed == [] and executor.busy_pods == 0


async def test_an_interruptible_operation_ends_when_it_is_cancelled(executor: PodExecutor) -> None:
    ended = asyncio.Event()

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    operation = executor.run("a", work, str)
    await settle()
    operation.cancel()
    await asyncio.wait_for(ended.wait(), 5)
    assert operation.result(0) is None
    operation.cancel()


async def test_keyed_locks_are_fair_and_take_no_memory_afterwards() -> None:
    locks, order = KeyedLocks(), list[int]()

    async def take(number: int) -> None:
        async with locks.hold("key"):
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(take(number) for number in range(5)))
    assert order == [0, 1, 2, 3, 4] and len(locks) == 0


def test_concurrent_starts_depend_on_the_machine() -> None:
    assert [concurrent_starts(cores) for cores in (0, 1, 2, 4, 64)] == [1, 10, 20, 40, 40]
