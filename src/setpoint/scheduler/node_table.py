"""The nodes as arrays: allocatable and requested resources, labels, taints, and whether they are schedulable.

A slot is the position of a node in these arrays for as long as the node exists; every array has an element for every
slot, used or not. Labels have one column per key, with integers for values, so that a requirement is evaluated once per
distinct value; columns are created for requested keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from setpoint.meta.quantity import parse

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_LOG_LIMIT = 1 << 16
ABSENT = 0
"""The number for a missing label."""
CPU, MEMORY, EPHEMERAL_STORAGE, PODS = range(4)
_FIRST_ROWS = {"cpu": CPU, "memory": MEMORY, "ephemeral-storage": EPHEMERAL_STORAGE, "pods": PODS}
_FIRST_CAPACITY = 16
_MAX_AMOUNT = 1 << 60
"""An upper bound of amounts, far above any node, such that sums of a few fit the arrays."""


def grown(array: npt.NDArray[Any], capacity: int) -> npt.NDArray[Any]:
    """Return a copy with `capacity` elements in the last dimension; new ones are zero."""
    bigger = np.zeros((*array.shape[:-1], capacity), dtype=array.dtype)
    bigger[..., : array.shape[-1]] = array
    return bigger


class ChangeLog:
    """A log of changed slots, from which readers find what to recompute."""

    def __init__(self) -> None:
        self.epoch = 0
        """Incremented when every slot has changed; earlier log entries are then dropped."""
        self.slots: list[int] = []

    def add(self, slot: int) -> None:
        if len(self.slots) >= _LOG_LIMIT:
            self.all_changed()
        self.slots.append(slot)

    def all_changed(self) -> None:
        self.epoch += 1
        self.slots = []


class Cursor:
    """The read position of one reader of a log."""

    __slots__ = ("_at", "_epoch")

    def __init__(self) -> None:
        self._epoch = -1
        self._at = 0

    def unread(self, log: ChangeLog, worthwhile: int) -> Sequence[int] | None:
        """Return the slots that changed since the last call, or None if more than `worthwhile` did and everything
        should be recomputed."""
        if self._epoch != log.epoch or len(log.slots) - self._at > worthwhile:
            self._epoch, self._at = log.epoch, len(log.slots)
            return None
        if self._at == len(log.slots):
            return ()
        changed = log.slots[self._at :]
        self._at = len(log.slots)
        return changed if len(changed) == 1 else list(dict.fromkeys(changed))


class IncrementalArray:
    """An array over slots that recomputes only changed slots."""

    __slots__ = ("_cursor", "_values")

    def __init__(self) -> None:
        self._cursor = Cursor()
        self._values: Ints | None = None

    def values(self, log: ChangeLog, compute: Callable[[], Ints], compute_one: Callable[[int], int]) -> Ints:
        """Return the values, which callers must not modify. `compute()` returns the values of all slots,
        `compute_one(slot)` that of one, which is faster for scalars."""
        known = self._values
        changed = self._cursor.unread(log, 0 if known is None else len(known) // 32 + 4)
        if known is None or changed is None:
            known = self._values = compute()
        else:
            for slot in changed:
                known[slot] = compute_one(slot)
        return known


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
    def mostly_stale(self) -> bool:
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
    def is_used(self) -> bool:
        """Return whether any slot may have a value."""
        return len(self.values) > 1

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
        for key in [key for key, column in self._columns.items() if column.mostly_stale]:
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


def amount(resource: str, quantity: str) -> int:
    """Convert a quantity to an integer: CPU in thousandths, everything else in whole units."""
    read = parse(quantity)
    return min(read.milli_value() if resource == "cpu" else read.value(), _MAX_AMOUNT)


def _scheduling_fields(node: Node) -> tuple[Any, ...]:
    """Return the fields of a node that are used here, without its images, which change with every pulled image."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return node["metadata"].get("labels"), spec.get("unschedulable"), spec.get("taints"), status.get("allocatable")


class NodeTable:
    """Arrays of length `capacity`. A slot without a node is not `valid`, and its content is undefined."""

    def __init__(self) -> None:
        self.capacity = _FIRST_CAPACITY
        self.slots: dict[str, int] = {}
        """Slots by node name."""
        self.nodes: list[Node | None] = [None] * self.capacity
        self.valid: Mask = np.zeros(self.capacity, dtype=np.bool_)
        self.rows: dict[str, int] = dict(_FIRST_ROWS)
        """Rows of the arrays below by resource."""
        self.resources = list(self.rows)
        """Resources by row."""
        self.allocatable: Ints = np.zeros((len(self.rows), self.capacity), dtype=np.int64)
        self.requested: Ints = np.zeros((len(self.rows), self.capacity), dtype=np.int64)
        self.free: Ints = np.zeros((len(self.rows), self.capacity), dtype=np.int64)
        """Allocatable minus requested; negative where a node has shrunk."""
        self.nonzero: Ints = np.zeros((2, self.capacity), dtype=np.int64)
        """Requested CPU and memory, with defaults for containers without requests."""
        self.labels = LabelColumns(self.capacity)
        self.cordoned: Mask = np.zeros(self.capacity, dtype=np.bool_)
        self.taints: npt.NDArray[np.intp] = np.zeros(self.capacity, dtype=np.intp)
        """The index into `taint_sets` of each slot: many nodes share few sets."""
        self.taint_sets: list[Sequence[Mapping[str, Any]]] = [()]
        self._taint_numbers: dict[tuple[tuple[str, str, str], ...], int] = {(): 0}
        self.images: dict[str, dict[int, int]] = {}
        """Size by image name and slot."""
        self.node_log = ChangeLog()
        """The log of slots whose node has changed."""
        self.pod_log = ChangeLog()
        """The log of slots whose Pods have changed."""
        self.version = 0
        """Incremented when a node is added, removed, or changed in a scheduling-relevant way other than its images."""
        self.images_version = 0
        self._unused = list(range(self.capacity - 1, -1, -1))

    def __len__(self) -> int:
        return len(self.slots)

    def name(self, slot: int) -> str:
        node = self.nodes[slot]
        assert node is not None
        return str(node["metadata"]["name"])

    def row(self, resource: str) -> int:
        found = self.rows.get(resource)
        if found is None:
            found = self.rows[resource] = len(self.rows)
            self.resources.append(resource)
            more = np.zeros((1, self.capacity), dtype=np.int64)
            self.allocatable = np.concatenate((self.allocatable, more))
            self.requested = np.concatenate((self.requested, more))
            self.free = np.concatenate((self.free, more))
        return found

    def put(self, node: Node) -> int:
        """Add or update a node."""
        name = node["metadata"]["name"]
        slot = self.slots.get(name)
        if slot is None:
            if not self._unused:
                self._grow()
            slot = self.slots[name] = self._unused.pop()
            self.valid[slot] = True
            before: Node | None = None
        else:
            before = self.nodes[slot]
        self.nodes[slot] = node
        self._set_images(slot, before, node)
        if before is not None and _scheduling_fields(before) == _scheduling_fields(node):
            return slot  # a heartbeat
        self._set_allocatable(slot, (node.get("status") or {}).get("allocatable") or {})
        self.labels.set(slot, node["metadata"].get("labels") or {})
        spec = node.get("spec") or {}
        self.cordoned[slot] = bool(spec.get("unschedulable"))
        self.taints[slot] = self._taint_number(spec.get("taints") or ())
        self.node_log.add(slot)
        self.pod_log.add(slot)
        self.version += 1
        return slot

    def remove(self, name: str) -> None:
        """Remove a node, which must have no Pods."""
        slot = self.slots.pop(name)
        self._set_images(slot, self.nodes[slot], None)
        self.nodes[slot] = None
        self.valid[slot] = False
        self.cordoned[slot] = False
        self.taints[slot] = 0
        self.labels.set(slot, None)
        for array in (self.allocatable, self.requested, self.free, self.nonzero):
            array[:, slot] = 0
        self._unused.append(slot)
        self.node_log.add(slot)
        self.pod_log.add(slot)
        self.version += 1

    def _set_allocatable(self, slot: int, allocatable: Mapping[str, str]) -> None:
        for resource in allocatable:
            self.row(resource)
        self.allocatable[:, slot] = 0
        for resource, quantity in allocatable.items():
            self.allocatable[self.rows[resource], slot] = amount(resource, quantity)
        self.free[:, slot] = self.allocatable[:, slot] - self.requested[:, slot]

    def _taint_number(self, taints: Sequence[Mapping[str, Any]]) -> int:
        found = tuple((taint["key"], taint.get("value") or "", taint["effect"]) for taint in taints)
        number = self._taint_numbers.get(found)
        if number is None:
            number = self._taint_numbers[found] = len(self.taint_sets)
            self.taint_sets.append(taints)
        return number

    def _set_images(self, slot: int, before: Node | None, after: Node | None) -> None:
        had = ((before or {}).get("status") or {}).get("images") or ()
        has = ((after or {}).get("status") or {}).get("images") or ()
        if had == has:
            return
        self.images_version += 1
        for image in had:
            for name in image.get("names") or ():
                holders = self.images.get(name, {})
                holders.pop(slot, None)
                if not holders:
                    self.images.pop(name, None)
        for image in has:
            for name in image.get("names") or ():
                self.images.setdefault(name, {})[slot] = int(image.get("sizeBytes") or 0)

    def _grow(self) -> None:
        before, self.capacity = self.capacity, self.capacity * 2
        self.nodes += [None] * before
        for name in ("valid", "allocatable", "requested", "free", "nonzero", "cordoned", "taints"):
            setattr(self, name, grown(getattr(self, name), self.capacity))
        self.labels.grow(self.capacity)
        self._unused = list(range(self.capacity - 1, before - 1, -1))
        self.node_log.all_changed()
        self.pod_log.all_changed()
