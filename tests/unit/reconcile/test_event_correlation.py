"""The event correlator evicts state as soon as it can no longer matter."""

from __future__ import annotations

from live_objects import collector_off, live
from stopped_clock import StoppedClock

from setpoint.reconcile.event_correlation import Correlator, EventIdentity, _Aggregate, _Tokens


async def test_what_makes_no_difference_any_more_is_forgotten() -> None:
    clock = StoppedClock()
    correlator = Correlator(clock)

    def tell(number: int) -> None:
        about = ("Pod", "default", f"web-{number}", f"uid-{number}", "v1")
        identity = EventIdentity(("kubelet", "node-1"), about, "", "Normal", "Started", "Container started")
        assert correlator.correlate(identity, f"web-{number}.1", "2026-01-01T00:00:00Z") is not None

    with collector_off():
        for number in range(100):
            tell(number)
        assert live(_Aggregate, _Tokens) == {"_Aggregate": 100, "_Tokens": 100}
        await clock.advance(601)  # more than the time in which events are combined, and in which a token comes back
        tell(100)
        assert live(_Aggregate, _Tokens) == {"_Aggregate": 1, "_Tokens": 1}
