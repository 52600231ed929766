"""NodeResourcesFit: rejects nodes without the requested resources and scores by utilization."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from setpoint.kinds.core.pod_demand import pod_requests
from setpoint.scheduler.cluster_events import ASSIGNED_POD, NODE, TARGET_POD, Action, ClusterEvent
from setpoint.scheduler.demand import Demand
from setpoint.scheduler.framework import MAX_SCORE, Cycle, FilterBase, Interest, Refusal
from setpoint.scheduler.node_table import CPU, MEMORY, PODS, IncrementalArray, Ints, Mask, NodeTable, amount

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod

Curve = Callable[[Ints, Ints], Ints]
"""Maps (requested including the Pod, allocatable) to scores."""

DEFAULT_RESOURCES = (("cpu", 1), ("memory", 1))
_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods")


class NodeResourcesFit(FilterBase):
    name = "NodeResourcesFit"
    cumulative = True

    def __init__(
        self,
        strategy: str = "LeastAllocated",
        resources: Sequence[tuple[str, int]] = DEFAULT_RESOURCES,
        shape: Sequence[tuple[int, int]] = (),
        ignored_resources: Iterable[str] = (),
        ignored_groups: Iterable[str] = (),
    ) -> None:
        """Create the plugin. `shape` is (utilization, score out of 10) for RequestedToCapacityRatio."""
        self._resources = tuple(resources)
        self._ratio = strategy == "RequestedToCapacityRatio"
        self._linear = _LINEAR_OF_ONE.get(strategy)
        self._curve: Curve = _LINEAR.get(strategy) or _requested_to_capacity_ratio(shape)
        self._ignored = frozenset(ignored_resources)
        self._ignored_groups = frozenset(ignored_groups)

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        table = cycle.table
        return [
            Refusal(reason, table.free[row] < number, row != PODS and _never_enough(table, row, number))
            for row, number, reason in self.needs(cycle)
        ]

    def needs(self, cycle: Cycle) -> list[tuple[int, int, str]]:
        """Return the rows, the amounts that must be free, and the reason if they are not."""
        found = [(PODS, 1, "Too many pods")]
        for row, number in cycle.demand.rows:
            name = cycle.table.resources[row]
            if name in _NATIVE or not (name in self._ignored or name.partition("/")[0] in self._ignored_groups):
                found.append((row, number, f"Insufficient {name}"))
        return found

    def depends_on_pods(self, cycle: Cycle) -> bool:
        return True

    def score(self, cycle: Cycle, feasible: Mask) -> Ints | None:
        incremental = cycle.demand.cache.get(self)
        if incremental is None:
            incremental = cycle.demand.cache[self] = IncrementalArray()
        table, demand = cycle.table, cycle.demand
        scores: Ints = incremental.values(
            table.pod_log,
            lambda: self._scores(table, demand, slice(None)),
            lambda slot: self._score_of(table, demand, slot),
        )
        return scores

    def _score_of(self, table: NodeTable, demand: Demand, slot: int) -> int:
        if self._linear is None:
            return int(self._scores(table, demand, np.array([slot]))[0])
        total = weights = 0
        for name, weight in self._resources:
            row = table.row(name)
            offered = table.allocatable.item(row, slot)
            if row in (CPU, MEMORY):
                requested = table.nonzero.item(row, slot) + demand.nonzero[row]
            else:
                wanted = demand.requests.get(name, 0)
                if not wanted and name not in _NATIVE:
                    continue
                requested = table.requested.item(row, slot) + wanted
            if offered > 0:
                total += self._linear(requested, offered) * weight
                weights += weight
        return total // weights if weights else 0

    def _scores(self, table: NodeTable, demand: Demand, index: Any) -> Ints:
        total: Any = 0
        weights: Any = 0
        for name, weight in self._resources:
            row = table.row(name)
            if row in (CPU, MEMORY):
                requested = table.nonzero[row, index] + demand.nonzero[row]
            else:
                wanted = demand.requests.get(name, 0)
                if not wanted and name not in _NATIVE:
                    continue  # resources that the Pod does not request do not affect the score
                requested = table.requested[row, index] + wanted
            offered = table.allocatable[row, index]
            present = offered > 0
            score = self._curve(requested, np.maximum(offered, 1))
            counted = present & (score > 0) if self._ratio else present
            total = total + np.where(counted, score, 0) * weight
            weights = weights + counted * weight
        if isinstance(weights, int):
            return np.zeros_like(table.nonzero[0, index])
        if self._ratio:
            rounded: Ints = np.floor(total / np.maximum(weights, 1) + 0.5).astype(np.int64)
            return rounded
        divided: Ints = total // np.maximum(weights, 1)
        return divided

    def interests(self) -> Iterable[Interest]:
        return (
            Interest(ClusterEvent(ASSIGNED_POD, Action.DELETE | Action.POD_SCALE_DOWN), self._freed_resources),
            Interest(ClusterEvent(NODE, Action.ADD | Action.NODE_ALLOCATABLE), _grew_enough),
            Interest(ClusterEvent(TARGET_POD, Action.POD_SCALE_DOWN)),
        )

    @staticmethod
    def _freed_resources(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
        if new is None or old is None:
            return True
        wanted, had, has = pod_requests(pod), pod_requests(old), pod_requests(new)
        return any(amount(name, had.get(name, "0")) > amount(name, has.get(name, "0")) for name in wanted)


def _never_enough(table: NodeTable, row: int, number: int) -> Callable[[], Mask]:
    return lambda: table.allocatable[row] < number


def _least_allocated(requested: Ints, offered: Ints) -> Ints:
    return np.where(requested > offered, 0, (offered - requested) * MAX_SCORE // offered)


def _most_allocated(requested: Ints, offered: Ints) -> Ints:
    return np.minimum(requested, offered) * MAX_SCORE // offered


def _least_allocated_of_one(requested: int, offered: int) -> int:
    return 0 if requested > offered else (offered - requested) * MAX_SCORE // offered


def _most_allocated_of_one(requested: int, offered: int) -> int:
    return min(requested, offered) * MAX_SCORE // offered


_LINEAR: dict[str, Curve] = {"LeastAllocated": _least_allocated, "MostAllocated": _most_allocated}
_LINEAR_OF_ONE = {"LeastAllocated": _least_allocated_of_one, "MostAllocated": _most_allocated_of_one}
"""The same functions for a single node."""


def _requested_to_capacity_ratio(shape: Sequence[tuple[int, int]]) -> Curve:
    points = [(utilization, score * (MAX_SCORE // 10)) for utilization, score in shape]

    def curve(requested: Ints, offered: Ints) -> Ints:
        used = np.where(requested > offered, 100, requested * 100 // offered)
        result = np.full(used.shape, points[-1][1], dtype=np.int64)
        for (x0, y0), (x1, y1) in reversed(list(pairwise(points))):
            # Round towards zero, as upstream's integer division does.
            step = (y1 - y0) * (used - x0)
            between = y0 + np.sign(step) * (np.abs(step) // (x1 - x0))
            result = np.where(used <= x1, between, result)
        return np.where(used <= points[0][0], points[0][1], result)

    return curve


def _grew_enough(pod: Pod, old: Node | None, new: Node | None) -> bool:
    wanted = pod_requests(pod)
    allocatable = _allocatable(new or {})
    if allocatable.get("pods", 0) < 1 or any(
        allocatable.get(name, 0) < amount(name, text) for name, text in wanted.items()
    ):
        return False
    if old is None:
        return True
    offered = _allocatable(old)
    return allocatable["pods"] > offered.get("pods", 0) or any(
        allocatable.get(name, 0) > offered.get(name, 0) for name, text in wanted.items() if amount(name, text)
    )


def _allocatable(node: Node) -> dict[str, int]:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return {name: amount(name, text) for name, text in allocatable.items()}
