"""How many Pods of a kind are on each node, kept up to date Pod by Pod.

Pods are counted in groups of equal namespace and labels. A Counter holds, for one selector, the number of matching Pods
on every node; it is made when somebody asks, and from then on each Pod that comes or goes changes one number in the
counters that its group belongs to.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping

import numpy as np

from setpoint.scheduler.arrays import Ints, grown
from setpoint.scheduler.demand import GroupKey

_MOST_COUNTERS = 1024
"""Those that were asked for least recently are dropped, and made again if needed."""


class Group:
    __slots__ = ("counters", "labels", "namespace", "slots", "terminating")

    def __init__(self, key: GroupKey, terminating: bool) -> None:
        self.namespace = key[0]
        self.labels: Mapping[str, str] = dict(key[1])
        self.terminating = terminating
        self.slots: dict[int, int] = {}
        """How many are on each slot that has any."""
        self.counters: list[Counter] = []


Matches = Callable[[Group], bool]


class Counter:
    __slots__ = ("counts", "matches", "namespaces")

    def __init__(self, matches: Matches, namespaces: Iterable[str] | None, capacity: int) -> None:
        self.matches = matches
        self.namespaces = None if namespaces is None else frozenset(namespaces)
        """The only ones it can match in; None: any."""
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
        """Of the Pods that `matches` is true for, how many each slot has. The same identity means the same matches."""
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
        if len(self._counters) > _MOST_COUNTERS:
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
