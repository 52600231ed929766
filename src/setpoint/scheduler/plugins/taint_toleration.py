"""TaintToleration: rejects nodes with untolerated taints and prefers nodes with few PreferNoSchedule taints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from setpoint.meta.node_fit import tolerates, untolerated
from setpoint.meta.objects import ObjView
from setpoint.scheduler.cluster_events import NODE, TARGET_POD, Action, ClusterEvent
from setpoint.scheduler.demand import Demand
from setpoint.scheduler.framework import Cycle, FilterBase, Interest, Refusal, normalized
from setpoint.scheduler.node_table import Ints, Mask, NodeTable

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod

REASON = "node(s) had untolerated taint(s)"
_REPELLED, _AVOIDED = "repelling taints", "avoided taints"


class TaintToleration(FilterBase):
    name = "TaintToleration"

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        where = repelled(cycle.demand, cycle.table)
        return () if where is None else (Refusal(REASON, where, unresolvable=True),)

    def score(self, cycle: Cycle, feasible: Mask) -> Ints | None:
        counts = _avoided(cycle.demand, cycle.table)
        return None if counts is None else normalized(counts, feasible, reverse=True)

    def interests(self) -> Iterable[Interest]:
        return (
            Interest(ClusterEvent(NODE, Action.ADD | Action.NODE_TAINT), _became_tolerable),
            Interest(ClusterEvent(TARGET_POD, Action.POD_TOLERATION)),
        )


def repelled(demand: Demand, table: NodeTable) -> Mask | None:
    """Return the slots with an untolerated taint, or None if there is none."""
    known = demand.cache.get(_REPELLED)
    if known is not None and known[0] == table.version:
        where: Mask | None = known[1]
        return where
    verdicts = [untolerated(taints, demand.tolerations) is not None for taints in table.taint_sets]
    where = np.array(verdicts)[table.taints] if any(verdicts) else None
    demand.cache[_REPELLED] = (table.version, where)
    return where


def _avoided(demand: Demand, table: NodeTable) -> Ints | None:
    known = demand.cache.get(_AVOIDED)
    if known is not None and known[0] == table.version:
        counts: Ints | None = known[1]
        return counts
    numbers = [_untolerated_preferences(taints, demand.tolerations) for taints in table.taint_sets]
    counts = np.array(numbers, dtype=np.int64)[table.taints] if any(numbers) else None
    demand.cache[_AVOIDED] = (table.version, counts)
    return counts


def _untolerated_preferences(taints: Iterable[Mapping[str, Any]], tolerations: Iterable[ObjView]) -> int:
    return sum(
        taint["effect"] == "PreferNoSchedule" and not any(tolerates(each, taint) for each in tolerations)
        for taint in taints
    )


def _became_tolerable(pod: Pod, old: Node | None, new: Node | None) -> bool:
    tolerations = pod["spec"].get("tolerations") or ()
    repelled_before = old is None or _repels(old, tolerations)
    return repelled_before and new is not None and not _repels(new, tolerations)


def _repels(node: Node, tolerations: Sequence[ObjView]) -> bool:
    return untolerated((node.get("spec") or {}).get("taints") or (), tolerations) is not None
