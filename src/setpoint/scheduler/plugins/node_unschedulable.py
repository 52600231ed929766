"""NodeUnschedulable: rejects cordoned nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from setpoint.meta.node_fit import NO_SCHEDULE, untolerated
from setpoint.meta.node_labels import TAINT_UNSCHEDULABLE
from setpoint.scheduler.cluster_events import NODE, TARGET_POD, Action, ClusterEvent
from setpoint.scheduler.framework import Cycle, FilterBase, Interest, Refusal

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod

REASON = "node(s) were unschedulable"
_UNSCHEDULABLE_TAINT = {"key": TAINT_UNSCHEDULABLE, "effect": NO_SCHEDULE}


class NodeUnschedulable(FilterBase):
    name = "NodeUnschedulable"

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        if untolerated((_UNSCHEDULABLE_TAINT,), cycle.demand.tolerations) is None:
            return ()
        return (Refusal(REASON, cycle.table.cordoned, unresolvable=True),)

    def interests(self) -> Iterable[Interest]:
        return (
            Interest(ClusterEvent(NODE, Action.ADD | Action.NODE_TAINT), _uncordoned),
            Interest(ClusterEvent(TARGET_POD, Action.POD_TOLERATION), _tolerates_unschedulable),
        )


def _uncordoned(pod: Pod, old: Node | None, new: Node | None) -> bool:
    was_cordoned = old is None or bool((old.get("spec") or {}).get("unschedulable"))
    return was_cordoned and not ((new or {}).get("spec") or {}).get("unschedulable")


def _tolerates_unschedulable(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    return new is not None and untolerated((_UNSCHEDULABLE_TAINT,), new["spec"].get("tolerations") or ()) is None
