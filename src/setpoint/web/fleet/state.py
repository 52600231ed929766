"""The state of the fleet: a row of slots for each node, a byte in it for each Pod.

Nodes are ordered by zone and name. The index of a Pod is `position of its node * stride + slot`. Positions change when
nodes come and go; the *layout* then gets another number, and all indexes of before are void.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import Final

from setpoint.meta.objects import ObjView
from setpoint.view.fleet import ZONE_LABEL, NodeState, natural_order, node_state, pod_state, why_unbound

STRIDES: Final = (128, 256, 512, 1024)
"""Slots of a node: the first that is enough for the node with the most Pods."""
_SLOT_BITS: Final = 10
_SLOT_MASK: Final = STRIDES[-1] - 1
_MAX_CHANGES: Final = 30_000
"""Changed slots from which on a tab is sent everything instead."""
_MAX_REASON: Final = 300
"""Characters that are kept of the reason for which a Pod has no node."""


class FleetNode:
    """A node with the states and names of its Pods."""

    __slots__ = ("cordoned", "extra", "free", "id", "name", "names", "order", "position", "state", "states", "zone")

    def __init__(self, id: int, name: str) -> None:
        self.id = id
        self.name = name
        self.order = natural_order(name)
        """The sort key of the name."""
        self.zone = ""
        self.state = NodeState.MISSING
        self.cordoned = False
        self.position = -1
        """Position in the order of the layout; -1 until it is laid out."""
        self.states = bytearray()
        """The states of the Pods by slot; 0 for a free slot."""
        self.names: list[str | None] = []
        """The Pods by slot, each as `namespace/name`; None for a free slot."""
        self.free: list[int] = []
        """A heap of the free slots among `names`."""
        self.extra: set[str] = set()
        """Pods for which there is no slot."""

    @property
    def is_empty(self) -> bool:
        return len(self.free) == len(self.names) and not self.extra


class FleetViewer:
    """The changes that a tab was not sent yet."""

    __slots__ = ("changed", "is_stale", "nodes", "tray_changed", "wake")

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        """Set after each change."""
        self.changed: set[int] = set()
        """Indexes of the present layout whose bytes have changed."""
        self.nodes: set[FleetNode] = set()
        """Nodes whose state has changed."""
        self.tray_changed = True
        """Whether the Pods without a node have changed."""
        self.is_stale = True
        """Whether everything must be sent: the layout is another one, too much has changed, or nothing was sent yet."""

    def add(self, index: int) -> None:
        """Note that the byte at an index has changed."""
        self.changed.add(index)
        if len(self.changed) > _MAX_CHANGES:
            self.changed.clear()
            self.is_stale = True
        self.wake.set()


class FleetState:
    def __init__(self) -> None:
        self.stride = STRIDES[0]
        self.layout = 0
        """Number of the layout; 0 before the first."""
        self.order: list[FleetNode] = []
        """The nodes by position."""
        self.nodes: dict[str, FleetNode] = {}
        self.unbound: dict[str, str] = {}
        """Pods without a node by `namespace/name`, with the reason."""
        self.is_loaded = False
        """Whether every Pod is known."""
        self.expected = 0
        """The number of Pods that the server has, while they are loaded; 0 if it is not known."""
        self._pods: dict[str, int] = {}
        """The place of each Pod: the id of its node, shifted, and its slot; -1 - id if it has no slot."""
        self._by_id: dict[int, FleetNode] = {}
        self._last_id = 0
        self._viewers: set[FleetViewer] = set()
        self.is_laid_out = False
        """Whether `order` and the positions are those of the present nodes."""

    # -- reading ----------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """The number of Pods, with and without a node."""
        return len(self._pods) + len(self.unbound)

    def at(self, index: int) -> tuple[FleetNode, int]:
        """Return the node and the slot of an index. Raises IndexError if the layout has no such index."""
        position, slot = divmod(index, self.stride)
        if position < 0:
            raise IndexError(index)
        return self.order[position], slot

    def index_of(self, name: str) -> int | None:
        """Return the index of a Pod by `namespace/name`; None if it has none."""
        place = self._pods.get(name)
        if place is None or place < 0:
            return None
        node = self._by_id[place >> _SLOT_BITS]
        return node.position * self.stride + (place & _SLOT_MASK) if node.position >= 0 else None

    def names(self) -> list[str]:
        """Return the names of all Pods."""
        return [*self._pods, *self.unbound]

    def lay_out(self) -> None:
        """Give the nodes their positions. Does nothing if they have them."""
        if self.is_laid_out and self.layout:
            return
        self.order = sorted(self.nodes.values(), key=lambda node: (node.zone, node.order))
        for position, node in enumerate(self.order):
            node.position = position
        self.layout += 1
        self.is_laid_out = True
        for viewer in self._viewers:
            viewer.is_stale = True
            viewer.changed.clear()

    # -- viewers ----------------------------------------------------------------------------------------------------

    def add_viewer(self, viewer: FleetViewer) -> None:
        self._viewers.add(viewer)
        viewer.wake.set()

    def remove_viewer(self, viewer: FleetViewer) -> None:
        self._viewers.discard(viewer)

    def notify(self) -> None:
        """Wake all viewers."""
        for viewer in self._viewers:
            viewer.wake.set()

    def _notify_node(self, node: FleetNode) -> None:
        for viewer in self._viewers:
            viewer.nodes.add(node)
            viewer.wake.set()

    def _notify_tray(self) -> None:
        for viewer in self._viewers:
            viewer.tray_changed = True
            viewer.wake.set()

    def _move(self) -> None:
        """Note that positions change."""
        self.is_laid_out = False
        self.notify()

    # -- nodes ------------------------------------------------------------------------------------------------------

    def put_node(self, node: ObjView) -> None:
        meta = node["metadata"]
        found = self._node(meta["name"])
        zone = str((meta.get("labels") or {}).get(ZONE_LABEL, ""))
        state, cordoned = node_state(node), bool((node.get("spec") or {}).get("unschedulable"))
        if zone != found.zone:
            found.zone = zone
            self._move()
        if (state, cordoned) != (found.state, found.cordoned):
            found.state, found.cordoned = state, cordoned
            self._notify_node(found)

    def remove_node(self, name: str) -> None:
        """Remove a node. It stays as long as Pods are bound to it."""
        node = self.nodes.get(name)
        if node is None:
            return
        node.state, node.cordoned = NodeState.MISSING, False
        if node.is_empty:
            del self.nodes[name], self._by_id[node.id]
            self._move()
        else:
            self._notify_node(node)

    def _node(self, name: str) -> FleetNode:
        node = self.nodes.get(name)
        if node is None:
            self._last_id += 1
            node = self.nodes[name] = self._by_id[self._last_id] = FleetNode(self._last_id, name)
            self._move()
        return node

    # -- Pods -------------------------------------------------------------------------------------------------------

    def put_pod(self, pod: ObjView) -> None:
        meta = pod["metadata"]
        name = f"{meta['namespace']}/{meta['name']}"
        node_name = (pod.get("spec") or {}).get("nodeName")
        if not node_name:
            why = why_unbound(pod)[:_MAX_REASON]
            if name in self._pods:  # deleted and created again
                self.remove_pod(name)
            if self.unbound.get(name) != why:
                self.unbound[name] = why
                self._notify_tray()
            return
        if self.unbound.pop(name, None) is not None:
            self._notify_tray()
        place = self._pods.get(name)
        if place is not None and self._node_at(place).name != node_name:
            self.remove_pod(name)
            place = None
        if place is None:
            place = self._bind(name, self._node(node_name))
        if place >= 0:
            self._set(self._by_id[place >> _SLOT_BITS], place & _SLOT_MASK, pod_state(pod))

    def remove_pod(self, name: str) -> None:
        if self.unbound.pop(name, None) is not None:
            self._notify_tray()
        place = self._pods.pop(name, None)
        if place is None:
            return
        node = self._node_at(place)
        if place < 0:
            node.extra.discard(name)
            self._notify_node(node)
        else:
            slot = place & _SLOT_MASK
            node.names[slot] = None
            heapq.heappush(node.free, slot)
            self._set(node, slot, 0)
        if node.is_empty and node.state == NodeState.MISSING:
            self.remove_node(node.name)

    def _node_at(self, place: int) -> FleetNode:
        return self._by_id[-1 - place if place < 0 else place >> _SLOT_BITS]

    def _bind(self, name: str, node: FleetNode) -> int:
        """Give a Pod the first free slot of a node, and return its place."""
        if node.free:
            slot = heapq.heappop(node.free)
            node.names[slot] = name
        elif len(node.names) < STRIDES[-1]:
            slot = len(node.names)
            node.names.append(name)
            node.states.append(0)
            if slot >= self.stride:
                self.stride = next(each for each in STRIDES if each > slot)
                self._move()
        else:
            node.extra.add(name)
            self._notify_node(node)
            self._pods[name] = -1 - node.id
            return -1 - node.id
        place = self._pods[name] = node.id << _SLOT_BITS | slot
        return place

    def _set(self, node: FleetNode, slot: int, value: int) -> None:
        if node.states[slot] == value:
            return
        node.states[slot] = value
        if self.is_laid_out and node.position >= 0:
            index = node.position * self.stride + slot
            for viewer in self._viewers:
                viewer.add(index)
