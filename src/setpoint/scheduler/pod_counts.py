"""The number of matching Pods per node for a selector, updated incrementally.

Pods are grouped by namespace and labels. A Counter holds the number of matching Pods on every node for one selector. It
is created on first use; from then on each added or removed Pod updates one number in the counters that its group
belongs to.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping

import numpy as np

from setpoint.scheduler.arrays import Ints, grown
from setpoint.scheduler.demand import GroupKey

_MAX_COUNTERS = 1024
"""The maximum number of counters; the least recently used ones are evicted."""


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
