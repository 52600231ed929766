"""SchedulingGates: holds back Pods with gates. The queue retains them; this plugin registers the event that releases
them."""

from __future__ import annotations

from collections.abc import Iterable

from setpoint.scheduler.cluster_events import TARGET_POD, Action, ClusterEvent
from setpoint.scheduler.framework import Interest


class SchedulingGates:
    name = "SchedulingGates"

    def interests(self) -> Iterable[Interest]:
        return (Interest(ClusterEvent(TARGET_POD, Action.POD_GATES_ELIMINATED)),)
