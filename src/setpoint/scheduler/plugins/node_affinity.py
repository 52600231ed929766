"""NodeAffinity: the Pod's nodeSelector and node affinity, and the profile's added affinity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from setpoint.meta.node_fit import node_selector, required_nodes
from setpoint.scheduler.affinity import NodeSelector, PreferredNodes
from setpoint.scheduler.cluster_events import NODE, Action, ClusterEvent
from setpoint.scheduler.demand import Demand
from setpoint.scheduler.framework import Cycle, FilterBase, Interest, Refusal, Rejected, normalized
from setpoint.scheduler.node_table import Ints, Mask, NodeTable

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod

REASON = "node(s) didn't match Pod's node affinity/selector"
ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
CONFLICT = "pod affinity terms conflict"
_REQUIRED = "required nodes"


class NodeAffinity(FilterBase):
    name = "NodeAffinity"

    def __init__(self, added_affinity: Mapping[str, Any] | None = None) -> None:
        added = added_affinity or {}
        required = added.get("requiredDuringSchedulingIgnoredDuringExecution")
        self._added = NodeSelector(required) if required is not None else None
        self._admits = node_selector(required) if required is not None else None
        self._added_preferred = PreferredNodes(added.get("preferredDuringSchedulingIgnoredDuringExecution") or ())

    def prefilter(self, cycle: Cycle) -> frozenset[str] | None:
        names = cycle.demand.required_nodes.named_nodes()
        if names is not None and not names:
            raise Rejected(CONFLICT)
        return names

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        found = []
        if self._added is not None:
            found.append(Refusal(ENFORCED, ~self._added.mask(cycle.table), unresolvable=True))
        where = unwanted_nodes(cycle.demand, cycle.table)
        if where is not None:
            found.append(Refusal(REASON, where, unresolvable=True))
        return found

    def score(self, cycle: Cycle, feasible: Mask) -> Ints | None:
        terms = [*self._added_preferred.terms, *cycle.demand.preferred_nodes.terms]
        if not terms:
            return None
        known = cycle.demand.cache.get(self)
        if known is None or known[0] != cycle.table.version:
            total = np.zeros(cycle.table.capacity, dtype=np.int64)
            for weight, term in terms:
                total += weight * term.mask(cycle.table)
            known = cycle.demand.cache[self] = (cycle.table.version, total)
        return normalized(known[1], feasible)

    def interests(self) -> Iterable[Interest]:
        return (Interest(ClusterEvent(NODE, Action.ADD | Action.NODE_LABEL), self._began_to_match),)

    def _began_to_match(self, pod: Pod, old: Node | None, new: Node | None) -> bool:
        if new is None or (self._admits is not None and not self._admits(new)):
            return False
        wanted = required_nodes(pod["spec"])
        return wanted(new) and (old is None or not wanted(old))


def unwanted_nodes(demand: Demand, table: NodeTable) -> Mask | None:
    """Return the slots that do not match, or None if the Pod has no requirements."""
    if demand.required_nodes.anything:
        return None
    known = demand.cache.get(_REQUIRED)
    if known is not None and known[0] == table.version:
        where: Mask = known[1]
        return where
    wanted = demand.required_nodes.mask(table)
    assert wanted is not None
    demand.cache[_REQUIRED] = (table.version, ~wanted)
    return ~wanted
