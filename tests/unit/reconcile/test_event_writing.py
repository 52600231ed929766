"""Events are written after the objects they refer to, with a bounded delay."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from stopped_clock import StoppedClock

from setpoint.meta.errors import ServiceUnavailable
from setpoint.reconcile import events
from setpoint.reconcile.events import EventWriteQueue

WRITE = 0.1
"""Seconds that a write takes, however many there are: the server is busy with other things."""


class WriteRecorder:
    """Records writes, each with its delay."""

    def __init__(self, clock: StoppedClock) -> None:
        self.clock = clock
        self.writing = EventWriteQueue("tester", clock)
        self.numbers: list[int] = []
        self.lags: list[float] = []

    def put(self, number: int, source: str = "") -> None:
        put_at = self.clock.monotonic()

        async def write() -> None:
            await self.clock.sleep(WRITE)
            self.numbers.append(number)
            self.lags.append(self.clock.monotonic() - put_at)

        self.writing.put(number, write, source)

    async def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / WRITE * 2)):
            await self.clock.advance(WRITE / 2)


@pytest.fixture
async def written() -> AsyncIterator[WriteRecorder]:
    found = WriteRecorder(StoppedClock())
    task = asyncio.ensure_future(found.writing.run())
    yield found
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_burst_is_written_in_batches_with_pauses(written: WriteRecorder) -> None:
    for number in range(32):
        written.put(number)
    await written.clock.advance(0)
    await written.clock.advance(0.15)
    assert written.numbers == [*range(16)]
    await written.clock.advance(0.2)  # three times the duration of the batch
    assert written.numbers == [*range(16)]
    await written.clock.advance(0.2)
    assert written.numbers == [*range(32)]


async def test_late_events_are_written_without_pauses(written: WriteRecorder) -> None:
    for number in range(1_000):
        written.put(number)
    await written.pass_time(10)
    assert written.numbers == [*range(1_000)] and written.writing.dropped == 0


async def test_no_event_is_delayed_for_more_than_30_seconds(written: WriteRecorder) -> None:
    for number in range(4_000):  # 400 per second, more than twice the possible rate
        written.put(number)
        if number % 40 == 39:
            await written.pass_time(WRITE)
    await written.pass_time(60)
    assert max(written.lags) <= 30 + WRITE
    assert len(written.writing) == 0


async def test_events_that_wait_too_long_are_dropped_and_counted(written: WriteRecorder) -> None:
    written.put(1)
    queued = written.writing._queued[""]
    queued[1] = queued[1]._replace(since=written.clock.monotonic() - 31)
    await written.pass_time(1)
    assert written.numbers == [] and written.writing.dropped == 1


async def test_sources_are_served_in_turn(written: WriteRecorder) -> None:
    for number in range(100):
        written.put(number, "loud")
    written.put(1_000, "quiet")
    written.put(1_001, "quiet")
    await written.pass_time(WRITE)
    assert {1_000, 1_001} <= set(written.numbers)


async def test_a_full_queue_drops_the_oldest_event_of_the_largest_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "_MAX_QUEUED", 10)
    found = WriteRecorder(StoppedClock())
    found.put(1_000, "quiet")
    for number in range(20):
        found.put(number, "loud")
    assert len(found.writing) == 10 and found.writing.dropped == 11
    task = asyncio.ensure_future(found.writing.run())
    await found.pass_time(10)
    assert sorted(found.numbers) == [*range(11, 20), 1_000]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("seed", range(20))
async def test_every_dropped_event_is_of_the_largest_source(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(events, "_MAX_QUEUED", 30)
    rng, found = random.Random(seed), WriteRecorder(StoppedClock())
    queued = found.writing._queued
    sources = [f"source-{number}" for number in range(rng.choice((3, 8, 40)))]
    for number in range(400):
        if rng.random() < 0.02:
            found.writing._batch(0.0)
        source = rng.choice(sources if rng.random() < 0.8 else sources[:2])
        before = {each: [*waiting] for each, waiting in queued.items()}
        full, before[source] = len(found.writing) == 30, [*before.get(source, ()), number]
        found.put(number, source)
        lost = {each: on for each, on in before.items() if on != [*queued.get(each, ())]}
        assert len(lost) == full
        for each, on in lost.items():
            assert on[1:] == [*queued.get(each, ())] and len(on) == max(map(len, before.values()))
    assert found.writing.dropped > 100


async def test_only_the_last_write_of_a_key_is_made(written: WriteRecorder) -> None:
    written_texts: list[str] = []
    for text in ("first", "second"):

        async def write(text: str = text) -> None:
            written_texts.append(text)

        written.writing.put("same", write)
    await written.pass_time(1)
    assert written_texts == ["second"] and len(written.writing) == 0


async def test_a_failed_write_does_not_delay_others(written: WriteRecorder) -> None:
    async def fail() -> None:
        raise ServiceUnavailable("no")

    written.writing.put("fails", fail)
    written.put(1)
    await written.pass_time(1)
    assert written.numbers == [1]


async def test_events_about_one_object_are_written_in_order(written: WriteRecorder) -> None:
    done: list[str] = []

    def put(name: str, seconds: float, about: str) -> None:
        async def write() -> None:
            await written.clock.sleep(seconds)
            done.append(name)

        written.writing.put(name, write, about=about)

    put("pulling", 0.5, "pod")
    put("pulled", 0.1, "pod")
    put("another", 0.2, "other pod")
    await written.pass_time(1)
    assert done == ["another", "pulling", "pulled"]
