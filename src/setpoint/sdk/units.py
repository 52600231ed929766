"""Values as users write them in specs: durations (`1m30s`) and quantities (`10Gi`)."""

from __future__ import annotations

from setpoint.meta.quantity import compare as compare_quantities
from setpoint.meta.times import parse_duration

__all__ = ["compare_quantities", "seconds"]


def seconds(duration: str) -> float:
    """Return the seconds of a duration such as `1m30s`. Raise ValueError if it is invalid."""
    return parse_duration(duration) / 1e9
