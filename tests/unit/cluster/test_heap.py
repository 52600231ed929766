"""Return of free memory to the system."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from setpoint.cluster.heap import INTERVAL, trim_while_quick
from setpoint.system import trim_heap

MIB = 1 << 20


class StopTest(Exception): ...


class Ticks:
    """A clock during whose sleeps memory is freed; it ends the test when nothing is left."""

    def __init__(self, *freed: int) -> None:
        self._more = iter(freed)
        self.freed = 0
        self.round = 0
        self.time = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        assert seconds == INTERVAL
        self.round += 1
        found = next(self._more, None)
        if found is None:
            raise StopTest
        self.freed += found


@pytest.mark.parametrize(
    ("freed", "rounds"),
    [
        ((0, 0, 0, 0), []),
        ((8 * MIB, 0, 0, 0), [2]),
        ((MIB // 2, MIB // 2, 0, 0, 0), [3]),
        ((MIB, MIB, MIB, 0, 0), [2, 3, 4]),
        ((MIB - 1, 0, 0, 0, 1, 0, 0), [6]),
    ],
)
async def test_the_heap_is_trimmed_an_interval_after_much_was_freed(freed: tuple[int, ...], rounds: list[int]) -> None:
    clock, trimmed = Ticks(*freed), list[int]()
    with pytest.raises(StopTest):
        await trim_while_quick(lambda: clock.freed, lambda: trimmed.append(clock.round), clock)
    assert trimmed == rounds


async def test_it_ends_when_trimming_takes_too_long() -> None:
    clock, trimmed = Ticks(MIB, MIB, MIB, MIB, MIB), list[int]()

    def trim() -> None:
        trimmed.append(clock.round)
        clock.time += 0.02 if clock.round == 3 else 0.01

    await trim_while_quick(lambda: clock.freed, trim, clock)
    assert trimmed == [2, 3]


def test_this_machine_can_be_asked_to_trim_its_heap() -> None:
    trim_heap()
