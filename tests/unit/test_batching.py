"""`CallBatcher`: coroutines that are written as if each were alone, and calls that are made together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from setpoint import batching
from setpoint.batching import CallBatcher

current: ContextVar[str] = ContextVar("current", default="nobody")


class Server:
    """Doubles numbers, many at once. It refuses negative ones."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.single: list[int] = []
        self.held: asyncio.Event | None = None
        """If it is set, calls wait for it."""
        self.batcher = CallBatcher[int, int](self._double_all)

    async def _double_all(self, numbers: Sequence[int]) -> Sequence[int | Exception]:
        self.calls.append(list(numbers))
        await asyncio.sleep(0)
        if self.held is not None:
            await self.held.wait()
        return [ValueError(str(number)) if number < 0 else 2 * number for number in numbers]

    async def double(self, number: int) -> int:
        if self.batcher.is_running:
            return await self.batcher.call(number)
        self.single.append(number)
        await asyncio.sleep(0)
        return 2 * number

    async def run(self, *coroutines: Callable[[], Coroutine[Any, Any, Any]]) -> list[Any]:
        return await self.batcher.run(coroutines)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(batching, "_MAX_SECONDS", 3600.0)  # a busy machine does not divide the calls
    return Server()


async def test_calls_are_made_together_and_results_are_in_order(server: Server) -> None:
    assert await server.run(*(partial(server.double, number) for number in range(5))) == [0, 2, 4, 6, 8]
    assert server.calls == [[0, 1, 2, 3, 4]]
    assert await server.run() == []


async def test_each_fails_by_itself(server: Server) -> None:
    async def fails() -> int:
        raise KeyError("early")

    results = await server.run(partial(server.double, 1), partial(server.double, -1), fails, partial(server.double, 2))
    assert [str(each) for each in results] == ["2", "-1", "'early'", "4"]
    assert isinstance(results[1], ValueError) and isinstance(results[2], KeyError)


async def test_a_failure_of_the_whole_call_is_that_of_each(server: Server) -> None:
    async def broken(numbers: Sequence[int]) -> Sequence[int]:
        raise OSError("gone")

    server.batcher = CallBatcher[int, int](broken)
    results = await server.run(partial(server.double, 1), partial(server.double, 2))
    assert [str(each) for each in results] == ["gone", "gone"]


async def test_a_coroutine_may_call_again(server: Server) -> None:
    async def twice(number: int) -> int:
        return await server.double(await server.double(number))

    assert await server.run(partial(twice, 1), partial(server.double, 5), partial(twice, 2)) == [4, 10, 8]
    assert server.calls == [[1, 5, 2], [2, 4]]


async def test_each_has_its_own_context(server: Server) -> None:
    async def one(name: str) -> tuple[str, str]:
        current.set(name)
        await server.double(1)
        return name, current.get()

    assert await server.run(partial(one, "a"), partial(one, "b")) == [("a", "a"), ("b", "b")]
    assert current.get() == "nobody"


async def test_calls_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "_MAX_CALLS", 3)
    await server.run(*(partial(server.double, number) for number in range(7)))
    assert server.calls == [[0, 1, 2], [3, 4, 5], [6]]


async def test_others_run_between_slices(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "_MAX_SECONDS", 0.0)
    seen: list[int] = []

    async def work(number: int) -> None:  # it never waits for anything
        seen.append(number)

    async def other() -> None:
        seen.append(-1)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(other())
        await server.run(*(partial(work, number) for number in range(3)))
    assert seen == [0, -1, 1, 2]


async def test_one_that_waits_for_something_else_delays_no_other(server: Server) -> None:
    arrived, done = asyncio.Event(), list[int]()

    async def waits(number: int) -> int:
        await arrived.wait()
        return await server.double(number)

    async def notes(number: int) -> int:
        result = await server.double(number)
        done.append(number)
        return result

    running = asyncio.ensure_future(
        server.run(partial(notes, 1), partial(notes, 2), partial(waits, 3), partial(notes, 4), partial(waits, 5))
    )
    for _ in range(10):
        await asyncio.sleep(0)
    assert done == [4, 1, 2] or done == [1, 2, 4]
    assert server.calls == [[1, 2]] and server.single == [4]
    arrived.set()
    assert await running == [2, 4, 6, 8, 10]


async def test_a_timeout_of_one_coroutine_ends_that_one_alone(server: Server) -> None:
    server.held = asyncio.Event()

    async def impatient() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            assert server.held is not None
            server.held.set()
            return "late"
        return "never"

    # The call of the first one is under way when the timeout of the second one passes.
    assert await server.run(partial(server.double, 1), impatient, partial(server.double, 3)) == [2, "late", 6]


async def test_cancellation_reaches_each_coroutine(server: Server) -> None:
    server.held = asyncio.Event()
    ended: list[str] = []

    async def one(name: str, awaited: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            await awaited()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # it may clean up
            ended.append(name)
            raise

    forever = asyncio.Event().wait
    coroutines = [
        partial(one, "called", partial(server.double, 1)),
        partial(one, "waiting", forever),
        partial(one, "concurrent", forever),
    ]
    for count, expected in ((1, ["called"]), (3, ["called", "concurrent", "waiting"])):
        ended.clear()
        running = asyncio.ensure_future(server.run(*coroutines[:count]))
        for _ in range(5):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert sorted(ended) == expected
