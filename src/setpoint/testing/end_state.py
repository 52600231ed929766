"""The end state of a cluster without random values; see `setpoint.cluster.virtual.end_state`."""

from __future__ import annotations

from setpoint.cluster.virtual.end_state import EndState, differences, end_state

__all__ = ["EndState", "differences", "end_state"]
