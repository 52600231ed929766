"""Virtual time for tests; see `setpoint.cluster.virtual.time`."""

from __future__ import annotations

from setpoint.cluster.virtual.time import EPOCH, VirtualClock, VirtualDeadlock, VirtualLoop, run_virtual

__all__ = ["EPOCH", "VirtualClock", "VirtualDeadlock", "VirtualLoop", "run_virtual"]
