"""The affinity terms of Pods on nodes, which apply to new Pods, with the number of Pods per node that have them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import numpy as np

from setpoint.scheduler.affinity_terms import PodTerms, Term
from setpoint.scheduler.arrays import Ints, grown

AFFINITY, ANTI, PREFERRED, PREFERRED_ANTI = "affinity", "anti", "preferred", "preferredAnti"


class HeldTerm:
    __slots__ = ("counts", "kind", "term", "total")

    def __init__(self, kind: str, term: Term, capacity: int) -> None:
        self.kind = kind
        self.term = term
        self.counts: Ints = np.zeros(capacity, dtype=np.int64)
        """The number of Pods on each slot that have the term."""
        self.total = 0


class HeldTerms:
    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._held: dict[Hashable, HeldTerm] = {}
        self.version = 0
        """Incremented when a term is added or the last Pod with it is removed."""

    def add(self, terms: PodTerms, slot: int) -> None:
        for kind, term in _each(terms):
            held = self._held.get((kind, term.identity))
            if held is None:
                held = self._held[kind, term.identity] = HeldTerm(kind, term, self._capacity)
                self.version += 1
            held.counts[slot] += 1
            held.total += 1

    def remove(self, terms: PodTerms, slot: int) -> None:
        for kind, term in _each(terms):
            held = self._held[kind, term.identity]
            held.counts[slot] -= 1
            held.total -= 1
            if not held.total:
                del self._held[kind, term.identity]
                self.version += 1

    def __iter__(self) -> Iterator[HeldTerm]:
        return iter(self._held.values())

    def grow(self, capacity: int) -> None:
        self._capacity = capacity
        for held in self._held.values():
            held.counts = grown(held.counts, capacity)


def _each(terms: PodTerms) -> Iterator[tuple[str, Term]]:
    for kind, held in (
        (AFFINITY, terms.affinity), (ANTI, terms.anti),
        (PREFERRED, terms.preferred), (PREFERRED_ANTI, terms.preferred_anti),
    ):  # fmt: skip
        for term in held:
            yield kind, term
