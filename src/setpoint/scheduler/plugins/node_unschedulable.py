"""NodeUnschedulable: rejects cordoned nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from setpoint.meta.tolerations import NO_SCHEDULE, untolerated
from setpoint.scheduler.cluster_events import NODE, TARGET_POD, Action, ClusterEvent
from setpoint.scheduler.framework import Cycle, FilterBase, Interest, Refusal

Obj = dict[str, Any]
REASON = "node(s) were unschedulable"
_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": NO_SCHEDULE}


class NodeUnschedulable(FilterBase):
    name = "NodeUnschedulable"

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        if untolerated((_CORDON,), cycle.demand.tolerations) is None:
            return ()
        return (Refusal(REASON, cycle.table.cordoned, unresolvable=True),)

    def interests(self) -> Iterable[Interest]:
        return (
            Interest(ClusterEvent(NODE, Action.ADD | Action.NODE_TAINT), _opened),
            Interest(ClusterEvent(TARGET_POD, Action.POD_TOLERATION), _tolerates_cordon),
        )


def _opened(pod: Obj, old: Obj | None, new: Obj | None) -> bool:
    was_closed = old is None or bool((old.get("spec") or {}).get("unschedulable"))
    return was_closed and not ((new or {}).get("spec") or {}).get("unschedulable")


def _tolerates_cordon(pod: Obj, old: Obj | None, new: Obj | None) -> bool:
    return new is not None and untolerated((_CORDON,), new["spec"].get("tolerations") or ()) is None
