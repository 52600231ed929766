"""Node labels by key: one column per key, with integers for values, so that a requirement is evaluated once per
distinct value. Columns are created for requested keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from setpoint.scheduler.arrays import Floats, Ints, Mask, grown

ABSENT = 0
"""The number for a missing label."""


class Column:
    def __init__(self, capacity: int) -> None:
        self.of: npt.NDArray[np.intp] = np.zeros(capacity, dtype=np.intp)
        """The value number of each slot."""
        self.values: list[str] = [""]
        """Values by number; the first one means no label."""
        self._numbers: dict[str, int] = {}
        self._holders: list[int] = [0]
        """The number of slots with each value."""
        self._shared = 0
        """The number of values that several slots share."""

    def set(self, slot: int, value: str | None) -> None:
        before = int(self.of[slot])
        after = ABSENT if value is None else self._number(value)
        if before == after:
            return
        self.of[slot] = after
        if before:
            self._holders[before] -= 1
            self._shared -= self._holders[before] == 1
        if after:
            self._holders[after] += 1
            self._shared += self._holders[after] == 2

    def _number(self, value: str) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
            self._holders.append(0)
        return found

    def known(self, value: str) -> int:
        """Return the number of the value, or ABSENT if no node has ever had it."""
        return self._numbers.get(value, ABSENT)

    @property
    def crowded(self) -> bool:
        """Return whether most values belong to removed nodes."""
        return len(self.values) > 2 * len(self.of) + 1024

    def where(self, wanted: Callable[[str], bool], absent: bool) -> Mask:
        """Return the slots whose value satisfies `wanted`; `absent` is the result for slots without the label."""
        table = np.fromiter((wanted(value) for value in self.values), dtype=np.bool_, count=len(self.values))
        table[ABSENT] = absent
        found: Mask = table[self.of]
        return found

    def one_of(self, values: Iterable[str]) -> Mask:
        table = np.zeros(len(self.values), dtype=np.bool_)
        for value in values:
            table[self.known(value)] = True
        table[ABSENT] = False
        found: Mask = table[self.of]
        return found

    @property
    def present(self) -> Mask:
        found: Mask = self.of != ABSENT
        return found

    @property
    def distinct(self) -> bool:
        """Return whether no two slots share a value, as with host names, so that a domain is a node."""
        return self._shared == 0

    def sums(self, counts: Ints, among: Mask | None = None) -> Floats:
        """Return the sums of `counts` by value number."""
        if among is None:
            found: Floats = np.bincount(self.of, weights=counts, minlength=len(self.values)).astype(
                np.float64, copy=False
            )
            return found
        return np.bincount(self.of[among], weights=counts[among], minlength=len(self.values)).astype(
            np.float64, copy=False
        )

    def among(self, slots: Mask) -> Mask:
        """Return by value number whether these slots have the value."""
        found = np.zeros(len(self.values), dtype=np.bool_)
        found[self.of[slots]] = True
        return found

    def domains(self, slots: Mask) -> int:
        """Return the number of distinct values of the slots, counting no label as one."""
        return int(np.count_nonzero(self.among(slots)))

    def domain_totals(self, counts: Ints) -> Ints | Floats:
        """Return for each slot the sum of `counts` in its domain; 0 for slots without the label."""
        if self.distinct:
            return counts * self.present
        sums = self.sums(counts)
        sums[ABSENT] = 0
        return sums[self.of]

    def grow(self, capacity: int) -> None:
        self.of = grown(self.of, capacity)


class LabelColumns:
    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._labels: list[Mapping[str, str] | None] = [None] * capacity
        self._columns: dict[str, Column] = {}

    def set(self, slot: int, labels: Mapping[str, str] | None) -> None:
        """Set the labels of a slot; None means that it has no node."""
        self._labels[slot] = labels
        for key, column in self._columns.items():
            column.set(slot, labels.get(key) if labels is not None else None)
        for key in [key for key, column in self._columns.items() if column.crowded]:
            del self._columns[key]

    def column(self, key: str) -> Column:
        found = self._columns.get(key)
        if found is None:
            found = self._columns[key] = Column(self._capacity)
            for slot, labels in enumerate(self._labels):
                if labels is not None:
                    found.set(slot, labels.get(key))
        return found

    def columns(self, keys: Sequence[str]) -> list[Column]:
        return [self.column(key) for key in keys]

    def grow(self, capacity: int) -> None:
        self._labels += [None] * (capacity - self._capacity)
        self._capacity = capacity
        for column in self._columns.values():
            column.grow(capacity)
