"""What the scheduler decides on: the nodes, and which Pods are on each, decided-but-not-yet-seen ones included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from setpoint.reconcile import key_of

Obj = dict[str, Any]


class NodeInfo:
    __slots__ = ("name", "node", "pods")

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Obj | None = None
        """None while Pods say they are on a node that is not known."""
        self.pods: dict[str, Obj] = {}
        """By key; those that have ended hold nothing any more and are not counted."""


class Snapshot:
    def __init__(self) -> None:
        self._nodes: dict[str, NodeInfo] = {}
        self._levels: dict[int, dict[str, NodeInfo]] = {}
        """The same nodes by how many Pods they hold: with thousands of them, nobody wants to look at all."""
        self._places: dict[str, str] = {}
        """Where each Pod is counted."""

    def nodes(self) -> Iterator[NodeInfo]:
        """Those that are known, the emptiest first."""
        for level in sorted(self._levels):
            for info in self._levels[level].values():
                if info.node is not None:
                    yield info

    def node_changed(self, old: Obj | None, new: Obj | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        info = self._info(name)
        info.node = new
        self._drop_if_unused(info)

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
        if self._places.get(key) == node:
            self._nodes[node].pods[key] = pod
            return
        self.remove(key)
        self._places[key] = node
        info = self._info(node)
        self._off_level(info)
        info.pods[key] = pod
        self._on_level(info)

    def remove(self, key: str) -> bool:
        node = self._places.pop(key, None)
        if node is None:
            return False
        info = self._nodes[node]
        self._off_level(info)
        info.pods.pop(key, None)
        self._on_level(info)
        self._drop_if_unused(info)
        return True

    def is_placed(self, key: str) -> bool:
        return key in self._places

    def _info(self, name: str) -> NodeInfo:
        info = self._nodes.get(name)
        if info is None:
            info = self._nodes[name] = NodeInfo(name)
            self._on_level(info)
        return info

    def _drop_if_unused(self, info: NodeInfo) -> None:
        if info.node is None and not info.pods:
            self._off_level(info)
            del self._nodes[info.name]

    def _on_level(self, info: NodeInfo) -> None:
        self._levels.setdefault(len(info.pods), {})[info.name] = info

    def _off_level(self, info: NodeInfo) -> None:
        level = self._levels[len(info.pods)]
        del level[info.name]
        if not level:
            del self._levels[len(info.pods)]


def has_ended(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
