"""Answers that are kept for a while."""

from __future__ import annotations

from stopped_clock import StoppedClock

from setpoint.meta.ttl_cache import TtlCache


async def test_kept_until_its_time_is_over() -> None:
    clock = StoppedClock()
    answers: TtlCache[str, str] = TtlCache(2, clock)
    answers.keep("a", "yes", 10.0)
    await clock.advance(9.9)
    assert answers.get("a") == "yes"
    await clock.advance(0.2)
    assert answers.get("a") is None
    answers.keep("a", "no", 10.0)
    assert answers.get("a") == "no"
    answers.clear()
    assert answers.get("a") is None


def test_those_kept_first_go_first() -> None:
    answers: TtlCache[str, int] = TtlCache(2, StoppedClock())
    for number, name in enumerate(("a", "b", "a", "c")):
        answers.keep(name, number, 1.0)
    assert [answers.get(name) for name in ("a", "b", "c")] == [2, None, 3]
