"""Time limits of blocking calls, in time that the test sets."""

from __future__ import annotations

import pytest

from setpoint.cli.main import run_blocking
from setpoint.system import BlockingClock
from setpoint.wire.time_limits import LimitReached, TimeLimits


class Time:
    def __init__(self) -> None:
        self.at = 100.0
        self.limits = TimeLimits(lambda: self.at)

    def pass_(self, seconds: float) -> None:
        """Do what a blocking call does that takes so long."""
        left = self.limits.remaining()
        if left is not None and left <= seconds:
            self.at += left
            raise self.limits.reached()
        self.at += seconds


def test_without_a_limit_calls_may_take_any_time() -> None:
    time = Time()
    assert time.limits.remaining() is None
    time.pass_(1e9)


def test_a_limit_bounds_all_calls_of_its_block_together() -> None:
    time = Time()

    async def work() -> None:
        async with time.limits.within(10):
            time.pass_(6)
            assert time.limits.remaining() == 4
            time.pass_(6)

    with pytest.raises(TimeoutError):
        run_blocking(work())
    assert time.at == 110
    assert time.limits.remaining() is None


@pytest.mark.parametrize(("outer", "inner", "reached"), [(10, 3, "inner"), (3, 10, "outer")])
def test_the_first_of_nested_limits_is_the_one_that_is_reached(outer: float, inner: float, reached: str) -> None:
    time = Time()

    async def work() -> str:
        try:
            async with time.limits.within(outer):
                try:
                    async with time.limits.within(inner):
                        try:
                            time.pass_(60)
                        except Exception:
                            pytest.fail("it must pass through what handles errors")
                except TimeoutError:
                    return "inner"
        except TimeoutError:
            return "outer"
        return "none"

    assert run_blocking(work()) == reached
    assert time.at == 103


def test_a_block_that_begins_after_the_outer_limit_does_nothing() -> None:
    time = Time()

    async def work() -> None:
        async with time.limits.within(5):
            time.at += 6
            async with time.limits.within(50):
                time.limits.remaining()
                pytest.fail("there is no time left")

    with pytest.raises(TimeoutError):
        run_blocking(work())


def test_other_errors_of_a_block_are_not_changed() -> None:
    time = Time()

    async def work(error: BaseException) -> None:
        async with time.limits.within(5):
            raise error

    for error in (ValueError(), TimeoutError("of something else"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised:
            run_blocking(work(error))
        assert raised.value is error


def test_a_blocking_clock_sleeps_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slept = BlockingClock(), list[float]()
    clock.limits.monotonic = lambda: 100.0
    monkeypatch.setattr("time.sleep", slept.append)

    async def work() -> None:
        await clock.sleep(3)
        async with clock.limits.within(5):
            await clock.sleep(3)
            await clock.sleep(7)

    with pytest.raises(TimeoutError):
        run_blocking(work())
    assert slept == [3, 3, 5]


def test_the_exception_is_not_one_that_commands_handle() -> None:
    assert not issubclass(LimitReached, Exception)
