"""Entries of a cache expire, and the oldest is evicted first."""

from __future__ import annotations

from stopped_clock import StoppedClock

from setpoint.meta.caching import TtlCache


async def test_entries_expire() -> None:
    clock = StoppedClock()
    answers: TtlCache[str, str] = TtlCache(2, clock)
    answers.put("a", "yes", 10.0)
    await clock.advance(9.9)
    assert answers.get("a") == "yes"
    await clock.advance(0.2)
    assert answers.get("a") is None
    answers.put("a", "no", 10.0)
    assert answers.get("a") == "no"
    answers.clear()
    assert answers.get("a") is None


def test_the_oldest_entry_is_evicted_first() -> None:
    answers: TtlCache[str, int] = TtlCache(2, StoppedClock())
    for number, name in enumerate(("a", "b", "a", "c")):
        answers.put(name, number, 1.0)
    assert [answers.get(name) for name in ("a", "b", "c")] == [2, None, 3]
