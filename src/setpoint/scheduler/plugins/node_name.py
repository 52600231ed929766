"""NodeName: restricts a Pod to the node it names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from setpoint.scheduler.cluster_events import NODE, Action, ClusterEvent
from setpoint.scheduler.framework import Cycle, FilterBase, Interest, Refusal

REASON = "node(s) didn't match the requested node name"


class NodeName(FilterBase):
    name = "NodeName"

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        wanted = cycle.pod["spec"].get("nodeName")
        if not wanted:
            return ()
        where = np.ones(cycle.table.capacity, dtype=np.bool_)
        slot = cycle.table.slots.get(wanted)
        if slot is not None:
            where[slot] = False
        return (Refusal(REASON, where, unresolvable=True),)

    def interests(self) -> Iterable[Interest]:
        return (Interest(ClusterEvent(NODE, Action.ADD)),)
