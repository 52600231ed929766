"""The nodes as arrays: allocatable and requested resources, labels, taints, and whether they are schedulable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from setpoint.meta.quantity import parse
from setpoint.scheduler.arrays import ChangeLog, Ints, Mask, grown
from setpoint.scheduler.label_columns import LabelColumns

Obj = dict[str, Any]

CPU, MEMORY, EPHEMERAL_STORAGE, PODS = range(4)
_FIRST_ROWS = {"cpu": CPU, "memory": MEMORY, "ephemeral-storage": EPHEMERAL_STORAGE, "pods": PODS}
_FIRST_CAPACITY = 16
_GREATEST = 1 << 60
"""An upper bound of amounts, far above any node, such that sums of a few fit the arrays."""


def amount(resource: str, quantity: str) -> int:
    """Convert a quantity to an integer: CPU in thousandths, everything else in whole units."""
    read = parse(quantity)
    return min(read.milli_value() if resource == "cpu" else read.value(), _GREATEST)


def _concern(node: Obj) -> tuple[Any, ...]:
    """Return the fields of a node that are used here, without its images, which change with every pulled image."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return node["metadata"].get("labels"), spec.get("unschedulable"), spec.get("taints"), status.get("allocatable")


class NodeTable:
    """Arrays of length `capacity`. A slot without a node is not `valid`, and its content is undefined."""

    def __init__(self) -> None:
        self.capacity = _FIRST_CAPACITY
        self.slots: dict[str, int] = {}
        """Slots by node name."""
        self.nodes: list[Obj | None] = [None] * self.capacity
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

    def put(self, node: Obj) -> int:
        """Add or update a node."""
        name = node["metadata"]["name"]
        slot = self.slots.get(name)
        if slot is None:
            if not self._unused:
                self._grow()
            slot = self.slots[name] = self._unused.pop()
            self.valid[slot] = True
            before: Obj | None = None
        else:
            before = self.nodes[slot]
        self.nodes[slot] = node
        self._set_images(slot, before, node)
        if before is not None and _concern(before) == _concern(node):
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

    def _set_images(self, slot: int, before: Obj | None, after: Obj | None) -> None:
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
