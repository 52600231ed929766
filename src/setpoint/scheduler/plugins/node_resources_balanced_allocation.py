"""NodeResourcesBalancedAllocation: prefers nodes with balanced resource usage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt

import numpy as np

from setpoint.scheduler.demand import Demand
from setpoint.scheduler.framework import MAX_SCORE, Cycle, Interest
from setpoint.scheduler.node_table import Floats, IncrementalArray, Ints, Mask, NodeTable
from setpoint.scheduler.plugins.node_resources_fit import DEFAULT_RESOURCES

_ALWAYS_COUNTED = ("cpu", "memory", "ephemeral-storage")
"""Resources that always count; others count only if the Pod requests them."""


class NodeResourcesBalancedAllocation:
    name = "NodeResourcesBalancedAllocation"

    def __init__(self, resources: Sequence[tuple[str, int]] = DEFAULT_RESOURCES) -> None:
        self._names = tuple(name for name, _ in resources)

    def interests(self) -> Iterable[Interest]:
        return ()

    def score(self, cycle: Cycle, feasible: Mask) -> Ints | None:
        table, demand = cycle.table, cycle.demand
        if not any(demand.requests.get(name) for name in self._names):
            return None  # otherwise all Pods without requests would go to the same node
        incremental = demand.cache.get(self)
        if incremental is None:
            incremental = demand.cache[self] = IncrementalArray()
        scores: Ints = incremental.values(
            table.pod_log,
            lambda: self._scores(table, demand),
            lambda slot: self._score_of(table, demand, slot),
        )
        return scores

    def _score_of(self, table: NodeTable, demand: Demand, slot: int) -> int:
        before, after = [], []
        for name in self._names:
            wanted = demand.requests.get(name, 0)
            if not wanted and name not in _ALWAYS_COUNTED:
                continue
            row = table.row(name)
            offered = table.allocatable.item(row, slot)
            if offered:
                requested = table.requested.item(row, slot)
                before.append(min(requested / offered, 1.0))
                after.append(min((requested + wanted) / offered, 1.0))
        half = MAX_SCORE // 2
        return half + (half + _balance_of_one(after) - _balance_of_one(before)) // 2

    def _scores(self, table: NodeTable, demand: Demand) -> Ints:
        before: list[Floats] = []
        after: list[Floats] = []
        offered: list[Mask] = []
        for name in self._names:
            wanted = demand.requests.get(name, 0)
            if not wanted and name not in _ALWAYS_COUNTED:
                continue
            row = table.row(name)
            allocatable, requested = table.allocatable[row], table.requested[row]
            present = allocatable > 0
            divisor = np.where(present, allocatable, 1)
            before.append(np.minimum(requested / divisor, 1.0))
            after.append(np.minimum((requested + wanted) / divisor, 1.0))
            offered.append(present)
        half = MAX_SCORE // 2
        # No sum is negative, as the balance is at least 50: Python and Go divide alike.
        scores: Ints = half + (half + _balance(after, offered) - _balance(before, offered)) // 2
        return scores


def _balance_of_one(fractions: list[float]) -> int:
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        mean = sum(fractions) / len(fractions)
        deviation = sqrt(sum((fraction - mean) * (fraction - mean) for fraction in fractions) / len(fractions))
    return int((1 - deviation) * MAX_SCORE)


def _balance(fractions: list[Floats], offered: list[Mask]) -> Ints:
    """Return 100 minus the standard deviation of the utilization of the node's resources."""
    number: Ints = np.sum(offered, axis=0, dtype=np.int64)
    if len(fractions) == 2:
        deviation = np.abs((fractions[0] - fractions[1]) / 2)
        deviation = np.where(number == 2, deviation, 0.0)
    else:
        count = np.maximum(number, 1)
        parts = [np.where(present, fraction, 0.0) for fraction, present in zip(fractions, offered)]
        mean = sum(parts) / count
        squares = sum(np.where(present, (part - mean) * (part - mean), 0.0) for part, present in zip(parts, offered))
        deviation = np.where(number > 2, np.sqrt(squares / count), 0.0)
        # For two resources, half of their difference is equal and what upstream computes.
        if len(fractions) > 2 and (number == 2).any():
            spread = np.max([np.where(present, part, -1.0) for part, present in zip(parts, offered)], axis=0) - np.min(
                [np.where(present, part, 2.0) for part, present in zip(parts, offered)], axis=0
            )
            deviation = np.where(number == 2, np.abs(spread / 2), deviation)
    return ((1 - deviation) * MAX_SCORE).astype(np.int64)
