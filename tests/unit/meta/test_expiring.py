"""Answers that are kept for a while."""

from __future__ import annotations

from datetime import UTC, datetime

from setpoint.meta.expiring import Expiring


class HandClock:
    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


def test_kept_until_its_time_is_over() -> None:
    clock = HandClock()
    answers: Expiring[str, str] = Expiring(2, clock)
    answers.keep("a", "yes", 10.0)
    clock.at = 9.9
    assert answers.get("a") == "yes"
    clock.at = 10.0
    assert answers.get("a") is None
    answers.keep("a", "no", 10.0)
    assert answers.get("a") == "no"
    answers.clear()
    assert answers.get("a") is None


def test_those_kept_first_go_first() -> None:
    answers: Expiring[str, int] = Expiring(2, HandClock())
    for number, name in enumerate(("a", "b", "a", "c")):
        answers.keep(name, number, 1.0)
    assert [answers.get(name) for name in ("a", "b", "c")] == [2, None, 3]
