"""Delaying and rate-limiting workqueues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from stopped_clock import StoppedClock, settle

from setpoint.reconcile.workqueue import Bucket, ExponentialBackoff, RateLimitingQueue


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
async def queue(clock: StoppedClock) -> AsyncIterator[RateLimitingQueue]:
    queue = RateLimitingQueue(clock)
    running = asyncio.ensure_future(queue.run())
    await settle()
    yield queue
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_delayed_key_is_added_when_it_is_due(queue: RateLimitingQueue, clock: StoppedClock) -> None:
    queue.add_after("late", 10)
    queue.add_after("soon", 1)
    await clock.advance(0.9)
    assert len(queue) == 0
    await clock.advance(0.2)
    assert await queue.get() == "soon"
    await clock.advance(10)
    assert await queue.get() == "late"


async def test_the_earlier_of_two_delays_counts_and_the_key_is_added_once(
    queue: RateLimitingQueue, clock: StoppedClock
) -> None:
    queue.add_after("a", 10)
    queue.add_after("a", 2)
    queue.add_after("a", 5)
    await clock.advance(2)
    assert len(queue) == 1
    await clock.advance(20)
    assert len(queue) == 1
    assert queue.delayed == 0


async def test_a_zero_delay_adds_the_key_at_once(queue: RateLimitingQueue) -> None:
    queue.add_after("a", 0)
    assert len(queue) == 1


async def test_the_backoff_doubles_until_it_is_reset(queue: RateLimitingQueue, clock: StoppedClock) -> None:
    for wait in (0.005, 0.01, 0.02):
        queue.add_rate_limited("a")
        await clock.advance(wait * 0.9)
        assert len(queue) == 0
        await clock.advance(wait * 0.2)
        queue.done(await queue.get())
    queue.forget("a")
    queue.add_rate_limited("a")
    await clock.advance(0.006)
    assert len(queue) == 1


def test_the_backoff_is_bounded() -> None:
    backoff = ExponentialBackoff()
    waits = [backoff.when("a") for _ in range(100)]
    assert waits[:3] == [0.005, 0.01, 0.02]
    assert waits[-1] == 1000.0
    assert backoff.when("b") == 0.005


def test_the_bucket_limits_all_keys_together_after_a_burst(clock: StoppedClock) -> None:
    bucket = Bucket(clock, rate=10, burst=100)
    waits = [bucket.when(str(number)) for number in range(120)]
    assert waits[:100] == [0.0] * 100
    assert waits[-1] == pytest.approx(2.0)
