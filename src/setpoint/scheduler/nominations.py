"""Nominated nodes: capacity freed by preemption that Pods of no higher priority must not use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.reconcile.keys import key_of

Obj = dict[str, Any]


class Nominations:
    """Tracks nominations; decisions count before the API shows them."""

    def __init__(self, current: Callable[[str], Obj | None]) -> None:
        """Create the table. `current(key)` returns the cached Pod."""
        self._current = current
        self._node_of: dict[str, str] = {}
        """Node by Pod uid."""
        self._on: dict[str, dict[str, Obj]] = {}
        """Pods by node, then by uid."""

    def nodes(self) -> list[str]:
        return list(self._on) if self._on else []

    def node_of(self, pod: Obj) -> str:
        return self._node_of.get(pod["metadata"]["uid"], "")

    def on(self, node: str) -> list[Obj]:
        return list(self._on.get(node, {}).values())

    def before(self, pod: Obj, node: str) -> list[Obj]:
        """Return the Pods whose nomination for the node this Pod must respect."""
        nominated = self._on.get(node)
        if not nominated:
            return []
        mine, uid = _priority(pod), pod["metadata"]["uid"]
        return [other for found, other in nominated.items() if found != uid and _priority(other) >= mine]

    def put(self, pod: Obj, node: str | None = None) -> None:
        """Set the nomination of a Pod. An empty `node` clears it; None takes the one from the Pod's status."""
        self.remove(pod)
        node = nominated_node(pod) if node is None else node
        current = self._current(key_of(pod))
        if not node or current is None or current["spec"].get("nodeName"):
            return
        uid = pod["metadata"]["uid"]
        self._node_of[uid] = node
        self._on.setdefault(node, {})[uid] = pod

    def update(self, old: Obj, new: Obj) -> None:
        # An update from before the API shows the nomination does not clear it.
        unheard = not nominated_node(old) and not nominated_node(new)
        self.put(new, self.node_of(old) if unheard else None)

    def remove(self, pod: Obj) -> None:
        uid = pod["metadata"]["uid"]
        node = self._node_of.pop(uid, None)
        if node is not None:
            held = self._on[node]
            held.pop(uid, None)
            if not held:
                del self._on[node]


def nominated_node(pod: Obj) -> str:
    return str((pod.get("status") or {}).get("nominatedNodeName") or "")


def _priority(pod: Obj) -> int:
    return int(pod["spec"].get("priority") or 0)
