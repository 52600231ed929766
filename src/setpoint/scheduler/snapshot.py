"""The state on which the scheduler decides: nodes and the Pods on them, including assumed Pods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from setpoint.kinds.core.host_ports import HostPort
from setpoint.reconcile.keys import key_of
from setpoint.scheduler.arrays import Ints, grown
from setpoint.scheduler.demand import Demand, Demands
from setpoint.scheduler.held_terms import HeldTerms
from setpoint.scheduler.node_table import NodeTable
from setpoint.scheduler.pod_counts import PodCounts

Obj = dict[str, Any]
NO_PODS = 2**31
"""The lowest priority on a node without Pods: above every real priority."""


class Placed:
    """A Pod on a node."""

    __slots__ = ("assumed", "demand", "key", "node", "pod", "terminating")

    def __init__(self, pod: Obj, demand: Demand, node: str, assumed: bool) -> None:
        self.key = key_of(pod)
        self.pod = pod
        self.demand = demand
        self.node = node
        self.assumed = assumed
        """Decided by this scheduler and not yet observed in the API."""
        self.terminating = "deletionTimestamp" in pod["metadata"]


class Snapshot:
    """Counts every Pod on at most one node. Pods on unknown nodes are retained and counted when the node appears."""

    def __init__(self) -> None:
        self.table = NodeTable()
        self.demands = Demands(self.table)
        self.counts = PodCounts(self.table.capacity)
        self.terms = HeldTerms(self.table.capacity)
        self.ports: dict[tuple[str, int], dict[int, list[HostPort]]] = {}
        """Used host ports by protocol and port, then by slot."""
        self.claims: dict[str, dict[str, Placed]] = {}
        """Pods that mount a claim, by claim key and Pod key."""
        self.lowest: Ints = np.full(self.table.capacity, NO_PODS, dtype=np.int64)
        """The lowest priority of the Pods on each slot."""
        self._pods: dict[str, Placed] = {}
        self._on: dict[str, dict[str, Placed]] = {}
        """Pods by node name and Pod key, whether the node is known or not."""

    # -- reads ----------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Placed | None:
        return self._pods.get(key)

    def is_assumed(self, key: str) -> bool:
        placed = self._pods.get(key)
        return placed is not None and placed.assumed

    def pods_on(self, name: str) -> list[Placed]:
        return list(self._on.get(name, {}).values())

    # -- nodes ----------------------------------------------------------------------------------------------------

    def put_node(self, node: Obj) -> None:
        name = node["metadata"]["name"]
        is_new = name not in self.table.slots
        slot = self.table.put(node)
        if self.table.capacity != len(self.lowest):
            self._grow()
        if is_new:
            self.lowest[slot] = NO_PODS
            for placed in self._on.get(name, {}).values():
                self._count(placed, slot)

    def remove_node(self, name: str) -> None:
        slot = self.table.slots.get(name)
        if slot is None:
            return
        for placed in self._on.get(name, {}).values():
            self._discount(placed, slot)
        self.table.remove(name)

    def _grow(self) -> None:
        capacity = self.table.capacity
        self.counts.grow(capacity)
        self.terms.grow(capacity)
        self.lowest = grown(self.lowest, capacity)

    # -- Pods -----------------------------------------------------------------------------------------------------

    def put(self, pod: Obj, node: str, *, assumed: bool = False, demand: Demand | None = None) -> None:
        """Count the Pod on the node."""
        key = key_of(pod)
        before = self._pods.get(key)
        if demand is None:
            demand = self.demands.of(pod, None if before is None else (before.pod, before.demand))
        placed = Placed(pod, demand, node, assumed)
        if before is not None:
            if (
                before.node == node
                and before.demand is placed.demand
                and before.terminating == placed.terminating
                and before.pod["metadata"].get("uid") == pod["metadata"].get("uid")
            ):
                # Nothing that is counted has changed.
                before.pod, before.assumed = pod, assumed
                return
            self.remove(key)
        self.put_back(placed)

    def remove(self, key: str) -> Placed | None:
        placed = self._pods.get(key)
        if placed is not None:
            self.take(placed)
        return placed

    @contextmanager
    def with_more(self, pods: list[Obj], node: str) -> Iterator[None]:
        """Temporarily count these unscheduled Pods on the node."""
        added = [Placed(pod, self.demands.of(pod), node, True) for pod in pods if key_of(pod) not in self._pods]
        for placed in added:
            self.put_back(placed)
        try:
            yield
        finally:
            for placed in added:
                self.take(placed)

    def put_back(self, placed: Placed) -> None:
        """Restore a Pod that `take` removed."""
        self._pods[placed.key] = placed
        self._on.setdefault(placed.node, {})[placed.key] = placed
        for claim in placed.demand.claims:
            self.claims.setdefault(claim, {})[placed.key] = placed
        slot = self.table.slots.get(placed.node)
        if slot is not None:
            self._count(placed, slot)

    def take(self, placed: Placed) -> None:
        """Remove a Pod from its node; `put_back` reverts it."""
        del self._pods[placed.key]
        held = self._on[placed.node]
        del held[placed.key]
        if not held:
            del self._on[placed.node]
        for claim in placed.demand.claims:
            users = self.claims[claim]
            users.pop(placed.key, None)
            if not users:
                del self.claims[claim]
        slot = self.table.slots.get(placed.node)
        if slot is not None:
            self._discount(placed, slot)
            if placed.demand.priority == self.lowest[slot]:
                left = self._on.get(placed.node, {}).values()
                self.lowest[slot] = min((other.demand.priority for other in left), default=NO_PODS)

    def _count(self, placed: Placed, slot: int) -> None:
        table, demand = self.table, placed.demand
        for row, number in demand.usage:
            table.requested[row, slot] += number
            table.free[row, slot] -= number
        table.nonzero[0, slot] += demand.nonzero[0]
        table.nonzero[1, slot] += demand.nonzero[1]
        self.counts.add(demand.group_key, placed.terminating, slot)
        if demand.terms:
            self.terms.add(demand.terms, slot)
        for port in demand.ports:
            self.ports.setdefault((port[0], port[2]), {}).setdefault(slot, []).append(port)
        if demand.priority < self.lowest[slot]:
            self.lowest[slot] = demand.priority
        table.pod_log.add(slot)

    def _discount(self, placed: Placed, slot: int) -> None:
        table, demand = self.table, placed.demand
        for row, number in demand.usage:
            table.requested[row, slot] -= number
            table.free[row, slot] += number
        table.nonzero[0, slot] -= demand.nonzero[0]
        table.nonzero[1, slot] -= demand.nonzero[1]
        self.counts.remove(demand.group_key, placed.terminating, slot)
        if demand.terms:
            self.terms.remove(demand.terms, slot)
        for port in demand.ports:
            used = self.ports[port[0], port[2]]
            used[slot].remove(port)
            if not used[slot]:
                del used[slot]
        table.pod_log.add(slot)
