"""What the scheduler decides on: the nodes, and which Pods are on each, decided-but-not-yet-seen ones included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from setpoint.reconcile import key_of

Obj = dict[str, Any]


class NodeInfo:
    __slots__ = ("node", "pods")

    def __init__(self, node: Obj | None = None) -> None:
        self.node = node
        """None while Pods say they are on a node that is not known."""
        self.pods: dict[str, Obj] = {}
        """By key; those that have ended hold nothing any more and are not counted."""


class Snapshot:
    def __init__(self) -> None:
        self._nodes: dict[str, NodeInfo] = {}
        self._places: dict[str, str] = {}
        """Where each Pod is counted."""

    def nodes(self) -> Iterator[NodeInfo]:
        return (info for info in self._nodes.values() if info.node is not None)

    def node_changed(self, old: Obj | None, new: Obj | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        info = self._nodes.setdefault(name, NodeInfo())
        info.node = new
        if new is None and not info.pods:
            del self._nodes[name]

    def pod_changed(self, old: Obj | None, new: Obj | None) -> bool:
        """As the informer tells it. Whether room has become free somewhere."""
        if new is not None and new["spec"].get("nodeName") and not has_ended(new):
            self.place(new, new["spec"]["nodeName"])
            return False
        key = key_of(new or old or {})
        if new is not None and not has_ended(new):
            return False  # not bound yet, as far as is known: what was decided holds
        return self.remove(key)

    def place(self, pod: Obj, node: str) -> None:
        """The Pod is on the node, or will be."""
        key = key_of(pod)
        if self._places.get(key) != node:
            self.remove(key)
        self._places[key] = node
        self._nodes.setdefault(node, NodeInfo()).pods[key] = pod

    def remove(self, key: str) -> bool:
        node = self._places.pop(key, None)
        if node is None:
            return False
        info = self._nodes[node]
        info.pods.pop(key, None)
        if info.node is None and not info.pods:
            del self._nodes[node]
        return True

    def is_placed(self, key: str) -> bool:
        return key in self._places


def has_ended(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
