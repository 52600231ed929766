"""NodeResourcesBalancedAllocation: prefers nodes with balanced resource usage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt

import numpy as np

from setpoint.scheduler.arrays import Floats, IncrementalArray, Ints, Mask
from setpoint.scheduler.demand import Demand
from setpoint.scheduler.framework import MAX_SCORE, Cycle, Interest
from setpoint.scheduler.node_table import NodeTable
from setpoint.scheduler.plugins.node_resources_fit import DEFAULT_RESOURCES

_ALWAYS = ("cpu", "memory", "ephemeral-storage")
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
        followed = demand.cache.get(self)
        if followed is None:
            followed = demand.cache[self] = IncrementalArray()
        scores: Ints = followed.values(
            table.pod_log,
            lambda: self._scores(table, demand),
            lambda slot: self._score_of(table, demand, slot),
        )
        return scores

    def _score_of(self, table: NodeTable, demand: Demand, slot: int) -> int:
        before, after = [], []
        for name in self._names:
            wanted = demand.requests.get(name, 0)
            if not wanted and name not in _ALWAYS:
                continue
            row = table.row(name)
            offered = table.allocatable.item(row, slot)
            if offered:
                requested = table.requested.item(row, slot)
                before.append(min(requested / offered, 1.0))
                after.append(min((requested + wanted) / offered, 1.0))
        half = MAX_SCORE // 2
        return half + (half + _evenness_of_one(after) - _evenness_of_one(before)) // 2

    def _scores(self, table: NodeTable, demand: Demand) -> Ints:
        before: list[Floats] = []
        after: list[Floats] = []
        offered: list[Mask] = []
        for name in self._names:
            wanted = demand.requests.get(name, 0)
            if not wanted and name not in _ALWAYS:
                continue
            row = table.row(name)
            allocatable, requested = table.allocatable[row], table.requested[row]
            there = allocatable > 0
            whole = np.where(there, allocatable, 1)
            before.append(np.minimum(requested / whole, 1.0))
            after.append(np.minimum((requested + wanted) / whole, 1.0))
            offered.append(there)
        half = MAX_SCORE // 2
        # No sum is negative, as the balance is at least 50: Python and Go divide alike.
        scores: Ints = half + (half + _evenness(after, offered) - _evenness(before, offered)) // 2
        return scores


def _evenness_of_one(fractions: list[float]) -> int:
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        mean = sum(fractions) / len(fractions)
        deviation = sqrt(sum((fraction - mean) * (fraction - mean) for fraction in fractions) / len(fractions))
    return int((1 - deviation) * MAX_SCORE)


def _evenness(fractions: list[Floats], offered: list[Mask]) -> Ints:
    """Return 100 minus the standard deviation of the utilization of the node's resources."""
    number: Ints = np.sum(offered, axis=0, dtype=np.int64)
    if len(fractions) == 2:
        deviation = np.abs((fractions[0] - fractions[1]) / 2)
        deviation = np.where(number == 2, deviation, 0.0)
    else:
        held = np.maximum(number, 1)
        parts = [np.where(there, fraction, 0.0) for fraction, there in zip(fractions, offered)]
        mean = sum(parts) / held
        squares = sum(np.where(there, (part - mean) * (part - mean), 0.0) for part, there in zip(parts, offered))
        deviation = np.where(number > 2, np.sqrt(squares / held), 0.0)
        # For two resources, half of their difference is equal and what upstream computes.
        if len(fractions) > 2 and (number == 2).any():
            spread = np.max([np.where(there, part, -1.0) for part, there in zip(parts, offered)], axis=0) - np.min(
                [np.where(there, part, 2.0) for part, there in zip(parts, offered)], axis=0
            )
            deviation = np.where(number == 2, np.abs(spread / 2), deviation)
    return ((1 - deviation) * MAX_SCORE).astype(np.int64)
