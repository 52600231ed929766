"""NodePorts: rejects nodes whose host ports are in use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from setpoint.kinds.core.pod_demand import host_ports, ports_conflict
from setpoint.scheduler.cluster_events import ASSIGNED_POD, NODE, Action, ClusterEvent
from setpoint.scheduler.framework import Cycle, FilterBase, Interest, Refusal

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

REASON = "node(s) didn't have free ports for the requested pod ports"


class NodePorts(FilterBase):
    name = "NodePorts"

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        conflicting = {
            slot
            for wanted in cycle.demand.ports
            for slot, used in cycle.snapshot.ports.get((wanted[0], wanted[2]), {}).items()
            if any(ports_conflict(wanted, port) for port in used)
        }
        if not conflicting:
            return ()
        where = np.zeros(cycle.table.capacity, dtype=np.bool_)
        where[list(conflicting)] = True
        return (Refusal(REASON, where),)

    def depends_on_pods(self, cycle: Cycle) -> bool:
        return bool(cycle.demand.ports)

    def interests(self) -> Iterable[Interest]:
        return (
            Interest(ClusterEvent(ASSIGNED_POD, Action.DELETE), _freed_a_port),
            Interest(ClusterEvent(NODE, Action.ADD)),
        )


def _freed_a_port(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    freed = host_ports((old or {"spec": {}})["spec"])
    return any(ports_conflict(wanted, port) for wanted in host_ports(pod["spec"]) for port in freed)
