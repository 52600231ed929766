"""The event correlator evicts state as soon as it can no longer matter."""

from __future__ import annotations

from live_objects import collector_off, live
from stopped_clock import StoppedClock

from setpoint.reconcile.events import Correlator, EventIdentity, _Aggregate, _Tokens


async def test_irrelevant_state_is_evicted() -> None:
    clock = StoppedClock()
    correlator = Correlator(clock)

    def record(number: int) -> None:
        about = ("Pod", "default", f"web-{number}", f"uid-{number}", "v1")
        identity = EventIdentity(("kubelet", "node-1"), about, "", "Normal", "Started", "Container started")
        assert correlator.correlate(identity, f"web-{number}.1", "2026-01-01T00:00:00Z") is not None

    with collector_off():
        for number in range(100):
            record(number)
        assert live(_Aggregate, _Tokens) == {"_Aggregate": 100, "_Tokens": 100}
        await clock.advance(601)  # longer than the aggregation interval and the refill of a token
        record(100)
        assert live(_Aggregate, _Tokens) == {"_Aggregate": 1, "_Tokens": 1}
