"""The state on which the scheduler decides: nodes and the Pods on them, including assumed Pods.

Pods are grouped by namespace and labels. A Counter holds the number of matching Pods on every node for one selector. It
is created on first use; from then on each added or removed Pod updates one number in the counters that its group
belongs to.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from setpoint.kinds.core.pod_demand import HostPort
from setpoint.reconcile.keys import key_of
from setpoint.scheduler.affinity import ExistingTerms
from setpoint.scheduler.demand import Demand, Demands, GroupKey
from setpoint.scheduler.node_table import Ints, NodeTable, grown

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod

_MAX_COUNTERS = 1024
"""The maximum number of counters; the least recently used ones are evicted."""
NO_PODS = 2**31
"""The lowest priority on a node without Pods: above every real priority."""


class Group:
    __slots__ = ("counters", "labels", "namespace", "slots", "terminating")

    def __init__(self, key: GroupKey, terminating: bool) -> None:
        self.namespace = key[0]
        self.labels: Mapping[str, str] = dict(key[1])
        self.terminating = terminating
        self.slots: dict[int, int] = {}
        """The number of Pods by slot; slots without any have no entry."""
        self.counters: list[Counter] = []


Matches = Callable[[Group], bool]


class Counter:
    __slots__ = ("counts", "matches", "namespaces")

    def __init__(self, matches: Matches, namespaces: Iterable[str] | None, capacity: int) -> None:
        self.matches = matches
        self.namespaces = None if namespaces is None else frozenset(namespaces)
        """The only namespaces that can match; None means any."""
        self.counts: Ints = np.zeros(capacity, dtype=np.int64)


class PodCounts:
    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._groups: dict[tuple[GroupKey, bool], Group] = {}
        self._counters: OrderedDict[Hashable, Counter] = OrderedDict()

    def add(self, key: GroupKey, terminating: bool, slot: int) -> None:
        group = self._groups.get((key, terminating))
        if group is None:
            group = self._groups[key, terminating] = Group(key, terminating)
            group.counters = [counter for counter in self._counters.values() if _belongs(group, counter)]
        group.slots[slot] = group.slots.get(slot, 0) + 1
        for counter in group.counters:
            counter.counts[slot] += 1

    def remove(self, key: GroupKey, terminating: bool, slot: int) -> None:
        group = self._groups[key, terminating]
        left = group.slots[slot] - 1
        if left:
            group.slots[slot] = left
        else:
            del group.slots[slot]
            if not group.slots:
                del self._groups[key, terminating]
        for counter in group.counters:
            counter.counts[slot] -= 1

    def counter(self, identity: Hashable, matches: Matches, namespaces: Iterable[str] | None) -> Ints:
        """Return the number of Pods per slot for which `matches` is true. Equal identities must mean equal matches."""
        found = self._counters.get(identity)
        if found is not None:
            self._counters.move_to_end(identity)
            return found.counts
        found = self._counters[identity] = Counter(matches, namespaces, self._capacity)
        for group in self._groups.values():
            if _belongs(group, found):
                group.counters.append(found)
                for slot, number in group.slots.items():
                    found.counts[slot] += number
        if len(self._counters) > _MAX_COUNTERS:
            _, dropped = self._counters.popitem(last=False)
            for group in self._groups.values():
                if dropped in group.counters:
                    group.counters.remove(dropped)
        return found.counts

    def grow(self, capacity: int) -> None:
        self._capacity = capacity
        for counter in self._counters.values():
            counter.counts = grown(counter.counts, capacity)


def _belongs(group: Group, counter: Counter) -> bool:
    return (counter.namespaces is None or group.namespace in counter.namespaces) and counter.matches(group)


class PlacedPod:
    """A Pod on a node."""

    __slots__ = ("assumed", "demand", "key", "node", "pod", "terminating")

    def __init__(self, pod: Pod, demand: Demand, node: str, assumed: bool) -> None:
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
        self.terms = ExistingTerms(self.table.capacity)
        self.ports: dict[tuple[str, int], dict[int, list[HostPort]]] = {}
        """Used host ports by protocol and port, then by slot."""
        self.claims: dict[str, dict[str, PlacedPod]] = {}
        """Pods that mount a claim, by claim key and Pod key."""
        self.lowest: Ints = np.full(self.table.capacity, NO_PODS, dtype=np.int64)
        """The lowest priority of the Pods on each slot."""
        self._pods: dict[str, PlacedPod] = {}
        self._on: dict[str, dict[str, PlacedPod]] = {}
        """Pods by node name and Pod key, whether the node is known or not."""

    # -- reads ----------------------------------------------------------------------------------------------------

    def get(self, key: str) -> PlacedPod | None:
        return self._pods.get(key)

    def is_assumed(self, key: str) -> bool:
        placed = self._pods.get(key)
        return placed is not None and placed.assumed

    def pods_on(self, name: str) -> list[PlacedPod]:
        return list(self._on.get(name, {}).values())

    # -- nodes ----------------------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> None:
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

    def put(self, pod: Pod, node: str, *, assumed: bool = False, demand: Demand | None = None) -> None:
        """Count the Pod on the node."""
        key = key_of(pod)
        before = self._pods.get(key)
        if demand is None:
            demand = self.demands.of(pod, None if before is None else (before.pod, before.demand))
        placed = PlacedPod(pod, demand, node, assumed)
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
        self.attach(placed)

    def remove(self, key: str) -> PlacedPod | None:
        placed = self._pods.get(key)
        if placed is not None:
            self.detach(placed)
        return placed

    @contextmanager
    def with_more(self, pods: list[Pod], node: str) -> Iterator[None]:
        """Temporarily count these unscheduled Pods on the node."""
        added = [PlacedPod(pod, self.demands.of(pod), node, True) for pod in pods if key_of(pod) not in self._pods]
        for placed in added:
            self.attach(placed)
        try:
            yield
        finally:
            for placed in added:
                self.detach(placed)

    def attach(self, placed: PlacedPod) -> None:
        """Restore a Pod that `detach` removed."""
        self._pods[placed.key] = placed
        self._on.setdefault(placed.node, {})[placed.key] = placed
        for claim in placed.demand.claims:
            self.claims.setdefault(claim, {})[placed.key] = placed
        slot = self.table.slots.get(placed.node)
        if slot is not None:
            self._count(placed, slot)

    def detach(self, placed: PlacedPod) -> None:
        """Remove a Pod from its node; `attach` reverts it."""
        del self._pods[placed.key]
        pods_on_node = self._on[placed.node]
        del pods_on_node[placed.key]
        if not pods_on_node:
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

    def _count(self, placed: PlacedPod, slot: int) -> None:
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

    def _discount(self, placed: PlacedPod, slot: int) -> None:
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
